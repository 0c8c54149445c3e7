package authority

import (
	"testing"

	"github.com/google/uuid"
)

func TestARunReadsItsOwnCompanyAndNoOther(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	own, other := d.company(), d.company()
	run := d.run(own, d.agent(own), nil, "running")
	foreign := d.project(other, ProjectInput{})

	wantRefusal(t, "own company", d.requireCompanyRead(t.Context(), d.pool, run, own), nil)
	wantRefusal(t, "other company", d.requireCompanyRead(t.Context(), d.pool, run, other), ErrCompanyNotFound)
	wantRefusal(t, "unknown company", d.requireCompanyRead(t.Context(), d.pool, run, uuid.New()), ErrCompanyNotFound)
	_, err := d.GetProject(t.Context(), run, foreign)
	wantRefusal(t, "other company's project", err, ErrProjectNotFound)

	seen := must(d.ListCompanies(t.Context(), run, Page{}))(t)
	if len(seen.Items) != 1 || seen.Items[0].ID != own {
		t.Errorf("the run lists %v, want its own company only", seen.Items)
	}
}

func TestATokenThatClaimsAnotherAgentOrCompanyReadsNothing(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	own, other := d.company(), d.company()
	run := d.run(own, d.agent(own), nil, "running")

	liar := run
	liar.AgentID = d.agent(own)
	wantRefusal(t, "another agent", d.requireCompanyRead(t.Context(), d.pool, liar, own), ErrCompanyNotFound)
	liar = run
	liar.CompanyID = other
	wantRefusal(t, "another company", d.requireCompanyRead(t.Context(), d.pool, liar, other), ErrCompanyNotFound)
	liar = run
	liar.RunID = uuid.Nil
	wantRefusal(t, "no run", d.requireCompanyRead(t.Context(), d.pool, liar, own), ErrCompanyNotFound)
}

func TestARunThatIsNotRunningReadsNothingOfItsCompany(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	agent, project, issue := d.agent(company), d.project(company, ProjectInput{}), d.issue(company)
	workspace := d.workspace(company, "project_id", project)

	for _, status := range []string{"queued", "succeeded", "cancelled", "timed_out"} {
		run := d.run(company, agent, nil, status)
		wantRefusal(t, status, d.requireCompanyRead(t.Context(), d.pool, run, company), ErrCompanyNotFound)
		wantRefusal(t, status, d.requireReader(t.Context(), d.pool, run), ErrNotAllowed)
		_, err := d.readableProject(t.Context(), d.pool, run, project)
		wantRefusal(t, status, err, ErrProjectNotFound)
		_, err = d.readableIssue(t.Context(), d.pool, run, issue)
		wantRefusal(t, status, err, ErrIssueNotFound)
		_, err = d.readableWorkspace(t.Context(), d.pool, run, workspace)
		wantRefusal(t, status, err, ErrWorkspaceNotFound)
	}
	running := d.run(company, agent, nil, "running")
	_, err := d.readableWorkspace(t.Context(), d.pool, running, workspace)
	wantRefusal(t, "running", err, nil)
	wantRefusal(t, "running", d.requireReader(t.Context(), d.pool, running), nil)
}

func TestAUserReadsACompanyOnlyByAnActiveMembership(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	issue := d.issue(company)
	for status, want := range map[string]*Refusal{
		"active": nil, "pending": ErrCompanyNotFound, "suspended": ErrCompanyNotFound, "archived": ErrCompanyNotFound,
	} {
		user := d.user(company, "owner", status)
		wantRefusal(t, status, d.requireCompanyRead(t.Context(), d.pool, user, company), want)
		_, err := d.readableIssue(t.Context(), d.pool, user, issue)
		if want == nil {
			wantRefusal(t, status, err, nil)
		} else {
			wantRefusal(t, status, err, ErrIssueNotFound)
		}
	}
	elsewhere := d.user(d.company(), "owner", "active")
	wantRefusal(t, "member elsewhere", d.requireCompanyRead(t.Context(), d.pool, elsewhere, company), ErrCompanyNotFound)
}

