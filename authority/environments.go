package authority

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
	"berth/provider"
)

// Environment is a place where runs execute. It belongs to the instance, and not to a company.
//
// Config may hold what opens machines, so only operators get it: for others it is nil.
type Environment struct {
	ID        uuid.UUID
	Name      string
	Driver    string
	Config    json.RawMessage
	Status    string
	CreatedAt time.Time
	UpdatedAt time.Time
}

// environmentFor converts a row to what the principal may see of it.
func environmentFor(by Principal) func(row db.Environment) Environment {
	return func(row db.Environment) Environment {
		environment := Environment(row)
		if by.Role != RoleOperator {
			environment.Config = nil
		}
		return environment
	}
}

// EnvironmentInput is what a new environment is made from.
type EnvironmentInput struct {
	Name   string
	Driver string
	Config json.RawMessage // an object; nil means an empty one
	Status string          // "" means active
}

// EnvironmentPatch changes what is not nil. The driver of an environment never changes: leases name
// the environment, and speak of machines of that driver.
type EnvironmentPatch struct {
	Name   *string
	Config json.RawMessage
	Status *string
}

var (
	environmentDrivers  = []string{"local", "ssh", "sandbox", "plugin"}
	environmentStatuses = []string{"active", "archived"}
)

// CreateEnvironment makes an environment. Operators only.
func (s *Service) CreateEnvironment(ctx context.Context, by Principal, in EnvironmentInput, once Once) (Environment, error) {
	if err := by.requireOperator(); err != nil {
		return Environment{}, err
	}
	if in.Status == "" {
		in.Status = "active"
	}
	if in.Config == nil {
		in.Config = json.RawMessage(`{}`)
	}
	refused := validation{}
	refused.text("body.name", in.Name)
	refused.text("body.driver", in.Driver)
	refused.oneOf("body.driver", in.Driver, environmentDrivers)
	refused.oneOf("body.status", in.Status, environmentStatuses)
	refused.environmentConfig(in.Config)
	if err := refused.err(); err != nil {
		return Environment{}, err
	}
	environment, _, err := createOnce(ctx, s, by, nil, once, func(tx pgx.Tx) (Environment, error) {
		row, err := s.queries.InsertEnvironment(ctx, tx, db.InsertEnvironmentParams{
			ID: newID(), Name: in.Name, Driver: in.Driver, Config: in.Config, Status: in.Status,
		})
		if err != nil {
			return Environment{}, fmt.Errorf("insert an environment: %w", err)
		}
		return environmentFor(by)(row), nil
	})
	return environment, err
}

// GetEnvironment returns an environment.
func (s *Service) GetEnvironment(ctx context.Context, by Principal, id uuid.UUID) (Environment, error) {
	if err := s.requireReader(ctx, s.pool, by); err != nil {
		return Environment{}, err
	}
	row, err := s.queries.GetEnvironment(ctx, s.pool, id)
	row, err = found(row, err, ErrEnvironmentNotFound, "read the environment")
	return environmentFor(by)(row), err
}

// ListEnvironments lists the environments of the instance, the oldest first.
func (s *Service) ListEnvironments(ctx context.Context, by Principal, page Page) (List[Environment], error) {
	after, err := page.after()
	if err != nil {
		return List[Environment]{}, err
	}
	if err := s.requireReader(ctx, s.pool, by); err != nil {
		return List[Environment]{}, err
	}
	params := db.ListEnvironmentsParams{Rows: page.rows()}
	params.AfterAt, params.AfterID = after.parts()
	rows, err := s.queries.ListEnvironments(ctx, s.pool, params)
	if err != nil {
		return List[Environment]{}, fmt.Errorf("list environments: %w", err)
	}
	return pageOf(page, rows, environmentFor(by), func(r db.Environment) place {
		return place{At: r.CreatedAt, ID: r.ID}
	}), nil
}

// UpdateEnvironment changes an environment. Operators only.
func (s *Service) UpdateEnvironment(
	ctx context.Context, by Principal, id uuid.UUID, patch EnvironmentPatch,
) (Environment, error) {
	if _, err := s.GetEnvironment(ctx, by, id); err != nil {
		return Environment{}, err
	}
	if err := by.requireOperator(); err != nil {
		return Environment{}, err
	}
	refused := validation{}
	if patch.Name != nil {
		refused.text("body.name", *patch.Name)
	}
	if patch.Status != nil {
		refused.text("body.status", *patch.Status)
		refused.oneOf("body.status", *patch.Status, environmentStatuses)
	}
	if patch.Config != nil {
		refused.environmentConfig(patch.Config)
	}
	if err := refused.err(); err != nil {
		return Environment{}, err
	}
	row, err := s.queries.UpdateEnvironment(ctx, s.pool, db.UpdateEnvironmentParams{
		ID: id, Name: patch.Name, Config: patch.Config, Status: patch.Status,
	})
	row, err = found(row, err, ErrEnvironmentNotFound, "change the environment")
	return environmentFor(by)(row), err
}

// environmentConfig wants an object, and no provider in it that cannot be asked.
func (v *validation) environmentConfig(config json.RawMessage) {
	var wrong *provider.ConfigError
	switch {
	case !isObject(config):
		v.object("body.config", config)
	case errors.As(provider.CheckConfig(config), &wrong):
		v.add("body.config."+wrong.Key, wrong.Problem)
	}
}
