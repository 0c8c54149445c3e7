package authority

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// privacyOf is what a task says about who reads it.
type privacyOf struct {
	Visibility   string
	Root, Parent *uuid.UUID
}

func privacy(issue Issue) privacyOf {
	return privacyOf{issue.Visibility, issue.PrivacyRootIssueID, issue.PrivacyParentIssueID}
}

func TestAChildOfAPrivateTaskIsPrivateUnderTheSameRoot(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	open := k.issue(IssueInput{})
	root := k.private(IssueInput{})
	child := k.issue(IssueInput{ParentID: &root.ID})
	grandchild := k.issue(IssueInput{ParentID: &child.ID, Visibility: ptr("private")})
	for what, c := range map[string]struct {
		issue Issue
		want  privacyOf
	}{
		"a root":                  {root, privacyOf{"private", &root.ID, nil}},
		"a child":                 {child, privacyOf{"private", &root.ID, &root.ID}},
		"a grandchild":            {grandchild, privacyOf{"private", &root.ID, &child.ID}},
		"a child of an open task": {k.issue(IssueInput{ParentID: &open.ID}), privacyOf{"open", nil, &open.ID}},
		"a private child of an open task": {
			k.private(IssueInput{ParentID: &open.ID, PrivacyRootIssueID: &root.ID}), privacyOf{"private", &root.ID, &open.ID},
		},
	} {
		if diff := cmp.Diff(c.want, privacy(c.issue)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	_, err := k.CreateIssue(t.Context(), k.operator, k.home, IssueInput{Title: "Task", ParentID: &root.ID, Visibility: ptr("open")}, Once{})
	wantField(t, "an open child of a private task", err, "body.visibility")
}

func TestAParentMadePrivateLeavesItsOpenChildrenOpen(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	parent := k.issue(IssueInput{})
	child := k.issue(IssueInput{ParentID: &parent.ID})
	parent = k.change(parent.ID, IssuePatch{Visibility: ptr("private"), AssigneeAgentID: ToNull[uuid.UUID]()})
	if diff := cmp.Diff(privacyOf{"private", &parent.ID, nil}, privacy(parent)); diff != "" {
		t.Errorf("the parent (-want +got):\n%s", diff)
	}
	by := runPrincipal(k.run(child.ID))
	if got := must(k.GetIssue(t.Context(), by, child.ID))(t); got.Visibility != "open" {
		t.Errorf("the child is %s", got.Visibility)
	}
	_, err := k.GetIssue(t.Context(), by, parent.ID)
	wantRefusal(t, "the assignee of an open child reads the private parent", err, ErrIssueNotFound)
	if opened := k.change(parent.ID, IssuePatch{Visibility: ptr("open")}); opened.PrivacyRootIssueID != nil {
		t.Errorf("an open task has the privacy root %v", opened.PrivacyRootIssueID)
	}
}

func TestPrivacyIsForOperatorsToChange(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	member := k.user(k.home, "owner", "active")
	issue := k.issue(IssueInput{})
	for what, patch := range map[string]IssuePatch{
		"visibility": {Visibility: ptr("private")},
		"root":       {PrivacyRootIssueID: To(issue.ID)},
		"parent":     {PrivacyParentIssueID: ToNull[uuid.UUID]()},
	} {
		_, err := k.UpdateIssue(t.Context(), member, issue.ID, patch)
		wantRefusal(t, "a member changes the "+what, err, ErrNotAllowed)
	}
	for what, in := range map[string]IssueInput{
		"visibility": {Visibility: ptr("private")},
		"root":       {PrivacyRootIssueID: &issue.ID},
		"parent":     {PrivacyParentIssueID: &issue.ID},
	} {
		in.Title = "Task"
		_, err := k.CreateIssue(t.Context(), member, k.home, in, Once{})
		wantRefusal(t, "a member sets the "+what, err, ErrNotAllowed)
	}
	to := PrincipalRef{Type: "user", ID: member.UserID}
	_, err := k.AddAccessGrant(t.Context(), member, issue.ID, to)
	wantRefusal(t, "a member grants access", err, ErrNotAllowed)
	wantRefusal(t, "a member takes access", k.RemoveAccessGrant(t.Context(), member, issue.ID, to), ErrNotAllowed)
	_, err = k.UpdateIssue(t.Context(), k.operator, issue.ID, IssuePatch{PrivacyParentIssueID: To(issue.ID)})
	wantField(t, "a task that is its own privacy parent", err, "body.privacyParentIssueId")
}

func TestWhoReadsAPrivateTask(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	assigned, responsible, granted, stranger := k.user(k.home, "member", "active"), k.user(k.home, "member", "active"),
		k.user(k.home, "member", "active"), k.user(k.home, "owner", "active")
	root := k.private(IssueInput{AssigneeUserID: &assigned.UserID, ResponsibleUserID: &responsible.UserID})
	below := k.issue(IssueInput{ParentID: &root.ID})
	elsewhere := k.issue(IssueInput{})
	agent := runPrincipal(k.run(elsewhere.ID))
	must(k.AddAccessGrant(t.Context(), k.operator, root.ID, PrincipalRef{Type: "user", ID: granted.UserID}))(t)
	must(k.AddAccessGrant(t.Context(), k.operator, below.ID, PrincipalRef{Type: "agent", ID: k.worker}))(t)
	for what, c := range map[string]struct {
		by          Principal
		root, below *Refusal
	}{
		"its assignee":              {assigned, nil, nil},
		"its responsible user":      {responsible, nil, nil},
		"who was granted it":        {granted, nil, nil},
		"an agent granted the rest": {agent, ErrIssueNotFound, nil},
		"a stranger":                {stranger, ErrIssueNotFound, ErrIssueNotFound},
	} {
		_, err := k.GetIssue(t.Context(), c.by, root.ID)
		wantRefusal(t, what+" reads the root", err, c.root)
		_, err = k.GetIssue(t.Context(), c.by, below.ID)
		wantRefusal(t, what+" reads the task below", err, c.below)
	}
	if err := k.RemoveAccessGrant(t.Context(), k.operator, root.ID, PrincipalRef{Type: "user", ID: granted.UserID}); err != nil {
		t.Fatal(err)
	}
	_, err := k.GetIssue(t.Context(), granted, root.ID)
	wantRefusal(t, "after the grant was taken back", err, ErrIssueNotFound)
}

func TestAccessGrantsAreGivenOnceAndListed(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	issue := k.private(IssueInput{})
	to := PrincipalRef{Type: "agent", ID: k.worker}
	first := must(k.AddAccessGrant(t.Context(), k.operator, issue.ID, to))(t)
	again := must(k.AddAccessGrant(t.Context(), k.operator, issue.ID, to))(t)
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the second grant differs:\n%s", diff)
	}
	second := must(k.AddAccessGrant(t.Context(), k.operator, issue.ID, PrincipalRef{Type: "user", ID: uuid.New()}))(t)
	list := must(k.ListAccessGrants(t.Context(), k.operator, issue.ID, Page{}))(t)
	if diff := cmp.Diff([]AccessGrant{first, second}, list.Items); diff != "" {
		t.Errorf("the list (-want +got):\n%s", diff)
	}
	_, err := k.AddAccessGrant(t.Context(), k.operator, issue.ID, PrincipalRef{Type: "agent", ID: newForeign(k).agent})
	wantRefusal(t, "another company's agent", err, ErrAgentNotFound)
	_, err = k.AddAccessGrant(t.Context(), k.operator, issue.ID, PrincipalRef{Type: "team", ID: uuid.New()})
	wantField(t, "a principal of no type", err, "body.principalType")
	wantRefusal(t, "a grant that is not there", k.RemoveAccessGrant(t.Context(), k.operator, issue.ID, PrincipalRef{Type: "user", ID: uuid.New()}), nil)
	_, err = k.ListAccessGrants(t.Context(), k.user(k.home, "member", "active"), issue.ID, Page{})
	wantRefusal(t, "the grants of a hidden task", err, ErrIssueNotFound)
}

func TestTheSameGrantAtOnceIsGivenOnce(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	for range 10 {
		issue, to := k.issue(IssueInput{}), PrincipalRef{Type: "user", ID: uuid.New()}
		grant := func() error {
			_, err := k.AddAccessGrant(t.Context(), k.operator, issue.ID, to)
			return err
		}
		for _, err := range together(grant, grant, grant, grant) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestOnlyAnOperatorBindsAPrivateTaskToWhatOpenTasksShare(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	member := k.user(k.home, "member", "active")
	shared, lonely := k.workspace(WorkspaceInput{}), k.workspace(WorkspaceInput{})
	k.bound(shared.ID)
	secret := k.private(IssueInput{AssigneeUserID: &member.UserID})
	_, err := k.UpdateIssue(t.Context(), member, secret.ID, IssuePatch{ExecutionWorkspaceID: To(shared.ID)})
	wantRefusal(t, "a member binds it", err, ErrNotAllowed)
	_, err = k.UpdateIssue(t.Context(), member, secret.ID, IssuePatch{ExecutionWorkspaceID: To(lonely.ID)})
	wantRefusal(t, "a member binds it to a workspace that nobody shares", err, nil)
	_, err = k.UpdateIssue(t.Context(), k.operator, secret.ID, IssuePatch{ExecutionWorkspaceID: To(shared.ID)})
	wantRefusal(t, "an operator binds it", err, nil)
}

// Whoever reads the private parent reads the child: binding the child takes the files from nobody.
func TestAChildOfAPrivateTaskJoinsTheWorkspaceThatItsParentIsIn(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	member := k.user(k.home, "member", "active")
	shared := k.workspace(WorkspaceInput{})
	parent := k.bound(shared.ID)
	k.issue(IssueInput{ParentID: &parent.ID}) // open, and in the same workspace
	k.change(parent.ID, IssuePatch{Visibility: ptr("private"), ResponsibleUserID: To(member.UserID)})
	child, err := k.CreateIssue(t.Context(), member, k.home, IssueInput{Title: "Task", ParentID: &parent.ID}, Once{})
	wantRefusal(t, "a member makes a child", err, nil)
	if child.Visibility != "private" || !sameID(child.ExecutionWorkspaceID, &shared.ID) {
		t.Errorf("the child is %s and bound to %v", child.Visibility, child.ExecutionWorkspaceID)
	}
	k.change(child.ID, IssuePatch{ExecutionWorkspaceID: ToNull[uuid.UUID]()})
	grandchild := must(k.CreateIssue(t.Context(), member, k.home, IssueInput{Title: "Task", ParentID: &child.ID}, Once{}))(t)
	_, err = k.UpdateIssue(t.Context(), member, grandchild.ID, IssuePatch{ExecutionWorkspaceID: To(shared.ID)})
	wantRefusal(t, "a member binds a grandchild", err, nil)
}
