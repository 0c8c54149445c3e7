package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// AccessGrant lets a user or an agent read a private task, and the private tasks below it.
type AccessGrant struct {
	CompanyID     uuid.UUID     `json:"companyId" format:"uuid"`
	IssueID       uuid.UUID     `json:"issueId" format:"uuid"`
	PrincipalType PrincipalType `json:"principalType"`
	PrincipalID   uuid.UUID     `json:"principalId" format:"uuid"`
	CreatedAt     Time          `json:"createdAt"`
}

func accessGrantOf(g authority.AccessGrant) AccessGrant {
	return AccessGrant{
		CompanyID: g.CompanyID, IssueID: g.IssueID, PrincipalType: PrincipalType(g.PrincipalType),
		PrincipalID: g.PrincipalID, CreatedAt: Time(g.CreatedAt),
	}
}

func (s *server) accessGrants() {
	const path = "/api/issues/{issueId}/access-grants"
	register(s, endpoint{
		id: "listAccessGrants", method: http.MethodGet, path: path, tag: "issues",
		summary: "List who else may read a private task",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		IssuePath
		PageQuery
	},
	) (*Answer[List[AccessGrant]], error) {
		list, err := s.rules.ListAccessGrants(ctx, by, in.IssueID, in.page())
		return listOf(list, err, accessGrantOf)
	})
	register(s, endpoint{
		id: "addAccessGrant", method: http.MethodPost, path: path, tag: "issues", status: http.StatusCreated,
		summary: "Let a user or an agent read a private task", doc: "For operators. Granting again answers the first grant.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		IssuePath
		Body Principal
	},
	) (*Answer[AccessGrant], error) {
		grant, err := s.rules.AddAccessGrant(ctx, by, in.IssueID, in.Body.ref())
		return answer(grant, err, accessGrantOf)
	})
	register(s, endpoint{
		id: "removeAccessGrant", method: http.MethodDelete, path: path, tag: "issues",
		summary: "Take such a grant back", doc: "For operators. Taking it back again changes nothing.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		IssuePath
		PrincipalType PrincipalType `query:"principalType" required:"true"`
		PrincipalID   uuid.UUID     `query:"principalId" required:"true" format:"uuid"`
	},
	) (*Nothing, error) {
		from := authority.PrincipalRef{Type: string(in.PrincipalType), ID: in.PrincipalID}
		if err := s.rules.RemoveAccessGrant(ctx, by, in.IssueID, from); err != nil {
			return nil, err
		}
		return &Nothing{}, nil
	})
}
