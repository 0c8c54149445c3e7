package authority

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"
)

const protectedPolicy = `{"authorizationPolicy": {"assignmentPolicy": {"mode": "protected"}}}`

// decides asks as the given caller, and fails the test unless the answer and its rule are these.
func (d *directory) decides(what string, by Principal, question AccessQuestion, allowed bool, reason string) {
	d.t.Helper()
	answer, err := d.DecideAccess(d.t.Context(), by, question)
	switch {
	case err != nil:
		d.t.Errorf("%s: %v", what, err)
	case answer.Allowed != allowed || answer.Reason != reason:
		d.t.Errorf("%s: allowed %v by %s, want %v by %s", what, answer.Allowed, answer.Reason, allowed, reason)
	case answer.Action != question.Action || answer.Explanation == "":
		d.t.Errorf("%s: the answer is about %q and explains %q", what, answer.Action, answer.Explanation)
	}
}

func agentActor(company, agent uuid.UUID, run *uuid.UUID) *AccessActor {
	return &AccessActor{Type: "agent", Source: "agent_jwt", CompanyID: &company, AgentID: &agent, RunID: run}
}

func writeProject(company, project uuid.UUID) AccessQuestion {
	return AccessQuestion{
		Action:   "project:write_workspace",
		Resource: AccessResource{Type: "issue", CompanyID: &company, ProjectID: &project},
	}
}

func TestAMemberAgentWithoutAGrantReadsAProtectedProjectAndDoesNotWriteIt(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	agent := d.agent(company)
	d.membership(company, PrincipalRef{Type: "agent", ID: agent}, "member", "active")
	project := d.project(company, ProjectInput{ExecutionWorkspacePolicy: json.RawMessage(protectedPolicy)})
	run := d.run(company, agent, nil, "running")
	read := AccessQuestion{Action: "project:read", Resource: AccessResource{Type: "project", CompanyID: &company, ProjectID: &project}}
	write := writeProject(company, project)

	d.decides("the agent itself reads", run, read, true, "company_agent")
	d.decides("the agent itself writes", run, write, false, "protected_project")
	for what, actor := range map[string]*AccessActor{
		"the agent by its run": agentActor(company, agent, &run.RunID), "the agent": agentActor(company, agent, nil),
	} {
		read.Actor, write.Actor = actor, actor
		d.decides("an operator asks whether "+what+" reads", d.operator, read, true, "company_agent")
		d.decides("an operator asks whether "+what+" writes", d.operator, write, false, "protected_project")
	}
}

