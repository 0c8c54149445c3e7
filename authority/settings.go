package authority

import (
	"context"
	"fmt"
	"time"

	"berth/db"
)

// Settings are the instance's switches. With EnableIsolatedWorkspaces off a new task's wishes about
// its execution workspace are ignored; what it inherits it inherits all the same.
type Settings struct {
	EnableIsolatedWorkspaces bool
	UpdatedAt                time.Time
}

// SettingsPatch changes what is not nil.
type SettingsPatch struct {
	EnableIsolatedWorkspaces *bool
}

// GetSettings returns the settings.
func (s *Service) GetSettings(ctx context.Context, by Principal) (Settings, error) {
	if err := s.requireReader(ctx, s.pool, by); err != nil {
		return Settings{}, err
	}
	row, err := s.queries.GetSettings(ctx, s.pool)
	if err != nil {
		return Settings{}, fmt.Errorf("read the settings: %w", err)
	}
	return Settings(row), nil
}

// UpdateSettings changes the settings. Operators only.
func (s *Service) UpdateSettings(ctx context.Context, by Principal, patch SettingsPatch) (Settings, error) {
	if err := by.requireOperator(); err != nil {
		return Settings{}, err
	}
	row, err := s.queries.UpdateSettings(ctx, s.pool, patch.EnableIsolatedWorkspaces)
	if err != nil {
		return Settings{}, fmt.Errorf("change the settings: %w", err)
	}
	return Settings(db.GetSettingsRow(row)), nil
}
