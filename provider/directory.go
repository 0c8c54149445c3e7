package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
)

// SecretPrefix is how the environment variables begin that a configuration may name: no other secret of the service is
// sent to whom a configuration names.
const SecretPrefix = "BERTH_PROVIDER_"

var secretName = regexp.MustCompile("^" + SecretPrefix + "[A-Z0-9_]+$")

// config is the part "provider" of an environment's configuration.
type config struct {
	Kind         string
	Name         string // as in the leases; the kind unless given
	URL          string
	SecretEnv    string
	APIKeyEnv    string
	Organization string
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
	if err := decodeConfig(whole.Provider, &c); err != nil {
		return c, true, err
	}
	if c.Name == "" {
		c.Name = c.Kind
	}
	return c, true, nil
}

// decodeConfig is told the name of what does not belong there, and never its value, which may be a secret in a wrong place.
func decodeConfig(part json.RawMessage, c *config) error {
	var settings map[string]json.RawMessage
	if json.Unmarshal(part, &settings) != nil {
		return &ConfigError{"provider", "is no object"}
	}
	for key, into := range map[string]*string{
		"kind": &c.Kind, "name": &c.Name, "url": &c.URL, "secretEnv": &c.SecretEnv, "apiKeyEnv": &c.APIKeyEnv,
		"organizationId": &c.Organization,
	} {
		if value, set := settings[key]; set && json.Unmarshal(value, into) != nil {
			return &ConfigError{"provider." + key, "is no text"}
		}
		delete(settings, key)
	}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		return &ConfigError{"provider." + key, "is unknown: there are kind, name, url, secretEnv, apiKeyEnv and organizationId"}
	}
	return nil
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
	switch {
	case c.Name == "local":
		return &ConfigError{"provider.name", "is local, which never proves anything: choose another"}
	case (c.Name == ProcessName) != (kind == ProcessName):
		return &ConfigError{"provider.name", "must be process for the kind process, and for no other: leave it out, or choose another"}
	}
	return nil
}

// reaches checks where a provider is and which variable holds the credentials for it.
func (c config) reaches(key, variable string) error {
	if _, err := checkURL(c.URL); err != nil {
		return &ConfigError{"provider.url", err.Error()}
	}
	if !secretName.MatchString(variable) {
		return &ConfigError{"provider." + key, "is not the name of an environment variable: " + SecretPrefix + " and then capital letters, digits or _"}
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