func TestWhoWritesAProjectFollowsFromItsPolicyAlone(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	member, viewer := d.user(company, "member", "active"), d.user(company, "viewer", "active")
	granted := d.user(company, "member", "active")
	agent := d.agent(company)
	outsider := d.run(company, agent, nil, "running") // its agent has no membership
	must(d.CreateGrant(t.Context(), d.operator, company,
		GrantInput{PrincipalType: "user", PrincipalID: granted.UserID, PermissionKey: "tasks:assign"}, Once{}))(t)
	must(d.CreateGrant(t.Context(), d.operator, company,
		GrantInput{PrincipalType: "agent", PrincipalID: agent, PermissionKey: "tasks:assign"}, Once{}))(t)

	for policy, want := range map[string]struct {
		allowed           bool
		member, withGrant string
	}{
		``:                                      {true, "company_default", "company_default"},
		`{}`:                                    {true, "company_default", "company_default"},
		`{"enabled": false}`:                    {true, "company_default", "company_default"},
		`{"authorizationPolicy": null}`:         {true, "company_default", "company_default"},
		`{"authorizationPolicy": {"other": 1}}`: {true, "company_default", "company_default"},
		`{"AuthorizationPolicy": {"assignmentPolicy": {"mode": "protected"}}}`:       {true, "company_default", "company_default"},
		`{"authorizationPolicy": {"assignmentPolicy": {"mode": "company_default"}}}`: {true, "company_default", "company_default"},
		protectedPolicy: {false, "protected_project", "grant_tasks_assign"},
		`{"enabled": false, "authorizationPolicy": {"assignmentPolicy": {"mode": "protected", "x": 1}}}`: {false, "protected_project", "grant_tasks_assign"},
		`{"authorizationPolicy": "garbled"}`:                                   {false, "policy_unreadable", "policy_unreadable"},
		`{"authorizationPolicy": {"assignmentPolicy": ["protected"]}}`:         {false, "policy_unreadable", "policy_unreadable"},
		`{"authorizationPolicy": {"assignmentPolicy": {}}}`:                    {false, "policy_unreadable", "policy_unreadable"},
		`{"authorizationPolicy": {"assignmentPolicy": {"mode": null}}}`:        {false, "policy_unreadable", "policy_unreadable"},
		`{"authorizationPolicy": {"assignmentPolicy": {"mode": 7}}}`:           {false, "policy_unreadable", "policy_unreadable"},
		`{"authorizationPolicy": {"assignmentPolicy": {"mode": "Protected"}}}`: {false, "policy_unreadable", "policy_unreadable"},
	} {
		in := ProjectInput{}
		if policy != "" {
			in.ExecutionWorkspacePolicy = json.RawMessage(policy)
		}
		question := writeProject(company, d.project(company, in))
		d.decides("member, "+policy, member, question, want.allowed, want.member)
		d.decides("with a grant, "+policy, granted, question, want.withGrant != "policy_unreadable", want.withGrant)
		d.decides("viewer, "+policy, viewer, question, false, "viewer_reads_only")
		d.decides("no member, "+policy, outsider, question, false, "membership_required")
		d.decides("operator, "+policy, d.operator, question, true, "operator")
		d.decides("auditor, "+policy, Principal{Role: RoleAuditor, TokenID: uuid.New()}, question, false, "auditor_reads_only")
	}
}

func TestAPolicyThatIsNoObjectOpensNothing(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	member := d.user(company, "member", "active")
	project := d.project(company, ProjectInput{})
	d.asOwner(`UPDATE projects SET execution_workspace_policy = '"protected"' WHERE id = $1`, project)
	d.decides("a text for a policy", member, writeProject(company, project), false, "policy_unreadable")
	d.asOwner(`UPDATE projects SET execution_workspace_policy = 'null' WHERE id = $1`, project)
	d.decides("a JSON null for a policy", member, writeProject(company, project), true, "company_default")
}

func TestAGrantWithoutAnActiveMembershipOpensNothing(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	agent := d.agent(company)
	must(d.CreateGrant(t.Context(), d.operator, company,
		GrantInput{PrincipalType: "agent", PrincipalID: agent, PermissionKey: "tasks:assign"}, Once{}))(t)
	question := writeProject(company, d.project(company, ProjectInput{ExecutionWorkspacePolicy: json.RawMessage(protectedPolicy)}))
	run := d.run(company, agent, nil, "running")
	d.decides("no membership", run, question, false, "membership_required")
	for _, status := range []string{"pending", "suspended", "archived"} {
		d.membership(company, PrincipalRef{Type: "agent", ID: agent}, "member", status)
		d.decides(status, run, question, false, "membership_required")
	}
	d.membership(company, PrincipalRef{Type: "agent", ID: agent}, "member", "active")
	d.decides("active", run, question, true, "grant_tasks_assign")
}

