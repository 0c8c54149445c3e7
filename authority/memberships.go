package authority

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// Membership is what a principal is in a company. Only an active one counts; a viewer reads and
// writes nothing, and the other roles are the company's own words.
type Membership struct {
	ID             uuid.UUID
	CompanyID      uuid.UUID
	PrincipalType  string
	PrincipalID    uuid.UUID
	Status         string
	MembershipRole string
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

func membershipOf(row db.CompanyMembership) Membership {
	return Membership{
		ID: row.ID, CompanyID: row.CompanyID, PrincipalType: row.PrincipalType, PrincipalID: row.PrincipalID,
		Status: row.Status, MembershipRole: row.MembershipRole, CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt,
	}
}

// MembershipInput is what a membership is made from.
type MembershipInput struct {
	PrincipalType  string
	PrincipalID    uuid.UUID
	Status         string // "" means active
	MembershipRole string // "" means member
}

var (
	membershipStatuses = []string{"pending", "active", "suspended", "archived"}
	membershipRoles    = []string{"owner", "admin", "operator", "viewer", "member"}
)

// CreateMembership puts a principal's membership of a company: the one it has is changed to the new
// status and role, so this also suspends and restores. Operators only. ErrAgentNotFound: the company
// has no such agent.
func (s *Service) CreateMembership(
	ctx context.Context, by Principal, company uuid.UUID, in MembershipInput, once Once,
) (Membership, error) {
	if err := s.requireCompanyAdministration(ctx, s.pool, by, company); err != nil {
		return Membership{}, err
	}
	if in.Status == "" {
		in.Status = "active"
	}
	if in.MembershipRole == "" {
		in.MembershipRole = "member"
	}
	principal := PrincipalRef{Type: in.PrincipalType, ID: in.PrincipalID}
	refused := validation{}
	principal.check(&refused)
	refused.oneOf("body.status", in.Status, membershipStatuses)
	refused.oneOf("body.membershipRole", in.MembershipRole, membershipRoles)
	if err := refused.err(); err != nil {
		return Membership{}, err
	}
	membership, _, err := createOnce(ctx, s, by, &company, once, func(tx pgx.Tx) (Membership, error) {
		if err := s.requirePrincipal(ctx, tx, company, principal); err != nil {
			return Membership{}, err
		}
		row, err := s.queries.PutMembership(ctx, tx, db.PutMembershipParams{
			ID: newID(), CompanyID: company, PrincipalType: in.PrincipalType, PrincipalID: in.PrincipalID,
			Status: in.Status, MembershipRole: in.MembershipRole,
		})
		if err != nil {
			return Membership{}, fmt.Errorf("put a membership: %w", err)
		}
		return membershipOf(row), nil
	})
	return membership, err
}

// ListMemberships lists the memberships of a company, the oldest first.
func (s *Service) ListMemberships(
	ctx context.Context, by Principal, company uuid.UUID, page Page,
) (List[Membership], error) {
	after, err := page.after()
	if err != nil {
		return List[Membership]{}, err
	}
	if err := s.requireCompanyRead(ctx, s.pool, by, company); err != nil {
		return List[Membership]{}, err
	}
	params := db.ListMembershipsParams{CompanyID: company, Rows: page.rows()}
	params.AfterAt, params.AfterID = after.parts()
	rows, err := s.queries.ListMemberships(ctx, s.pool, params)
	if err != nil {
		return List[Membership]{}, fmt.Errorf("list memberships: %w", err)
	}
	return pageOf(page, rows, membershipOf, func(r db.CompanyMembership) place {
		return place{At: r.CreatedAt, ID: r.ID}
	}), nil
}

// check adds what is wrong with the reference.
func (p PrincipalRef) check(refused *validation) {
	refused.text("body.principalType", p.Type)
	refused.oneOf("body.principalType", p.Type, principalTypes)
	if p.ID == uuid.Nil {
		refused.add("body.principalId", "is the zero id, which nobody has")
	}
}

func (p PrincipalRef) validate() error {
	refused := validation{}
	p.check(&refused)
	return refused.err()
}

// requirePrincipal refuses with ErrAgentNotFound an agent that is not of the company. A user is
// known by the id alone.
func (s *Service) requirePrincipal(ctx context.Context, q db.DBTX, company uuid.UUID, principal PrincipalRef) error {
	if principal.Type != "agent" {
		return nil
	}
	return s.requireAgent(ctx, q, company, principal.ID)
}