func TestViewersAuditorsAndRunsDoNotWrite(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	for _, c := range []struct {
		who  string
		by   Principal
		want *Refusal
	}{
		{"operator", d.operator, nil},
		{"owner", d.user(company, "owner", "active"), nil},
		{"member", d.user(company, "member", "active"), nil},
		{"viewer", d.user(company, "viewer", "active"), ErrNotAllowed},
		{"auditor", Principal{Role: RoleAuditor, TokenID: uuid.New()}, ErrNotAllowed},
		{"run", d.run(company, d.agent(company), nil, "running"), ErrNotAllowed},
		{"stranger", d.user(d.company(), "owner", "active"), ErrCompanyNotFound},
	} {
		wantRefusal(t, c.who, d.requireCompanyWrite(t.Context(), d.pool, c.by, company), c.want)
	}
}

func TestAnArchivedCompanyTakesWritesOfOperatorsOnly(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	member := d.user(company, "owner", "active")
	for status, want := range map[string]*Refusal{"paused": nil, "archived": ErrNotAllowed, "active": nil} {
		must(d.UpdateCompany(t.Context(), d.operator, company, CompanyPatch{Status: &status}))(t)
		wantRefusal(t, status+", member reads", d.requireCompanyRead(t.Context(), d.pool, member, company), nil)
		wantRefusal(t, status+", member writes", d.requireCompanyWrite(t.Context(), d.pool, member, company), want)
		wantRefusal(t, status+", operator writes", d.requireCompanyWrite(t.Context(), d.pool, d.operator, company), nil)
	}
}

func TestAPrivateProjectAndWhatBelongsToItExistForItsMembersOnly(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	project := d.project(company, ProjectInput{Visibility: "private"})
	issue := d.issue(company, "project_id", project)
	workspace := d.workspace(company, "project_id", project)
	insider, outsider := d.user(company, "member", "active"), d.user(company, "owner", "active")
	agent := d.agent(company)
	run := d.run(company, agent, nil, "running")
	must(d.AddProjectMember(t.Context(), d.operator, project, PrincipalRef{Type: "user", ID: insider.UserID}))(t)
	must(d.AddProjectMember(t.Context(), d.operator, project, PrincipalRef{Type: "agent", ID: agent}))(t)

	auditor := Principal{Role: RoleAuditor, TokenID: uuid.New()}
	for who, by := range map[string]Principal{"insider": insider, "member agent": run, "operator": d.operator, "auditor": auditor} {
		_, err := d.GetProject(t.Context(), by, project)
		wantRefusal(t, who, err, nil)
		_, err = d.readableIssue(t.Context(), d.pool, by, issue)
		wantRefusal(t, who, err, nil)
		_, err = d.readableWorkspace(t.Context(), d.pool, by, workspace)
		wantRefusal(t, who, err, nil)
		if list := must(d.ListProjects(t.Context(), by, company, Page{}))(t); len(list.Items) != 1 {
			t.Errorf("%s lists %d projects, want 1", who, len(list.Items))
		}
	}
	for who, by := range map[string]Principal{"outsider": outsider, "another agent": d.run(company, d.agent(company), nil, "running")} {
		_, err := d.GetProject(t.Context(), by, project)
		wantRefusal(t, who, err, ErrProjectNotFound)
		_, err = d.ListProjectWorkspaces(t.Context(), by, project, Page{})
		wantRefusal(t, who, err, ErrProjectNotFound)
		_, err = d.readableIssue(t.Context(), d.pool, by, issue)
		wantRefusal(t, who, err, ErrIssueNotFound)
		_, err = d.readableWorkspace(t.Context(), d.pool, by, workspace)
		wantRefusal(t, who, err, ErrWorkspaceNotFound)
		if list := must(d.ListProjects(t.Context(), by, company, Page{}))(t); len(list.Items) != 0 {
			t.Errorf("%s lists %d projects, want none", who, len(list.Items))
		}
	}
}

// workspace writes an execution workspace.
func (d *directory) workspace(company uuid.UUID, columns ...any) uuid.UUID {
	d.t.Helper()
	return d.insert("execution_workspaces", append([]any{
		"company_id", company, "name", "Workspace", "mode", "isolated_workspace",
		"strategy_type", "task_directory", "provider_type", "cloud_sandbox",
	}, columns...)...)
}

