package authority

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"berth/db"
)

// accessRules decides what one actor may do with one resource. The rules are those that the verbs
// themselves ask.
type accessRules struct {
	service *Service
	q       db.DBTX
	actor   Principal
	about   AccessResource
}

// ruling is a rule, and what follows from it.
type ruling struct {
	allowed bool
	rule
}

func allow(reason, explanation string) ruling { return ruling{true, rule{reason, explanation}} }
func deny(reason, explanation string) ruling  { return ruling{false, rule{reason, explanation}} }

// The rules that more than one action knows.
var (
	operatorMay     = allow("operator", "An operator reads and writes everything.")
	auditorReads    = allow("auditor", "An auditor reads everything.")
	agentReads      = allow("company_agent", "An agent reads inside its company.")
	memberMay       = allow("company_member", "An active member of the company may.")
	auditorReadOnly = deny("auditor_reads_only", "An auditor reads, and writes nothing.")
	notReadable     = deny("not_readable", "There is no such resource, or the actor may not read it.")
	actorInactive   = deny("actor_inactive",
		"The company has no such agent, or the run is not one of it that is running.")
)

// rule decides one action.
func (d accessRules) rule(ctx context.Context, action string) (ruling, error) {
	active, err := d.actorIsActive(ctx)
	if err != nil || !active {
		return actorInactive, err
	}
	switch action {
	case actionReadCompany:
		return d.readCompany(ctx)
	case actionReadProject, actionWriteProject:
		return d.aboutProject(ctx, action)
	case actionReadIssue, actionMutateIssue:
		return d.aboutIssue(ctx, action)
	default:
		return d.aboutWorkspace(ctx, action)
	}
}

// actorIsActive is false for an agent that is not of the company it claims, and for a run that is
// not running. Of others nothing is asked.
func (d accessRules) actorIsActive(ctx context.Context) (bool, error) {
	if d.actor.Role != RoleRun && d.actor.Role != roleAgent {
		return true, nil
	}
	err := d.service.requireCompanyRead(ctx, d.q, d.actor, d.actor.CompanyID)
	if errors.Is(err, ErrCompanyNotFound) {
		return false, nil
	}
	return err == nil, err
}

// mayRead is the rule by which the actor reads what it can read.
func (d accessRules) mayRead() ruling {
	switch d.actor.Role {
	case RoleOperator:
		return operatorMay
	case RoleAuditor:
		return auditorReads
	case RoleMember:
		return memberMay
	default:
		return agentReads
	}
}

// elsewhere reports whether the question names another company than the resource is of.
func (d accessRules) elsewhere(company uuid.UUID) bool {
	return d.about.CompanyID != nil && *d.about.CompanyID != company
}

func (d accessRules) readCompany(ctx context.Context) (ruling, error) {
	err := d.service.requireCompanyRead(ctx, d.q, d.actor, *d.about.CompanyID)
	if errors.Is(err, ErrCompanyNotFound) {
		return notReadable, nil
	}
	return d.mayRead(), err
}

func (d accessRules) aboutProject(ctx context.Context, action string) (ruling, error) {
	project, err := d.service.readableProject(ctx, d.q, d.actor, *d.about.ProjectID)
	if errors.Is(err, ErrProjectNotFound) || (err == nil && d.elsewhere(project.CompanyID)) {
		return notReadable, nil
	}
	if err != nil || action == actionReadProject {
		return d.mayRead(), err
	}
	var issue *db.Issue
	if d.about.IssueID != nil {
		row, err := d.service.readableIssue(ctx, d.q, d.actor, *d.about.IssueID)
		switch {
		case err == nil && row.CompanyID == project.CompanyID:
			issue = &row
		case err != nil && !errors.Is(err, ErrIssueNotFound):
			return ruling{}, err
		}
	}
	return d.writeProject(ctx, project, issue)
}

// writeProject decides whether the actor may let a task write into the shared files of a project
// that it can read. Only that project's policy is looked at; the task (nil if unknown) counts where
// a grant is limited to some tasks.
func (d accessRules) writeProject(ctx context.Context, project db.Project, issue *db.Issue) (ruling, error) {
	switch d.actor.Role {
	case RoleOperator:
		return operatorMay, nil
	case RoleAuditor:
		return auditorReadOnly, nil
	}
	at, err := d.service.standing(ctx, d.q, d.actor, project.CompanyID)
	if err != nil {
		return ruling{}, err
	}
	if r := at.mayNotWrite(); r != nil {
		return ruling{false, *r}, nil
	}
	mode, err := assignmentMode(project.ExecutionWorkspacePolicy)
	switch {
	case err != nil:
		return deny("policy_unreadable", "The project's assignment policy cannot be read, so nobody but an operator may."), nil //nolint:nilerr // that it cannot be read is the ruling
	case mode == assignmentProtected:
		return d.grantFor(ctx, project, issue)
	default:
		return allow("company_default", "The project leaves it to the active members of the company."), nil
	}
}

