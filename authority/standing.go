package authority

import (
	"context"

	"github.com/google/uuid"

	"berth/db"
)

// standing is what a principal is in one company.
type standing struct {
	companyArchived bool
	member          bool // the membership is there and active
	viewer          bool
}

// rule names why something is allowed or refused: a stable word, and a sentence for people.
type rule struct {
	reason      string
	explanation string
}

// standing looks up the company and the caller's membership there. ErrCompanyNotFound: there is no
// such company.
func (s *Service) standing(ctx context.Context, q db.DBTX, by Principal, company uuid.UUID) (standing, error) {
	kind, id := by.reader()
	row, err := s.queries.GetStanding(ctx, q, db.GetStandingParams{CompanyID: company, PrincipalType: kind, Principal: id})
	row, err = found(row, err, ErrCompanyNotFound, "read the membership")
	if err != nil {
		return standing{}, err
	}
	return standing{
		companyArchived: row.CompanyStatus == "archived",
		member:          row.MembershipStatus != nil && *row.MembershipStatus == "active",
		viewer:          row.MembershipRole != nil && *row.MembershipRole == "viewer",
	}, nil
}

// mayNotWrite is the rule that keeps a member from writing in the company, or nil.
func (at standing) mayNotWrite() *rule {
	switch {
	case at.companyArchived:
		return &rule{"company_archived", "The company is archived: an operator activates it first."}
	case !at.member:
		return &rule{"membership_required", "An active membership of the company is needed."}
	case at.viewer:
		return &rule{"viewer_reads_only", "A viewer reads and writes nothing."}
	default:
		return nil
	}
}