func TestAScopedGrantOpensOnlyWhatItsScopeCovers(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	policy := ProjectInput{ExecutionWorkspacePolicy: json.RawMessage(protectedPolicy)}
	project, another := d.project(company, policy), d.project(company, policy)
	assignee := d.agent(company)
	root := d.issue(company)
	child := d.issue(company, "parent_id", root, "assignee_agent_id", assignee)
	grandchild := d.issue(company, "parent_id", child)
	sibling := d.issue(company)
	ids := map[string]uuid.UUID{
		"$project": project, "$another": another, "$agent": assignee, "$root": root, "$child": child, "$grandchild": grandchild,
	}
	for _, c := range []struct {
		scope   string
		project uuid.UUID
		issue   *uuid.UUID
		allowed bool
	}{
		{`{"projectId": "$project"}`, project, nil, true},
		{`{"projectId": "$project"}`, another, nil, false},
		{`{"agentId": "$agent"}`, project, &child, true},
		{`{"agentId": "$agent"}`, project, &root, false},
		{`{"agentId": "$agent"}`, project, nil, false},
		{`{"subtreeOf": "$root"}`, project, &root, true},
		{`{"subtreeOf": "$root"}`, project, &grandchild, true},
		{`{"subtreeOf": "$root"}`, project, &sibling, false},
		{`{"subtreeOf": "$grandchild"}`, project, &child, false},
		{`{"subtreeOf": "$root"}`, project, nil, false},
		{`{"projectId": "$project", "agentId": "$agent", "subtreeOf": "$root"}`, project, &child, true},
		{`{"projectId": "$another", "agentId": "$agent", "subtreeOf": "$root"}`, project, &child, false},
		{`{"projectId": "$project", "agentId": "$agent", "subtreeOf": "$grandchild"}`, project, &child, false},
		{`{}`, project, &child, false},
		{`{"projectId": null}`, project, &child, false},
		{`{"projectId": "$project", "region": "eu"}`, project, &child, false},
		{`{"projectId": ["$project"]}`, project, &child, false},
		{`{"projectId": "garbled"}`, project, &child, false},
	} {
		scope := c.scope
		for name, id := range ids {
			scope = strings.ReplaceAll(scope, name, id.String())
		}
		member := d.user(company, "member", "active")
		// As it may stand in a database that another program wrote: the service refuses to make some of these.
		d.insert("permission_grants", "company_id", company, "principal_type", "user", "principal_id", member.UserID,
			"permission_key", "tasks:assign_scope", "scope", json.RawMessage(scope))
		question := writeProject(company, c.project)
		question.Resource.IssueID = c.issue
		reason := "protected_project"
		if c.allowed {
			reason = "grant_tasks_assign_scope"
		}
		d.decides(c.scope, member, question, c.allowed, reason)
	}
}

func TestAnAgentReadsInsideItsCompanyAndIsDeniedElsewhere(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	own, other := d.company(), d.company()
	agent := d.agent(own)
	run := d.run(own, agent, nil, "running")
	for _, c := range []struct {
		company uuid.UUID
		allowed bool
		reason  string
	}{{own, true, "company_agent"}, {other, false, "not_readable"}} {
		project, issue, workspace := d.project(c.company, ProjectInput{}), d.issue(c.company), d.workspace(c.company)
		for _, question := range []AccessQuestion{
			{Action: "company:read", Resource: AccessResource{Type: "company", CompanyID: &c.company}},
			{Action: "project:read", Resource: AccessResource{Type: "project", ProjectID: &project}},
			{Action: "issue:read", Resource: AccessResource{Type: "issue", IssueID: &issue}},
			{Action: "workspace:read", Resource: AccessResource{Type: "workspace", WorkspaceID: &workspace}},
		} {
			d.decides(question.Action, run, question, c.allowed, c.reason)
			question.Actor = agentActor(own, agent, nil)
			d.decides(question.Action+", asked by an operator", d.operator, question, c.allowed, c.reason)
		}
	}
}

func TestWhatIsUnknownIsDeniedLikeWhatIsHidden(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company, other := d.company(), d.company()
	member := d.user(company, "owner", "active")
	unknown, elsewhere := uuid.New(), d.project(other, ProjectInput{})
	hidden, open := d.project(company, ProjectInput{Visibility: "private"}), d.project(company, ProjectInput{})
	for what, resource := range map[string]AccessResource{
		"unknown":                          {Type: "project", ProjectID: &unknown},
		"of another company":               {Type: "project", ProjectID: &elsewhere},
		"private to others":                {Type: "project", ProjectID: &hidden},
		"said to be of another company":    {Type: "project", ProjectID: &open, CompanyID: &other},
		"unknown, said to be of this one":  {Type: "project", ProjectID: &unknown, CompanyID: &company},
		"hidden, and its company is known": {Type: "project", ProjectID: &hidden, CompanyID: &company},
	} {
		for _, action := range []string{"project:read", "project:write_workspace"} {
			d.decides(what, member, AccessQuestion{Action: action, Resource: resource}, false, "not_readable")
		}
	}
	for _, question := range []AccessQuestion{
		{Action: "company:read", Resource: AccessResource{Type: "company", CompanyID: &unknown}},
		{Action: "issue:mutate", Resource: AccessResource{Type: "issue", IssueID: &unknown}},
		{Action: "workspace:manage", Resource: AccessResource{Type: "workspace", WorkspaceID: &unknown}},
	} {
		d.decides(question.Action, d.operator, question, false, "not_readable")
	}
}

