package authority

import (
	"context"

	"github.com/google/uuid"

	"berth/db"
)

// AccessQuestion asks whether an actor may do something, without doing it.
type AccessQuestion struct {
	Actor    *AccessActor // nil means the caller
	Action   string
	Resource AccessResource
}

// AccessActor is who is asked about: an agent of a company (by one of its runs, or by any), or a
// user. Source is "" or agent_jwt, which is how agents come.
type AccessActor struct {
	Type      string
	Source    string
	CompanyID *uuid.UUID
	AgentID   *uuid.UUID
	RunID     *uuid.UUID
	UserID    *uuid.UUID
}

// AccessResource is what is asked about. The action says which id is looked at: that of the
// company, project, issue or workspace in its name. CompanyID, where it is given beside another id,
// must be that one's company.
type AccessResource struct {
	Type        string
	CompanyID   *uuid.UUID
	ProjectID   *uuid.UUID
	IssueID     *uuid.UUID
	WorkspaceID *uuid.UUID
}

// AccessDecision is the answer. Reason is the stable name of the rule that decided, Explanation the
// same for people.
type AccessDecision struct {
	Allowed     bool
	Action      string
	Reason      string
	Explanation string
}

// The actions that can be asked about.
const (
	actionReadCompany      = "company:read"
	actionReadProject      = "project:read"
	actionWriteProject     = "project:write_workspace"
	actionReadIssue        = "issue:read"
	actionMutateIssue      = "issue:mutate"
	actionReadWorkspace    = "workspace:read"
	actionReserveWorkspace = "workspace:reserve"
	actionManageWorkspace  = "workspace:manage"
)

var (
	accessActions = []string{
		actionReadCompany, actionReadProject, actionWriteProject, actionReadIssue, actionMutateIssue,
		actionReadWorkspace, actionReserveWorkspace, actionManageWorkspace,
	}
	resourceTypes = []string{"company", "project", "issue", "workspace"}
)

// DecideAccess answers the question. What does not exist is a denial and no error, and reads like
// what the actor may not see. An operator asks about anybody; others only about themselves:
// ErrNotAllowed.
func (s *Service) DecideAccess(ctx context.Context, by Principal, question AccessQuestion) (AccessDecision, error) {
	if by.Role == RoleRecovery {
		return AccessDecision{}, errRecoveryOnly
	}
	if err := question.validate(); err != nil {
		return AccessDecision{}, err
	}
	actor, err := question.subject(by)
	if err != nil {
		return AccessDecision{}, err
	}
	deciding := accessRules{service: s, q: s.pool, actor: actor, about: question.Resource}
	ruled, err := deciding.rule(ctx, question.Action)
	if err != nil {
		return AccessDecision{}, err
	}
	return AccessDecision{
		Allowed: ruled.allowed, Action: question.Action, Reason: ruled.reason, Explanation: ruled.explanation,
	}, nil
}

func (q AccessQuestion) validate() error {
	refused := validation{}
	refused.text("body.action", q.Action)
	refused.oneOf("body.action", q.Action, accessActions)
	refused.text("body.resource.type", q.Resource.Type)
	refused.oneOf("body.resource.type", q.Resource.Type, resourceTypes)
	q.checkResource(&refused)
	if q.Actor != nil {
		q.Actor.check(&refused)
	}
	return refused.err()
}

// checkResource wants the id that the action is about.
func (q AccessQuestion) checkResource(refused *validation) {
	id, location := q.Resource.CompanyID, "body.resource.companyId"
	switch q.Action {
	case actionReadProject, actionWriteProject:
		id, location = q.Resource.ProjectID, "body.resource.projectId"
	case actionReadIssue, actionMutateIssue:
		id, location = q.Resource.IssueID, "body.resource.issueId"
	case actionReadWorkspace, actionReserveWorkspace, actionManageWorkspace:
		id, location = q.Resource.WorkspaceID, "body.resource.workspaceId"
	}
	if id == nil {
		refused.add(location, "is needed: the action is about it")
	}
}

func (a AccessActor) check(refused *validation) {
	refused.text("body.actor.type", a.Type)
	refused.oneOf("body.actor.type", a.Type, principalTypes)
	if a.Source != "" && a.Source != "agent_jwt" {
		refused.add("body.actor.source", "is none of agent_jwt")
	}
	switch a.Type {
	case "agent":
		if a.CompanyID == nil {
			refused.add("body.actor.companyId", "is needed: an agent acts inside its company")
		}
		if a.AgentID == nil {
			refused.add("body.actor.agentId", "is needed")
		}
	case "user":
		if a.UserID == nil {
			refused.add("body.actor.userId", "is needed")
		}
	}
}

// subject is the principal that the question is about.
func (q AccessQuestion) subject(by Principal) (Principal, error) {
	switch {
	case q.Actor == nil || q.Actor.is(by):
		return by, nil
	case by.Role != RoleOperator:
		return Principal{}, ErrNotAllowed.Say("Only an operator asks what another actor may do.")
	case q.Actor.Type == "user":
		return Principal{Role: RoleMember, UserID: *q.Actor.UserID}, nil
	case q.Actor.RunID == nil:
		return Principal{Role: roleAgent, CompanyID: *q.Actor.CompanyID, AgentID: *q.Actor.AgentID}, nil
	default:
		return Principal{
			Role: RoleRun, CompanyID: *q.Actor.CompanyID, AgentID: *q.Actor.AgentID, RunID: *q.Actor.RunID,
		}, nil
	}
}

// is reports whether the actor is the caller itself.
func (a AccessActor) is(by Principal) bool {
	switch by.Role {
	case RoleRun:
		return a.Type == "agent" && *a.CompanyID == by.CompanyID && *a.AgentID == by.AgentID &&
			(a.RunID == nil || *a.RunID == by.RunID)
	case RoleMember:
		return a.Type == "user" && *a.UserID == by.UserID
	default:
		return false
	}
}

// requireProjectWorkspaceWrite refuses with ErrNotAllowed, and says by which rule, whoever may not
// let the task write into the files that a project's tasks share; ErrProjectNotFound: the principal
// may not read that project. A run is asked about as the agent that it is of, so that a choice can
// be judged again when the run that made it has ended; that a calling run is running is for the
// verb to ask.
func (s *Service) requireProjectWorkspaceWrite(
	ctx context.Context, q db.DBTX, by Principal, task db.Issue, project uuid.UUID,
) error {
	if by.Role == RoleRun {
		by.Role = roleAgent
	}
	row, err := s.readableProject(ctx, q, by, project)
	if err != nil {
		return err
	}
	deciding := accessRules{service: s, q: q, actor: by, about: AccessResource{ProjectID: &project}}
	ruled, err := deciding.writeProject(ctx, row, &task)
	switch {
	case err != nil:
		return err
	case !ruled.allowed:
		return ErrNotAllowed.Say("%s", ruled.explanation)
	default:
		return nil
	}
}
