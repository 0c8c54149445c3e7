package provider

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestASettingThatCannotWorkIsNamed(t *testing.T) {
	t.Parallel()
	for config, key := range map[string]string{
		`[]`:                     "provider",
		`{"provider":"webhook"}`: "provider",
		`{"provider":{"kind":"webhook","url":"https://a.example","secret":"s3cret"}}`: "provider.secret",
		`{"provider":{"kind":7}}`:                       "provider.kind",
		`{"provider":{"kind":"process","name":"acme"}}`: "provider.name",
		`{"provider":{"kind":"webhook","name":"process","url":"https://a.example","secretEnv":"BERTH_PROVIDER_A"}}`: "provider.name",
		`{"provider":{"kind":"webhook","url":"https://a.example","secretEnv":"BERTH_PROVIDER_"}}`:                   "provider.secretEnv",
		`{"provider":{"kind":"webhook","url":"https://a.example","secretEnv":"BERTH_PROVIDER_A=s3cret"}}`:           "provider.secretEnv",
		`{"provider":{}}`:                                           "provider.kind",
		`{"provider":{"kind":"aws"}}`:                               "provider.kind",
		`{"provider":{"kind":"webhook"}}`:                           "provider.url",
		`{"provider":{"kind":"process","url":"https://a.example"}}`: "provider.url",
		`{"provider":{"kind":"webhook","name":"local","url":"https://a.example","secretEnv":"BERTH_PROVIDER_A"}}`: "provider.name",
		`{"provider":{"kind":"webhook","url":"http://a.example","secretEnv":"BERTH_PROVIDER_A"}}`:                 "provider.url",
		`{"provider":{"kind":"webhook","url":"https://u:s3cret@a.example","secretEnv":"BERTH_PROVIDER_A"}}`:       "provider.url",
		`{"provider":{"kind":"webhook","url":"https://a.example?key=s3cret","secretEnv":"BERTH_PROVIDER_A"}}`:     "provider.url",
		`{"provider":{"kind":"webhook","url":"ftp://a.example","secretEnv":"BERTH_PROVIDER_A"}}`:                  "provider.url",
		`{"provider":{"kind":"webhook","url":"https://a.example"}}`:                                               "provider.secretEnv",
		`{"provider":{"kind":"webhook","url":"https://a.example","secretEnv":"BERTH_OPERATOR_TOKEN"}}`:            "provider.secretEnv",
		`{"provider":{"kind":"webhook","url":"https://a.example","apiKeyEnv":"BERTH_PROVIDER_A"}}`:                "provider.apiKeyEnv",
		`{"provider":{"kind":"daytona","url":"https://a.example","secretEnv":"BERTH_PROVIDER_A"}}`:                "provider.secretEnv",
		`{"provider":{"kind":"daytona","url":"https://a.example","apiKeyEnv":"PATH"}}`:                            "provider.apiKeyEnv",
	} {
		var refused *ConfigError
		err := CheckConfig(json.RawMessage(config))
		if !errors.As(err, &refused) || refused.Key != key || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %s", config, err, key)
		}
		if _, err := NewDirectory(func(string) string { return "set" }).For("webhook", json.RawMessage(config)); err == nil {
			t.Errorf("%s: finds a provider", config)
		}
	}
	for _, config := range []string{
		``, `{}`, `{"provider":null,"region":"eu"}`, `{"provider":{"kind":"process"}}`,
		`{"provider":{"kind":"webhook","name":"acme","url":"https://a.example/berth","secretEnv":"BERTH_PROVIDER_A"}}`,
		`{"provider":{"kind":"webhook","url":"http://127.0.0.1:8080","secretEnv":"BERTH_PROVIDER_A"}}`,
		`{"provider":{"kind":"daytona","url":"https://app.daytona.io/api","apiKeyEnv":"BERTH_PROVIDER_D","organizationId":"o"}}`,
	} {
		if err := CheckConfig(json.RawMessage(config)); err != nil {
			t.Errorf("%s: %v", config, err)
		}
	}
}

func TestALeaseFindsTheProviderOfItsName(t *testing.T) {
	t.Parallel()
	acme := json.RawMessage(`{"provider":{"kind":"webhook","name":"acme","url":"https://a.example","secretEnv":"BERTH_PROVIDER_A"}}`)
	d := NewDirectory(func(name string) string { return map[string]string{"BERTH_PROVIDER_A": "s3cret"}[name] })
	if p, err := d.For("acme", acme); err != nil {
		t.Errorf("acme: %v", err)
	} else if w, ok := p.(*Webhook); !ok || string(w.secret) != "s3cret" {
		t.Errorf("acme is %T", p)
	}
	for _, name := range []string{"webhook", "daytona", "local", ""} {
		if _, err := d.For(name, acme); !errors.Is(err, ErrUnknownProvider) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := d.For("acme", nil); !errors.Is(err, ErrUnknownProvider) {
		t.Errorf("in an environment without a provider: %v", err)
	}
	if _, err := NewDirectory(func(string) string { return "" }).For("acme", acme); KindOf(err) != KindMisconfigured || strings.Contains(err.Error(), "BERTH_PROVIDER_A") {
		t.Errorf("without its secret: %v", err)
	}
}
