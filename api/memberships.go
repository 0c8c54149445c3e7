package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// Membership makes a user or an agent one of a company.
type Membership struct {
	ID             uuid.UUID        `json:"id" format:"uuid"`
	CompanyID      uuid.UUID        `json:"companyId" format:"uuid"`
	PrincipalType  PrincipalType    `json:"principalType"`
	PrincipalID    uuid.UUID        `json:"principalId" format:"uuid"`
	Status         MembershipStatus `json:"status"`
	MembershipRole MembershipRole   `json:"membershipRole"`
	CreatedAt      Time             `json:"createdAt"`
	UpdatedAt      Time             `json:"updatedAt"`
}

func membershipOf(m authority.Membership) Membership {
	return Membership{
		ID: m.ID, CompanyID: m.CompanyID, PrincipalType: PrincipalType(m.PrincipalType), PrincipalID: m.PrincipalID,
		Status: MembershipStatus(m.Status), MembershipRole: MembershipRole(m.MembershipRole),
		CreatedAt: Time(m.CreatedAt), UpdatedAt: Time(m.UpdatedAt),
	}
}

// MembershipCreate makes somebody a member.
type MembershipCreate struct {
	PrincipalType  PrincipalType    `json:"principalType"`
	PrincipalID    uuid.UUID        `json:"principalId" format:"uuid" doc:"An agent of the company, or a user: Berth keeps no list of users, and takes any id for one."`
	Status         MembershipStatus `json:"status,omitempty" default:"active"`
	MembershipRole MembershipRole   `json:"membershipRole,omitempty" default:"member"`
}

// Grant permits a user or an agent what a protected project asks for.
type Grant struct {
	ID            uuid.UUID     `json:"id" format:"uuid"`
	CompanyID     uuid.UUID     `json:"companyId" format:"uuid"`
	PrincipalType PrincipalType `json:"principalType"`
	PrincipalID   uuid.UUID     `json:"principalId" format:"uuid"`
	PermissionKey PermissionKey `json:"permissionKey"`
	Scope         *Object       `json:"scope" nullable:"true" doc:"For tasks:assign_scope: what it covers."`
	CreatedAt     Time          `json:"createdAt"`
}

func grantOf(g authority.Grant) Grant {
	return Grant{
		ID: g.ID, CompanyID: g.CompanyID, PrincipalType: PrincipalType(g.PrincipalType), PrincipalID: g.PrincipalID,
		PermissionKey: PermissionKey(g.PermissionKey), Scope: objectOf(g.Scope), CreatedAt: Time(g.CreatedAt),
	}
}

// GrantCreate permits somebody something.
type GrantCreate struct {
	PrincipalType PrincipalType `json:"principalType"`
	PrincipalID   uuid.UUID     `json:"principalId" format:"uuid"`
	PermissionKey PermissionKey `json:"permissionKey"`
	Scope         *Object       `json:"scope,omitempty" doc:"With tasks:assign_scope, and only there: what it covers."`
}

func (s *server) memberships() {
	register(s, endpoint{
		id: "listMemberships", method: http.MethodGet, path: "/api/companies/{companyId}/memberships", tag: "companies",
		summary: "List a company's members",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		PageQuery
	},
	) (*Answer[List[Membership]], error) {
		list, err := s.rules.ListMemberships(ctx, by, in.CompanyID, in.page())
		return listOf(list, err, membershipOf)
	})
	register(s, endpoint{
		id: "createMembership", method: http.MethodPost, path: "/api/companies/{companyId}/memberships", tag: "companies",
		status: http.StatusCreated, summary: "Make a user or an agent a member", doc: "For operators.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		IdempotencyKey
		Body MembershipCreate
	},
	) (*Answer[Membership], error) {
		membership, err := s.rules.CreateMembership(ctx, by, in.CompanyID, authority.MembershipInput{
			PrincipalType: string(in.Body.PrincipalType), PrincipalID: in.Body.PrincipalID,
			Status: string(in.Body.Status), MembershipRole: string(in.Body.MembershipRole),
		}, in.once(ctx))
		return answer(membership, err, membershipOf)
	})
	register(s, endpoint{
		id: "listGrants", method: http.MethodGet, path: "/api/companies/{companyId}/grants", tag: "companies",
		summary: "List what a company's principals are permitted",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		PageQuery
	},
	) (*Answer[List[Grant]], error) {
		list, err := s.rules.ListGrants(ctx, by, in.CompanyID, in.page())
		return listOf(list, err, grantOf)
	})
	register(s, endpoint{
		id: "createGrant", method: http.MethodPost, path: "/api/companies/{companyId}/grants", tag: "companies",
		status: http.StatusCreated, summary: "Permit a user or an agent something", doc: "For operators.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		IdempotencyKey
		Body GrantCreate
	},
	) (*Answer[Grant], error) {
		grant, err := s.rules.CreateGrant(ctx, by, in.CompanyID, authority.GrantInput{
			PrincipalType: string(in.Body.PrincipalType), PrincipalID: in.Body.PrincipalID,
			PermissionKey: string(in.Body.PermissionKey), Scope: in.Body.Scope.raw(),
		}, in.once(ctx))
		return answer(grant, err, grantOf)
	})
}