// grantFor looks for a grant that opens a protected project to the actor.
func (d accessRules) grantFor(ctx context.Context, project db.Project, issue *db.Issue) (ruling, error) {
	kind, id := d.actor.reader()
	grants, err := d.service.queries.ListGrantsOfPrincipal(ctx, d.q, db.ListGrantsOfPrincipalParams{
		CompanyID: project.CompanyID, PrincipalType: kind, PrincipalID: id,
	})
	if err != nil {
		return ruling{}, fmt.Errorf("read the grants: %w", err)
	}
	for _, grant := range grants {
		if grant.PermissionKey == permissionAssign {
			return allow("grant_tasks_assign", "A grant of "+permissionAssign+" opens the protected project."), nil
		}
		matches, err := d.scopeMatches(ctx, grant, project, issue)
		if err != nil {
			return ruling{}, err
		}
		if matches {
			return allow("grant_tasks_assign_scope", "A grant of "+permissionAssignScope+" covers this in the protected project."), nil
		}
	}
	return deny("protected_project",
		"The project is protected, and no grant of "+permissionAssign+" or "+permissionAssignScope+" covers this."), nil
}

// scopeMatches reports whether everything that the grant is limited to holds. A scope that cannot
// be read matches nothing.
func (d accessRules) scopeMatches(ctx context.Context, grant db.PermissionGrant, project db.Project, issue *db.Issue) (bool, error) {
	if grant.PermissionKey != permissionAssignScope {
		return false, nil
	}
	scope, err := parseScope(grant.Scope)
	if err != nil {
		return false, nil //nolint:nilerr // it grants nothing
	}
	if scope.ProjectID != nil && *scope.ProjectID != project.ID {
		return false, nil
	}
	if scope.AgentID != nil && (issue == nil || issue.AssigneeAgentID == nil || *issue.AssigneeAgentID != *scope.AgentID) {
		return false, nil
	}
	if scope.SubtreeOf == nil {
		return true, nil
	}
	if issue == nil {
		return false, nil
	}
	below, err := d.service.queries.IsIssueBelow(ctx, d.q, db.IsIssueBelowParams{
		CompanyID: project.CompanyID, IssueID: issue.ID, RootID: *scope.SubtreeOf,
	})
	if err != nil {
		return false, fmt.Errorf("look at the tasks above: %w", err)
	}
	return below, nil
}

func (d accessRules) aboutIssue(ctx context.Context, action string) (ruling, error) {
	issue, err := d.service.readableIssue(ctx, d.q, d.actor, *d.about.IssueID)
	if errors.Is(err, ErrIssueNotFound) || (err == nil && d.elsewhere(issue.CompanyID)) {
		return notReadable, nil
	}
	if err != nil || action == actionReadIssue {
		return d.mayRead(), err
	}
	if d.actor.Role != RoleRun && d.actor.Role != roleAgent {
		return d.mayWrite(ctx, issue.CompanyID)
	}
	own, err := d.service.queries.IsRunningOnIssue(ctx, d.q, db.IsRunningOnIssueParams{
		CompanyID: issue.CompanyID, AgentID: d.actor.AgentID, IssueID: issue.ID, RunID: d.actor.readerRun(),
	})
	switch {
	case err != nil:
		return ruling{}, fmt.Errorf("look for a run of the task: %w", err)
	case own:
		return allow("own_task", "A running run changes the task that it is for."), nil
	default:
		return deny("not_own_task", "An agent changes only the task that a running run of it is for."), nil
	}
}

func (d accessRules) aboutWorkspace(ctx context.Context, action string) (ruling, error) {
	workspace, err := d.service.readableWorkspace(ctx, d.q, d.actor, *d.about.WorkspaceID)
	if errors.Is(err, ErrWorkspaceNotFound) || (err == nil && d.elsewhere(workspace.CompanyID)) {
		return notReadable, nil
	}
	switch {
	case err != nil || action == actionReadWorkspace:
		return d.mayRead(), err
	case action == actionReserveWorkspace:
		return d.reserveWorkspace(ctx, workspace)
	default:
		return d.mayWrite(ctx, workspace.CompanyID)
	}
}

// reserveWorkspace decides whether a run of the actor could ask for the workspace at all. Whether it
// would get it is not a question of access, and is what an explanation of the reservation says.
func (d accessRules) reserveWorkspace(ctx context.Context, workspace db.ExecutionWorkspace) (ruling, error) {
	switch d.actor.Role {
	case RoleOperator:
		return operatorMay, nil
	case RoleRun, roleAgent:
	default:
		return deny("runs_reserve", "A run reserves, with its own token, or an operator for it."), nil
	}
	bound, err := d.service.queries.IsRunningOnTaskOfWorkspace(ctx, d.q, db.IsRunningOnTaskOfWorkspaceParams{
		CompanyID: workspace.CompanyID, AgentID: d.actor.AgentID, WorkspaceID: workspace.ID, RunID: d.actor.readerRun(),
	})
	switch {
	case err != nil:
		return ruling{}, fmt.Errorf("look for a run of the workspace's tasks: %w", err)
	case bound:
		return allow("own_task_bound", "A running run reserves the workspace that its task is bound to."), nil
	default:
		return deny("task_not_bound", "No running run of the agent is for a task that is bound to the workspace."), nil
	}
}

// mayWrite is the rule for what operators and the company's writing members may change.
func (d accessRules) mayWrite(ctx context.Context, company uuid.UUID) (ruling, error) {
	switch d.actor.Role {
	case RoleOperator:
		return operatorMay, nil
	case RoleAuditor:
		return auditorReadOnly, nil
	case RoleMember:
	default:
		return deny("agents_do_not_manage", "An agent uses workspaces by reserving them, and manages none."), nil
	}
	at, err := d.service.standing(ctx, d.q, d.actor, company)
	if err != nil {
		return ruling{}, err
	}
	if r := at.mayNotWrite(); r != nil {
		return ruling{false, *r}, nil
	}
	return memberMay, nil
}
