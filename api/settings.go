package api

import (
	"context"
	"net/http"

	"berth/authority"
)

// Settings are those of the whole instance.
type Settings struct {
	Experimental ExperimentalSettings `json:"experimental"`
	UpdatedAt    Time                 `json:"updatedAt"`
}

// ExperimentalSettings switch what is new.
type ExperimentalSettings struct {
	EnableIsolatedWorkspaces bool `json:"enableIsolatedWorkspaces" doc:"Whether a new task's own executionWorkspace members count."`
}

func settingsOf(s authority.Settings) Settings {
	return Settings{
		Experimental: ExperimentalSettings{EnableIsolatedWorkspaces: s.EnableIsolatedWorkspaces},
		UpdatedAt:    Time(s.UpdatedAt),
	}
}

// SettingsUpdate changes what it names.
type SettingsUpdate struct {
	Experimental *ExperimentalSettingsUpdate `json:"experimental,omitempty"`
}

// ExperimentalSettingsUpdate changes what it names.
type ExperimentalSettingsUpdate struct {
	EnableIsolatedWorkspaces *bool `json:"enableIsolatedWorkspaces,omitempty"`
}

func (s *server) settings() {
	register(s, endpoint{
		id: "getSettings", method: http.MethodGet, path: "/api/instance/settings", tag: "instance",
		summary: "Read the instance's settings",
	}, func(ctx context.Context, by authority.Principal, _ *struct{}) (*Answer[Settings], error) {
		settings, err := s.rules.GetSettings(ctx, by)
		return answer(settings, err, settingsOf)
	})
	register(s, endpoint{
		id: "updateSettings", method: http.MethodPatch, path: "/api/instance/settings", tag: "instance",
		summary: "Change the instance's settings", doc: "For operators.",
	}, func(ctx context.Context, by authority.Principal, in *struct{ Body SettingsUpdate }) (*Answer[Settings], error) {
		var patch authority.SettingsPatch
		if e := in.Body.Experimental; e != nil {
			patch.EnableIsolatedWorkspaces = e.EnableIsolatedWorkspaces
		}
		settings, err := s.rules.UpdateSettings(ctx, by, patch)
		return answer(settings, err, settingsOf)
	})
}
