package authority

import (
	"time"

	"github.com/google/uuid"
)

// Role is what a caller is, before anything is known about the thing it asks for.
type Role string

// The roles. Operators administer the instance; members are users with memberships; auditors
// read everything and write nothing; a run is known by the token it was handed; a recovery saves in the name of one
// run that ended, and does nothing else.
const (
	RoleOperator Role = "operator"
	RoleMember   Role = "member"
	RoleAuditor  Role = "auditor"
	RoleRun      Role = "run"
	RoleRecovery Role = "recovery"
)

// roleAgent is an agent as such, by none of its runs. Nobody is authenticated as one; access
// decisions are asked about one.
const roleAgent Role = "agent"

// Principal is an authenticated caller. CompanyID, AgentID and RunID are set for a run, UserID for
// a member (and where an operator's token names its user), TokenID for all but runs. A run's token
// also says when it was issued and until when it is authentic; for others both are zero. A recovery has the
// CompanyID, RunID, WorkspaceID and Epoch of the tenure that it is for, and no more than that.
type Principal struct {
	Role           Role
	TokenID        uuid.UUID
	UserID         uuid.UUID
	CompanyID      uuid.UUID
	AgentID        uuid.UUID
	RunID          uuid.UUID
	TokenIssuedAt  time.Time
	TokenExpiresAt time.Time
	WorkspaceID    uuid.UUID
	Epoch          int64
	RiskAccepted   bool // an operator recovers, or lets recover, without proof: see AcceptingRisk
}

// AcceptingRisk is the principal as it goes on, or not, with a recovery of a writer that is not proven stopped. Only
// an operator decides that; with anybody else nothing changes.
func (p Principal) AcceptingRisk(accepts bool) Principal {
	if p.Role == RoleOperator {
		p.RiskAccepted = accepts
	}
	return p
}

// Actor is how history names the principal: "run:<id>", "recovery:<id>" or "token:<id>".
func (p Principal) Actor() string {
	switch p.Role {
	case RoleRun:
		return "run:" + p.RunID.String()
	case RoleRecovery:
		return "recovery:" + p.TokenID.String()
	default:
		return "token:" + p.TokenID.String()
	}
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
	case RoleRecovery:
		return "nobody", uuid.Nil
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
