package authority

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func TestPuttingAMembershipAgainChangesIt(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	user := uuid.New()
	put := func(in MembershipInput) Membership {
		t.Helper()
		in.PrincipalType, in.PrincipalID = "user", user
		return must(d.CreateMembership(t.Context(), d.operator, company, in, Once{}))(t)
	}
	first := put(MembershipInput{})
	if first.Status != "active" || first.MembershipRole != "member" {
		t.Errorf("a membership begins as %s %s", first.Status, first.MembershipRole)
	}
	second := put(MembershipInput{Status: "suspended", MembershipRole: "viewer"})
	want := first
	want.Status, want.MembershipRole, want.UpdatedAt = "suspended", "viewer", second.UpdatedAt
	if diff := cmp.Diff(want, second); diff != "" {
		t.Errorf("put again (-want +got):\n%s", diff)
	}
	if list := must(d.ListMemberships(t.Context(), d.operator, company, Page{}))(t); len(list.Items) != 1 {
		t.Errorf("%d memberships are listed, want 1", len(list.Items))
	}
}

func TestAMembershipIsOfAUserOrAnAgentOfTheCompany(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	put := func(in MembershipInput) error {
		_, err := d.CreateMembership(t.Context(), d.operator, company, in, Once{})
		return err
	}
	wantRefusal(t, "own agent", put(MembershipInput{PrincipalType: "agent", PrincipalID: d.agent(company)}), nil)
	wantRefusal(t, "foreign agent", put(MembershipInput{PrincipalType: "agent", PrincipalID: d.agent(d.company())}), ErrAgentNotFound)
	wantRefusal(t, "unknown agent", put(MembershipInput{PrincipalType: "agent", PrincipalID: uuid.New()}), ErrAgentNotFound)
	wantField(t, "nothing right", put(MembershipInput{PrincipalType: "robot", Status: "asleep", MembershipRole: "king"}),
		"body.principalType", "body.principalId", "body.status", "body.membershipRole")
}

func TestAGrantThatNobodyCouldReadIsRefused(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	agent := d.agent(company)
	id := `"` + uuid.NewString() + `"`
	grant := func(key, scope string) error {
		in := GrantInput{PrincipalType: "agent", PrincipalID: agent, PermissionKey: key}
		if scope != "" {
			in.Scope = json.RawMessage(scope)
		}
		_, err := d.CreateGrant(t.Context(), d.operator, company, in, Once{})
		return err
	}
	wantRefusal(t, "assign", grant("tasks:assign", ""), nil)
	for _, scope := range []string{`{"projectId": ` + id + `}`, `{"agentId": ` + id + `, "subtreeOf": ` + id + `}`} {
		wantRefusal(t, scope, grant("tasks:assign_scope", scope), nil)
	}
	wantField(t, "a scope for assign", grant("tasks:assign", `{"projectId": `+id+`}`), "body.scope")
	for _, scope := range []string{
		``, `null`, `{}`, `[]`, `{`, `{"projectId": null}`, `{"projectId": 7}`, `{"projectId": "x"}`,
		`{"projectId": ` + id + `, "region": "eu"}`, `{"subtreeOf": [` + id + `]}`,
	} {
		wantField(t, "scope "+scope, grant("tasks:assign_scope", scope), "body.scope")
	}
	wantField(t, "unknown permission", grant("tasks:delete", ""), "body.permissionKey")
	wantField(t, "no permission", grant("", ""), "body.permissionKey")
	_, err := d.CreateGrant(t.Context(), d.operator, company,
		GrantInput{PrincipalType: "agent", PrincipalID: d.agent(d.company()), PermissionKey: "tasks:assign"}, Once{})
	wantRefusal(t, "foreign agent", err, ErrAgentNotFound)
	if list := must(d.ListGrants(t.Context(), d.operator, company, Page{}))(t); len(list.Items) != 3 {
		t.Errorf("%d grants are listed, want 3", len(list.Items))
	}
}

func TestOnlyOperatorsSeeHowAnEnvironmentIsOpened(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	made := must(d.CreateEnvironment(t.Context(), d.operator,
		EnvironmentInput{Name: "E", Driver: "ssh", Config: json.RawMessage(`{"key": "secret"}`)}, Once{}))(t)
	if string(made.Config) != `{"key": "secret"}` || made.Status != "active" {
		t.Errorf("the operator made %+v", made)
	}
	for who, by := range map[string]Principal{
		"owner": d.user(company, "owner", "active"), "auditor": {Role: RoleAuditor, TokenID: uuid.New()},
		"run": d.run(company, d.agent(company), nil, "running"),
	} {
		got := must(d.GetEnvironment(t.Context(), by, made.ID))(t)
		list := must(d.ListEnvironments(t.Context(), by, Page{}))(t)
		if got.Name != "E" || got.Config != nil || len(list.Items) != 1 || list.Items[0].Config != nil {
			t.Errorf("%s sees %+v and lists %+v", who, got, list.Items)
		}
	}
}

func TestAChangeOfAnEnvironmentLeavesTheRest(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	before := must(d.CreateEnvironment(t.Context(), d.operator, EnvironmentInput{Name: "E", Driver: "local"}, Once{}))(t)
	if string(before.Config) != `{}` {
		t.Errorf("an environment begins with the config %s", before.Config)
	}
	archived, empty := "archived", ""
	after := must(d.UpdateEnvironment(t.Context(), d.operator, before.ID, EnvironmentPatch{Status: &archived}))(t)
	want := before
	want.Status, want.UpdatedAt = archived, after.UpdatedAt
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("archived (-want +got):\n%s", diff)
	}
	after = must(d.UpdateEnvironment(t.Context(), d.operator, before.ID, EnvironmentPatch{Config: json.RawMessage(`{"a": 1}`)}))(t)
	if string(after.Config) != `{"a": 1}` || after.Status != archived {
		t.Errorf("with another config it is %+v", after)
	}
	_, err := d.UpdateEnvironment(t.Context(), d.operator, before.ID,
		EnvironmentPatch{Name: &empty, Status: &empty, Config: json.RawMessage(`[]`)})
	wantField(t, "nothing right", err, "body.name", "body.status", "body.config")
	_, err = d.CreateEnvironment(t.Context(), d.operator, EnvironmentInput{Config: json.RawMessage(`7`), Status: "lost"}, Once{})
	wantField(t, "nothing right", err, "body.name", "body.driver", "body.config", "body.status")
	_, err = d.GetEnvironment(t.Context(), d.operator, uuid.New())
	wantRefusal(t, "unknown", err, ErrEnvironmentNotFound)
	_, err = d.UpdateEnvironment(t.Context(), d.operator, uuid.New(), EnvironmentPatch{Status: &archived})
	wantRefusal(t, "unknown", err, ErrEnvironmentNotFound)
}
