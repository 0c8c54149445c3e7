package authority

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func TestAPrefixComesFromTheCompanysName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Paperclip": "PAPE", "Acme": "ACME", "go": "GO", "Big Blue Machine": "BBM", "3M": "M", "42": "CO",
		"one two three four five": "OTTF", "Ärzte ohne Grenzen": "ROG", "日本": "CO", "a.b-c": "ABC", " ": "CO",
	} {
		got := prefixOf(name)
		if got != want || !issuePrefixForm.MatchString(got) {
			t.Errorf("the prefix of %q is %q, want %q", name, got, want)
		}
	}
}

func TestAPrefixThatBerthChoosesIsFree(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	made := make([]Company, 12)
	failures := make([]error, len(made))
	var calls sync.WaitGroup
	for i := range made {
		calls.Go(func() {
			made[i], failures[i] = d.CreateCompany(t.Context(), d.operator, CompanyInput{Name: "Acme"}, Once{})
		})
	}
	calls.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	prefixes := map[string]bool{}
	for _, company := range made {
		prefixes[company.IssuePrefix] = true
	}
	if len(prefixes) != len(made) || !prefixes["ACME"] || !prefixes["ACME2"] {
		t.Errorf("%d companies got the prefixes %v", len(made), prefixes)
	}
}

func TestAPrefixThatIsGivenIsKeptOrRefused(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	first := must(d.CreateCompany(t.Context(), d.operator, CompanyInput{Name: "One", IssuePrefix: "PAP1"}, Once{}))(t)
	if first.IssuePrefix != "PAP1" || first.Status != "active" || first.IssueCounter != 0 {
		t.Errorf("the company is %+v", first)
	}
	for _, prefix := range []string{"PAP1", "pap", "1PAP", "P-P", "ABCDEFGHIJK"} {
		_, err := d.CreateCompany(t.Context(), d.operator, CompanyInput{Name: "Two", IssuePrefix: prefix}, Once{})
		wantField(t, prefix, err, "body.issuePrefix")
	}
	_, err := d.CreateCompany(t.Context(), d.operator, CompanyInput{Name: " \t"}, Once{})
	wantField(t, "no name", err, "body.name")
}

func TestAChangeOfACompanyLeavesTheRest(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	before := must(d.GetCompany(t.Context(), d.operator, d.company()))(t)
	name, status, empty, unknown := "Renamed", "paused", "", "sold"

	want := before
	want.Name = name
	got := must(d.UpdateCompany(t.Context(), d.operator, before.ID, CompanyPatch{Name: &name}))(t)
	want.UpdatedAt = got.UpdatedAt
	if diff := cmp.Diff(want, got); diff != "" || !got.UpdatedAt.After(before.UpdatedAt) {
		t.Errorf("after the name (-want +got), changed at %v:\n%s", got.UpdatedAt, diff)
	}
	want.Status = status
	got = must(d.UpdateCompany(t.Context(), d.operator, before.ID, CompanyPatch{Status: &status}))(t)
	want.UpdatedAt = got.UpdatedAt
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after the status (-want +got):\n%s", diff)
	}
	_, err := d.UpdateCompany(t.Context(), d.operator, before.ID, CompanyPatch{Name: &empty, Status: &empty})
	wantField(t, "empty", err, "body.name", "body.status")
	_, err = d.UpdateCompany(t.Context(), d.operator, before.ID, CompanyPatch{Status: &unknown})
	wantField(t, "unknown status", err, "body.status")
	_, err = d.UpdateCompany(t.Context(), d.operator, uuid.New(), CompanyPatch{Name: &name})
	wantRefusal(t, "unknown company", err, ErrCompanyNotFound)
}

func TestAListIsCompleteInOrderAndPageByPage(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	var made []uuid.UUID
	for range 5 {
		made = append(made, d.company())
	}
	user := Principal{Role: RoleMember, TokenID: uuid.New(), UserID: uuid.New()}
	for _, i := range []int{0, 2, 3} {
		d.membership(made[i], PrincipalRef{Type: "user", ID: user.UserID}, "member", "active")
	}
	d.membership(made[4], PrincipalRef{Type: "user", ID: user.UserID}, "member", "suspended")
	for _, c := range []struct {
		who  string
		by   Principal
		want []uuid.UUID
	}{
		{"operator", d.operator, made},
		{"member", user, []uuid.UUID{made[0], made[2], made[3]}},
		{"stranger", Principal{Role: RoleMember, TokenID: uuid.New(), UserID: uuid.New()}, nil},
	} {
		for _, limit := range []int{1, 2, 3, 0} {
			var seen []uuid.UUID
			page := Page{Limit: limit}
			for {
				list := must(d.ListCompanies(t.Context(), c.by, page))(t)
				for _, company := range list.Items {
					seen = append(seen, company.ID)
				}
				if list.NextCursor == nil {
					break
				}
				page.Cursor = *list.NextCursor
			}
			if diff := cmp.Diff(c.want, seen); diff != "" {
				t.Errorf("%s, %d at a time (-want +got):\n%s", c.who, limit, diff)
			}
		}
	}
	_, err := d.ListCompanies(t.Context(), d.operator, Page{Cursor: "garbled"})
	wantField(t, "a garbled cursor", err, "query.cursor")
}

func TestAnAgentReportsToAnotherOfItsCompany(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	superior, foreign, unknown := d.agent(company), d.agent(d.company()), uuid.New()
	create := func(in AgentInput) (Agent, error) {
		return d.CreateAgent(t.Context(), d.operator, company, in, Once{})
	}
	agent := must(create(AgentInput{Name: "A", AdapterType: "process", ReportsToAgentID: &superior}))(t)
	if agent.Status != "idle" || agent.ReportsToAgentID == nil || *agent.ReportsToAgentID != superior {
		t.Errorf("the agent is %+v", agent)
	}
	for what, id := range map[string]*uuid.UUID{"foreign": &foreign, "unknown": &unknown} {
		_, err := create(AgentInput{Name: "A", AdapterType: "process", ReportsToAgentID: id})
		wantRefusal(t, what, err, ErrAgentNotFound)
	}
	_, err := create(AgentInput{Status: "asleep"})
	wantField(t, "nothing right", err, "body.name", "body.adapterType", "body.status")
	if list := must(d.ListAgents(t.Context(), d.operator, company, Page{}))(t); len(list.Items) != 2 {
		t.Errorf("%d agents are listed, want 2", len(list.Items))
	}
}

func TestSettingsKeepWhatIsNotChanged(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	on := true
	if before := must(d.GetSettings(t.Context(), d.operator))(t); before.EnableIsolatedWorkspaces {
		t.Error("isolated workspaces are enabled at first")
	}
	must(d.UpdateSettings(t.Context(), d.operator, SettingsPatch{EnableIsolatedWorkspaces: &on}))(t)
	if after := must(d.UpdateSettings(t.Context(), d.operator, SettingsPatch{}))(t); !after.EnableIsolatedWorkspaces {
		t.Error("an empty change took the setting back")
	}
	member := d.user(d.company(), "viewer", "active")
	if seen := must(d.GetSettings(t.Context(), member))(t); !seen.EnableIsolatedWorkspaces {
		t.Error("a member reads other settings")
	}
}
