package authority

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
)

func TestAnEnvironmentWhoseProviderCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	broken := json.RawMessage(`{"provider":{"kind":"webhook","url":"http://machines.example","secretEnv":"BERTH_PROVIDER_A"}}`)
	working := json.RawMessage(`{"provider":{"kind":"webhook","url":"https://machines.example","secretEnv":"BERTH_PROVIDER_A"},"region":"eu"}`)
	names := func(err error) {
		t.Helper()
		var refused *Refusal
		if !errors.As(err, &refused) || !slices.ContainsFunc(refused.Fields, func(f FieldProblem) bool { return f.Location == "body.config.provider.url" }) {
			t.Errorf("%v names not the URL", err)
		}
	}
	_, err := s.CreateEnvironment(t.Context(), s.operator, EnvironmentInput{Name: "Acme", Driver: "sandbox", Config: broken}, Once{})
	names(err)
	made, err := s.CreateEnvironment(t.Context(), s.operator, EnvironmentInput{Name: "Acme", Driver: "sandbox", Config: working}, Once{})
	s.wantNoError("create", err)
	_, err = s.UpdateEnvironment(t.Context(), s.operator, made.ID, EnvironmentPatch{Config: broken})
	names(err)
	if now, err := s.GetEnvironment(t.Context(), s.operator, made.ID); err != nil || !sameDocument(now.Config, working) {
		t.Errorf("the environment is %s (%v)", now.Config, err)
	}
}