func TestOnlyOperatorsAdministerAndStrangersLearnNothing(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	project := d.project(company, ProjectInput{})
	environment := must(d.CreateEnvironment(t.Context(), d.operator, EnvironmentInput{Name: "E", Driver: "local"}, Once{}))(t).ID
	name, isolated := "New name", true
	ref := PrincipalRef{Type: "user", ID: uuid.New()}
	verbs := map[string]struct {
		do       func(by Principal) error
		stranger *Refusal // what somebody from elsewhere hears
	}{
		"create company": {func(by Principal) error {
			_, err := d.CreateCompany(t.Context(), by, CompanyInput{Name: "C"}, Once{})
			return err
		}, ErrNotAllowed},
		"change company": {func(by Principal) error {
			_, err := d.UpdateCompany(t.Context(), by, company, CompanyPatch{Name: &name})
			return err
		}, ErrCompanyNotFound},
		"create agent": {func(by Principal) error {
			_, err := d.CreateAgent(t.Context(), by, company, AgentInput{Name: "A", AdapterType: "x"}, Once{})
			return err
		}, ErrCompanyNotFound},
		"create project": {func(by Principal) error {
			_, err := d.CreateProject(t.Context(), by, company, ProjectInput{Name: "P"}, Once{})
			return err
		}, ErrCompanyNotFound},
		"change project": {func(by Principal) error {
			_, err := d.UpdateProject(t.Context(), by, project, ProjectPatch{Name: &name})
			return err
		}, ErrProjectNotFound},
		"add source": {func(by Principal) error {
			_, err := d.AddProjectWorkspace(t.Context(), by, project, ProjectWorkspaceInput{Name: "S", SourceType: "empty"}, Once{})
			return err
		}, ErrProjectNotFound},
		"add project member": {func(by Principal) error {
			_, err := d.AddProjectMember(t.Context(), by, project, ref)
			return err
		}, ErrProjectNotFound},
		"put membership": {func(by Principal) error {
			_, err := d.CreateMembership(t.Context(), by, company, MembershipInput{PrincipalType: "user", PrincipalID: ref.ID}, Once{})
			return err
		}, ErrCompanyNotFound},
		"create grant": {func(by Principal) error {
			_, err := d.CreateGrant(t.Context(), by, company,
				GrantInput{PrincipalType: "user", PrincipalID: ref.ID, PermissionKey: "tasks:assign"}, Once{})
			return err
		}, ErrCompanyNotFound},
		"create environment": {func(by Principal) error {
			_, err := d.CreateEnvironment(t.Context(), by, EnvironmentInput{Name: "E", Driver: "ssh"}, Once{})
			return err
		}, ErrNotAllowed},
		"change environment": {func(by Principal) error {
			_, err := d.UpdateEnvironment(t.Context(), by, environment, EnvironmentPatch{Name: &name})
			return err
		}, ErrNotAllowed},
		"change settings": {func(by Principal) error {
			_, err := d.UpdateSettings(t.Context(), by, SettingsPatch{EnableIsolatedWorkspaces: &isolated})
			return err
		}, ErrNotAllowed},
		"create token": {func(by Principal) error {
			_, _, err := d.CreateToken(t.Context(), by, TokenInput{Name: "T", Role: RoleAuditor}, Once{})
			return err
		}, ErrNotAllowed},
		"revoke token": {func(by Principal) error {
			err := d.RevokeToken(t.Context(), by, uuid.New())
			if by.Role == RoleOperator {
				wantRefusal(t, "revoke an unknown token", err, ErrTokenNotFound)
				err = nil
			}
			return err
		}, ErrNotAllowed},
	}
	readers := map[string]Principal{
		"owner": d.user(company, "owner", "active"), "viewer": d.user(company, "viewer", "active"),
		"auditor": {Role: RoleAuditor, TokenID: uuid.New()}, "run": d.run(company, d.agent(company), nil, "running"),
	}
	stranger := d.user(d.company(), "owner", "active")
	for name, verb := range verbs {
		wantRefusal(t, "operator: "+name, verb.do(d.operator), nil)
		for who, by := range readers {
			wantRefusal(t, who+": "+name, verb.do(by), ErrNotAllowed)
		}
		wantRefusal(t, "stranger: "+name, verb.do(stranger), verb.stranger)
	}
}
