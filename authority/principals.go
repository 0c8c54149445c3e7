package authority

import (
	"time"

	"github.com/google/uuid"
)

// Role is what a caller is, before anything is known about the thing it asks for.
type Role string

// The roles. Operators administer the instance; members are users with memberships; auditors
// read everything and write nothing; a run is known by the token it was handed.
const (
	RoleOperator Role = "operator"
	RoleMember   Role = "member"
	RoleAuditor  Role = "auditor"
	RoleRun      Role = "run"
)

// roleAgent is an agent as such, by none of its runs. Nobody is authenticated as one; access
// decisions are asked about one.
const roleAgent Role = "agent"

// Principal is an authenticated caller. CompanyID, AgentID and RunID are set for a run, UserID for
// a member (and where an operator's token names its user), TokenID for all but runs. A run's token
// also says when it was issued and until when it is authentic; for others both are zero.
type Principal struct {
	Role           Role
	TokenID        uuid.UUID
	UserID         uuid.UUID
	CompanyID      uuid.UUID
	AgentID        uuid.UUID
	RunID          uuid.UUID
	TokenIssuedAt  time.Time
	TokenExpiresAt time.Time
}

// Actor is how history names the principal: "run:<id>" or "token:<id>".
func (p Principal) Actor() string {
	if p.Role == RoleRun {
		return "run:" + p.RunID.String()
	}
	return "token:" + p.TokenID.String()
}

// ReadsAll reports whether nothing in the instance is hidden from the principal.
func (p Principal) ReadsAll() bool { return p.Role == RoleOperator || p.Role == RoleAuditor }

// reader is the principal as the SQL functions principal_reads_… take it.
func (p Principal) reader() (principalType string, id uuid.UUID) {
	switch p.Role {
	case RoleOperator, RoleAuditor:
		return "all", uuid.Nil
	case RoleRun, roleAgent:
		return "agent", p.AgentID
	default:
		return "user", p.UserID
	}
}

// readerRun is the run that the principal reads by, as the SQL function principal_reads_company
// takes it: nil for all but runs.
func (p Principal) readerRun() *uuid.UUID {
	if p.Role != RoleRun {
		return nil
	}
	return &p.RunID
}

// requireOperator refuses everybody but operators.
func (p Principal) requireOperator() error {
	if p.Role != RoleOperator {
		return ErrNotAllowed
	}
	return nil
}
