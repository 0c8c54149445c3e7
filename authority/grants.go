package authority

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// Grant is a permission that a principal has in a company.
type Grant struct {
	ID            uuid.UUID
	CompanyID     uuid.UUID
	PrincipalType string
	PrincipalID   uuid.UUID
	PermissionKey string
	Scope         json.RawMessage // a grantScope for tasks:assign_scope, else nil
	CreatedAt     time.Time
}

func grantOf(row db.PermissionGrant) Grant {
	return Grant{
		ID: row.ID, CompanyID: row.CompanyID, PrincipalType: row.PrincipalType, PrincipalID: row.PrincipalID,
		PermissionKey: row.PermissionKey, Scope: row.Scope, CreatedAt: row.CreatedAt,
	}
}

// GrantInput is what a grant is made from.
type GrantInput struct {
	PrincipalType string
	PrincipalID   uuid.UUID
	PermissionKey string
	Scope         json.RawMessage // what tasks:assign_scope is limited to; nil for tasks:assign
}

// The permissions that can be granted: to assign any task of the company, or those in a scope.
const (
	permissionAssign      = "tasks:assign"
	permissionAssignScope = "tasks:assign_scope"
)

var permissionKeys = []string{permissionAssign, permissionAssignScope}

// grantScope is what the permission tasks:assign_scope is limited to:
//
//	{"projectId": "…", "agentId": "…", "subtreeOf": "…"}
//
// ProjectID is the project that the task is in, AgentID its assignee, SubtreeOf a task that it is
// or is somewhere below. At least one is given, and every one that is given must hold. A scope that
// says anything else is not understood, and grants nothing.
type grantScope struct {
	ProjectID *uuid.UUID `json:"projectId"`
	AgentID   *uuid.UUID `json:"agentId"`
	SubtreeOf *uuid.UUID `json:"subtreeOf"`
}

func parseScope(raw json.RawMessage) (grantScope, error) {
	var scope grantScope
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&scope); err != nil {
		return grantScope{}, fmt.Errorf("read a grant's scope: %w", err)
	}
	if scope == (grantScope{}) {
		return grantScope{}, errors.New("a grant's scope limits nothing")
	}
	return scope, nil
}

// CreateGrant grants a permission. Operators only. ErrAgentNotFound: the company has no such agent.
func (s *Service) CreateGrant(
	ctx context.Context, by Principal, company uuid.UUID, in GrantInput, once Once,
) (Grant, error) {
	if err := s.requireCompanyAdministration(ctx, s.pool, by, company); err != nil {
		return Grant{}, err
	}
	principal := PrincipalRef{Type: in.PrincipalType, ID: in.PrincipalID}
	refused := validation{}
	principal.check(&refused)
	refused.text("body.permissionKey", in.PermissionKey)
	refused.oneOf("body.permissionKey", in.PermissionKey, permissionKeys)
	in.checkScope(&refused)
	if err := refused.err(); err != nil {
		return Grant{}, err
	}
	grant, _, err := createOnce(ctx, s, by, &company, once, func(tx pgx.Tx) (Grant, error) {
		if err := s.requirePrincipal(ctx, tx, company, principal); err != nil {
			return Grant{}, err
		}
		row, err := s.queries.InsertGrant(ctx, tx, db.InsertGrantParams{
			ID: newID(), CompanyID: company, PrincipalType: in.PrincipalType, PrincipalID: in.PrincipalID,
			PermissionKey: in.PermissionKey, Scope: in.Scope,
		})
		if err != nil {
			return Grant{}, fmt.Errorf("insert a grant: %w", err)
		}
		return grantOf(row), nil
	})
	return grant, err
}

func (in GrantInput) checkScope(refused *validation) {
	switch in.PermissionKey {
	case permissionAssign:
		if in.Scope != nil {
			refused.add("body.scope", "is not for "+permissionAssign+", which has no limits: use "+permissionAssignScope)
		}
	case permissionAssignScope:
		if _, err := parseScope(in.Scope); err != nil {
			refused.add("body.scope", "is an object with one or more of projectId, agentId and subtreeOf, each an id")
		}
	}
}

// ListGrants lists the grants of a company, the oldest first.
func (s *Service) ListGrants(ctx context.Context, by Principal, company uuid.UUID, page Page) (List[Grant], error) {
	after, err := page.after()
	if err != nil {
		return List[Grant]{}, err
	}
	if err := s.requireCompanyRead(ctx, s.pool, by, company); err != nil {
		return List[Grant]{}, err
	}
	params := db.ListGrantsParams{CompanyID: company, Rows: page.rows()}
	params.AfterAt, params.AfterID = after.parts()
	rows, err := s.queries.ListGrants(ctx, s.pool, params)
	if err != nil {
		return List[Grant]{}, fmt.Errorf("list grants: %w", err)
	}
	return pageOf(page, rows, grantOf, func(r db.PermissionGrant) place { return place{At: r.CreatedAt, ID: r.ID} }), nil
}
