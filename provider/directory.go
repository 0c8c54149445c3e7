package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// SecretPrefix is how the environment variables begin that a configuration may name: no other secret of the service is
// sent to whom a configuration names.
const SecretPrefix = "BERTH_PROVIDER_"

// config is the part "provider" of an environment's configuration.
type config struct {
	Kind         string `json:"kind"`
	Name         string `json:"name"` // as in the leases; the kind unless given
	URL          string `json:"url"`
	SecretEnv    string `json:"secretEnv"`
	APIKeyEnv    string `json:"apiKeyEnv"`
	Organization string `json:"organizationId"`
}

// ConfigError is a setting that is missing, unknown or contradicts another.
type ConfigError struct {
	Key     string // below the environment's config, as in "provider.url"
	Problem string
}

// Error says which setting it is.
func (e *ConfigError) Error() string { return e.Key + " " + e.Problem }

// CheckConfig refuses an environment's configuration whose part "provider" cannot work, by a *ConfigError. A
// configuration without that part is fine: machines of such an environment are told about by people.
func CheckConfig(environment json.RawMessage) error {
	c, found, err := readConfig(environment)
	if err != nil || !found {
		return err
	}
	return c.check()
}

func readConfig(environment json.RawMessage) (c config, found bool, err error) {
	var whole struct {
		Provider json.RawMessage `json:"provider"`
	}
	if len(environment) > 0 && json.Unmarshal(environment, &whole) != nil {
		return c, false, &ConfigError{"provider", "cannot be read: the configuration is no object"}
	}
	if len(whole.Provider) == 0 || string(whole.Provider) == "null" {
		return c, false, nil
	}
	decoder := json.NewDecoder(strings.NewReader(string(whole.Provider)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return c, true, &ConfigError{"provider", "does not read: it has kind, name, url, secretEnv, apiKeyEnv and organizationId, all texts"}
	}
	if c.Name == "" {
		c.Name = c.Kind
	}
	return c, true, nil
}

func (c config) check() error {
	switch c.Kind {
	case ProcessName:
		return c.only("process", map[string]string{"url": c.URL, "secretEnv": c.SecretEnv, "apiKeyEnv": c.APIKeyEnv, "organizationId": c.Organization})
	case "webhook":
		if err := c.only("webhook", map[string]string{"apiKeyEnv": c.APIKeyEnv, "organizationId": c.Organization}); err != nil {
			return err
		}
		return c.reaches("secretEnv", c.SecretEnv)
	case "daytona":
		if err := c.only("daytona", map[string]string{"secretEnv": c.SecretEnv}); err != nil {
			return err
		}
		return c.reaches("apiKeyEnv", c.APIKeyEnv)
	default:
		return &ConfigError{"provider.kind", "is none of process, webhook, daytona"}
	}
}

// only refuses settings that mean nothing for the kind.
func (c config) only(kind string, others map[string]string) error {
	for key, value := range others {
		if value != "" {
			return &ConfigError{"provider." + key, "means nothing for the kind " + kind + ": leave it out"}
		}
	}
	if c.Name == "local" {
		return &ConfigError{"provider.name", "is local, which never proves anything: choose another"}
	}
	return nil
}

// reaches checks where a provider is and which variable holds the credentials for it.
func (c config) reaches(key, variable string) error {
	if _, err := checkURL(c.URL); err != nil {
		return &ConfigError{"provider.url", err.Error()}
	}
	if !strings.HasPrefix(variable, SecretPrefix) {
		return &ConfigError{"provider." + key, "is not the name of an environment variable that begins with " + SecretPrefix}
	}
	return nil
}

// directory finds providers by what the environments say.
type directory struct {
	getenv  func(string) string
	client  *http.Client
	process *Process // nil where processes cannot be told apart
}

// NewDirectory finds the providers that environments configure; getenv reads the variables that hold their secrets. The
// host that it runs on is known without configuration.
func NewDirectory(getenv func(string) string) Directory {
	d := &directory{getenv: getenv, client: newHTTPClient()}
	if here, err := OpenProcess(); err == nil {
		d.process = here
	}
	return d
}

// For implements Directory.
func (d *directory) For(name string, environment json.RawMessage) (Provider, error) {
	if name == ProcessName && d.process != nil {
		return d.process, nil
	}
	c, found, err := readConfig(environment)
	if err != nil || found && c.check() != nil {
		return nil, &Error{Kind: KindMisconfigured, Cause: errors.Join(err, c.check())}
	}
	if !found || c.Name != name {
		return nil, ErrUnknownProvider
	}
	base, err := checkURL(c.URL)
	if err != nil {
		return nil, ErrUnknownProvider // process, on a system that cannot tell processes apart
	}
	variable := c.SecretEnv + c.APIKeyEnv // of which a kind has one
	secret := d.getenv(variable)
	if secret == "" {
		return nil, &Error{Kind: KindMisconfigured, Cause: fmt.Errorf("the environment variable %s is not set", variable)}
	}
	if c.Kind == "webhook" {
		return newWebhook(base, secret, d.client), nil
	}
	return &Daytona{base: base, key: secret, organization: c.Organization, client: d.client}, nil
}