func TestAnActorThatIsNoneOfTheCompanysIsDeniedEverything(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company, other := d.company(), d.company()
	agent, colleague := d.agent(company), d.agent(company)
	ended := d.run(company, agent, nil, "succeeded")
	colleagues := d.run(company, colleague, nil, "running")
	unknown := uuid.New()
	for what, actor := range map[string]*AccessActor{
		"an unknown agent":      agentActor(company, unknown, nil),
		"an agent of elsewhere": agentActor(company, d.agent(other), nil),
		"an unknown company":    agentActor(unknown, agent, nil),
		"a run that ended":      agentActor(company, agent, &ended.RunID),
		"an unknown run":        agentActor(company, agent, &unknown),
		"a colleague's run":     agentActor(company, agent, &colleagues.RunID),
	} {
		d.decides(what, d.operator, AccessQuestion{
			Actor: actor, Action: "company:read", Resource: AccessResource{Type: "company", CompanyID: &company},
		}, false, "actor_inactive")
	}
	d.decides("a run that ended, by itself", ended, AccessQuestion{
		Action: "company:read", Resource: AccessResource{Type: "company", CompanyID: &company},
	}, false, "actor_inactive")
}

func TestOnlyAnOperatorAsksAboutOthers(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	agent := d.agent(company)
	run, colleague := d.run(company, agent, nil, "running"), d.run(company, d.agent(company), nil, "running")
	member := d.user(company, "owner", "active")
	question := AccessQuestion{Action: "company:read", Resource: AccessResource{Type: "company", CompanyID: &company}}
	ask := func(by Principal, actor *AccessActor) error {
		question.Actor = actor
		_, err := d.DecideAccess(t.Context(), by, question)
		return err
	}
	itself := agentActor(company, agent, &run.RunID)
	user := &AccessActor{Type: "user", UserID: &member.UserID}
	wantRefusal(t, "a run about itself", ask(run, itself), nil)
	wantRefusal(t, "a run about its agent", ask(run, agentActor(company, agent, nil)), nil)
	wantRefusal(t, "a run about a colleague", ask(run, agentActor(company, colleague.AgentID, nil)), ErrNotAllowed)
	wantRefusal(t, "a run about a user", ask(run, user), ErrNotAllowed)
	wantRefusal(t, "a user about itself", ask(member, user), nil)
	wantRefusal(t, "a user about an agent", ask(member, itself), ErrNotAllowed)
	wantRefusal(t, "an auditor about an agent", ask(Principal{Role: RoleAuditor, TokenID: uuid.New()}, itself), ErrNotAllowed)
	wantRefusal(t, "an operator about a user", ask(d.operator, user), nil)
	question.Actor = user
	d.decides("an operator about a user", d.operator, question, true, "company_member")
}

