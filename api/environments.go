package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// Environment is where runs execute. It belongs to no company.
type Environment struct {
	ID        uuid.UUID         `json:"id" format:"uuid"`
	Name      string            `json:"name" maxLength:"200"`
	Driver    EnvironmentDriver `json:"driver"`
	Config    Object            `json:"config" doc:"What the driver needs to know. Empty for all but operators."`
	Status    EnvironmentStatus `json:"status"`
	CreatedAt Time              `json:"createdAt"`
	UpdatedAt Time              `json:"updatedAt"`
}

func environmentOf(e authority.Environment) Environment {
	return Environment{
		ID: e.ID, Name: e.Name, Driver: EnvironmentDriver(e.Driver), Config: Object(e.Config),
		Status: EnvironmentStatus(e.Status), CreatedAt: Time(e.CreatedAt), UpdatedAt: Time(e.UpdatedAt),
	}
}

// EnvironmentCreate makes an environment.
type EnvironmentCreate struct {
	Name   string            `json:"name" minLength:"1" maxLength:"200"`
	Driver EnvironmentDriver `json:"driver"`
	Config *Object           `json:"config,omitempty" doc:"What the driver needs to know. Only operators read it."`
	Status EnvironmentStatus `json:"status,omitempty" default:"active"`
}

// EnvironmentUpdate changes what it names.
type EnvironmentUpdate struct {
	Name   *string            `json:"name,omitempty" minLength:"1" maxLength:"200"`
	Config *Object            `json:"config,omitempty" doc:"Takes the place of the whole configuration."`
	Status *EnvironmentStatus `json:"status,omitempty"`
}

// EnvironmentPath names an environment.
type EnvironmentPath struct {
	EnvironmentID uuid.UUID `path:"environmentId" format:"uuid"`
}

func (s *server) environments() {
	register(s, endpoint{
		id: "listEnvironments", method: http.MethodGet, path: "/api/environments", tag: "environments",
		summary: "List the environments",
	}, func(ctx context.Context, by authority.Principal, in *struct{ PageQuery }) (*Answer[List[Environment]], error) {
		list, err := s.rules.ListEnvironments(ctx, by, in.page())
		return listOf(list, err, environmentOf)
	})
	register(s, endpoint{
		id: "createEnvironment", method: http.MethodPost, path: "/api/environments", tag: "environments",
		status: http.StatusCreated, summary: "Create an environment", doc: "For operators.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		IdempotencyKey
		Body EnvironmentCreate
	},
	) (*Answer[Environment], error) {
		environment, err := s.rules.CreateEnvironment(ctx, by, authority.EnvironmentInput{
			Name: in.Body.Name, Driver: string(in.Body.Driver), Config: in.Body.Config.raw(),
			Status: string(in.Body.Status),
		}, in.once(ctx))
		return answer(environment, err, environmentOf)
	})
	register(s, endpoint{
		id: "getEnvironment", method: http.MethodGet, path: "/api/environments/{environmentId}", tag: "environments",
		summary: "Read an environment",
	}, func(ctx context.Context, by authority.Principal, in *struct{ EnvironmentPath }) (*Answer[Environment], error) {
		environment, err := s.rules.GetEnvironment(ctx, by, in.EnvironmentID)
		return answer(environment, err, environmentOf)
	})
	register(s, endpoint{
		id: "updateEnvironment", method: http.MethodPatch, path: "/api/environments/{environmentId}", tag: "environments",
		summary: "Change or archive an environment", doc: "For operators.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		EnvironmentPath
		Body EnvironmentUpdate
	},
	) (*Answer[Environment], error) {
		environment, err := s.rules.UpdateEnvironment(ctx, by, in.EnvironmentID, authority.EnvironmentPatch{
			Name: in.Body.Name, Config: in.Body.Config.raw(), Status: textOf(in.Body.Status),
		})
		return answer(environment, err, environmentOf)
	})
}