func TestARunChangesAndReservesForTheTaskThatItIsFor(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	agent := d.agent(company)
	workspace := d.workspace(company)
	own, other := d.issue(company, "execution_workspace_id", workspace), d.issue(company)
	run, idle := d.run(company, agent, &own, "running"), d.run(company, agent, nil, "running")
	elsewhere := d.workspace(company)

	mutate := func(issue uuid.UUID) AccessQuestion {
		return AccessQuestion{Action: "issue:mutate", Resource: AccessResource{Type: "issue", IssueID: &issue}}
	}
	use := func(action string, workspace uuid.UUID) AccessQuestion {
		return AccessQuestion{Action: action, Resource: AccessResource{Type: "workspace", WorkspaceID: &workspace}}
	}
	d.decides("its own task", run, mutate(own), true, "own_task")
	d.decides("another task", run, mutate(other), false, "not_own_task")
	d.decides("another run's task", idle, mutate(own), false, "not_own_task")
	d.decides("its task's workspace", run, use("workspace:reserve", workspace), true, "own_task_bound")
	d.decides("another workspace", run, use("workspace:reserve", elsewhere), false, "task_not_bound")
	d.decides("another run's workspace", idle, use("workspace:reserve", workspace), false, "task_not_bound")
	d.decides("managing", run, use("workspace:manage", workspace), false, "agents_do_not_manage")

	asked := mutate(own)
	asked.Actor = agentActor(company, agent, nil)
	d.decides("the agent, by any of its runs", d.operator, asked, true, "own_task")
}

func TestUsersChangeTasksAndManageWorkspacesAsTheirRoleGoes(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	issue, workspace := d.issue(company), d.workspace(company)
	mutate := AccessQuestion{Action: "issue:mutate", Resource: AccessResource{Type: "issue", IssueID: &issue}}
	manage := AccessQuestion{Action: "workspace:manage", Resource: AccessResource{Type: "workspace", WorkspaceID: &workspace}}
	reserve := AccessQuestion{Action: "workspace:reserve", Resource: AccessResource{Type: "workspace", WorkspaceID: &workspace}}
	member, viewer := d.user(company, "member", "active"), d.user(company, "viewer", "active")
	auditor := Principal{Role: RoleAuditor, TokenID: uuid.New()}
	for _, question := range []AccessQuestion{mutate, manage} {
		d.decides("operator, "+question.Action, d.operator, question, true, "operator")
		d.decides("member, "+question.Action, member, question, true, "company_member")
		d.decides("viewer, "+question.Action, viewer, question, false, "viewer_reads_only")
		d.decides("auditor, "+question.Action, auditor, question, false, "auditor_reads_only")
	}
	d.decides("operator reserves", d.operator, reserve, true, "operator")
	d.decides("member reserves", member, reserve, false, "runs_reserve")
	d.decides("auditor reserves", auditor, reserve, false, "runs_reserve")

	archived := "archived"
	must(d.UpdateCompany(t.Context(), d.operator, company, CompanyPatch{Status: &archived}))(t)
	d.decides("member of an archived company", member, mutate, false, "company_archived")
}

func TestAQuestionNamesItsActionActorAndResource(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	ask := func(question AccessQuestion) error {
		_, err := d.DecideAccess(t.Context(), d.operator, question)
		return err
	}
	wantField(t, "nothing", ask(AccessQuestion{}), "body.action", "body.resource.type", "body.resource.companyId")
	wantField(t, "unknown words", ask(AccessQuestion{Action: "issue:eat", Resource: AccessResource{Type: "cat"}}),
		"body.action", "body.resource.type", "body.resource.companyId")
	for action, field := range map[string]string{
		"company:read": "companyId", "project:read": "projectId", "project:write_workspace": "projectId",
		"issue:read": "issueId", "issue:mutate": "issueId", "workspace:read": "workspaceId",
		"workspace:reserve": "workspaceId", "workspace:manage": "workspaceId",
	} {
		wantField(t, action, ask(AccessQuestion{Action: action, Resource: AccessResource{Type: "issue"}}), "body.resource."+field)
	}
	id := uuid.New()
	company := AccessResource{Type: "company", CompanyID: &id}
	for _, c := range []struct {
		actor AccessActor
		wrong []string
	}{
		{AccessActor{}, []string{"body.actor.type"}},
		{AccessActor{Type: "agent"}, []string{"body.actor.companyId", "body.actor.agentId"}},
		{AccessActor{Type: "user"}, []string{"body.actor.userId"}},
		{AccessActor{Type: "user", UserID: &id, Source: "session"}, []string{"body.actor.source"}},
	} {
		wantField(t, "actor", ask(AccessQuestion{Actor: &c.actor, Action: "company:read", Resource: company}), c.wrong...)
	}
}
