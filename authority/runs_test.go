package authority

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func TestANewRunIsRunningAndActsByItsToken(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	task := k.issue(IssueInput{})
	member := k.user(k.home, "member", "active")
	run, token, err := k.CreateRun(t.Context(), member, k.home, RunInput{AgentID: k.worker, IssueID: &task.ID}, Once{})
	if err != nil {
		t.Fatal(err)
	}
	want := Run{
		ID: run.ID, CompanyID: k.home, AgentID: k.worker, IssueID: &task.ID, BoundIssueID: &task.ID, Status: "running",
		RuntimeMode: "native", ContextSnapshot: json.RawMessage("{}"), StartedAt: run.StartedAt,
		CreatedAt: run.CreatedAt, UpdatedAt: run.UpdatedAt,
	}
	if diff := cmp.Diff(want, run); diff != "" || run.StartedAt == nil {
		t.Errorf("the new run (-want +got):\n%s", diff)
	}
	by := must(k.Authenticate(t.Context(), token))(t)
	if by.Role != RoleRun || by.RunID != run.ID || by.AgentID != k.worker || by.CompanyID != k.home {
		t.Errorf("the token speaks for %+v", by)
	}
	if diff := cmp.Diff(run, must(k.GetRun(t.Context(), by, run.ID))(t)); diff != "" {
		t.Errorf("the run as it reads itself:\n%s", diff)
	}
}

func TestAReplayedRunIsTheFirstWithATokenSignedAnew(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	in := RunInput{AgentID: k.worker}
	first, _, err := k.CreateRun(t.Context(), k.operator, k.home, in, once("key", "body"))
	if err != nil {
		t.Fatal(err)
	}
	again, token, err := k.CreateRun(t.Context(), k.operator, k.home, in, once("key", "body"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the second answer differs:\n%s", diff)
	}
	if by := must(k.Authenticate(t.Context(), token))(t); by.RunID != first.ID {
		t.Errorf("the token speaks for run %s, want %s", by.RunID, first.ID)
	}
}

func TestARunBeginsInTheStateThatItIsGiven(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	member := k.user(k.home, "member", "active")
	for status, c := range map[string]struct {
		started, finished bool
		member            *Refusal
	}{
		"queued":          {false, false, nil},
		"scheduled_retry": {false, false, nil},
		"running":         {true, false, nil},
		"succeeded":       {false, true, ErrNotAllowed},
		"interrupted":     {false, true, ErrNotAllowed},
		"failed":          {false, true, ErrNotAllowed},
		"cancelled":       {false, true, ErrNotAllowed},
		"timed_out":       {false, true, ErrNotAllowed},
	} {
		in := RunInput{AgentID: k.worker, Status: status, RuntimeMode: "legacy"}
		run, _, err := k.CreateRun(t.Context(), k.operator, k.home, in, Once{})
		if err != nil {
			t.Fatal(err)
		}
		if run.Status != status || run.RuntimeMode != "legacy" || (run.StartedAt != nil) != c.started ||
			(run.FinishedAt != nil) != c.finished || (run.FinishedBy != nil) != c.finished {
			t.Errorf("%s: the run is %+v", status, run)
		}
		_, _, err = k.CreateRun(t.Context(), member, k.home, in, Once{})
		wantRefusal(t, status+", by a member", err, c.member)
	}
	_, _, err := k.CreateRun(t.Context(), k.operator, k.home, RunInput{
		AgentID: k.worker, Status: "asleep", RuntimeMode: "fast", ContextSnapshot: json.RawMessage(`"x"`),
	}, Once{})
	wantField(t, "everything wrong", err, "body.status", "body.runtimeMode", "body.contextSnapshot")
}

func TestWhoMakesRuns(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	task, secret := k.issue(IssueInput{}), k.private(IssueInput{})
	foreign := newForeign(k)
	member := k.user(k.home, "member", "active")
	for what, c := range map[string]struct {
		by   Principal
		in   RunInput
		want *Refusal
	}{
		"an operator":                 {k.operator, RunInput{AgentID: k.worker, IssueID: &secret.ID}, nil},
		"a member":                    {member, RunInput{AgentID: k.worker, IssueID: &task.ID}, nil},
		"a member, for a hidden task": {member, RunInput{AgentID: k.worker, IssueID: &secret.ID}, ErrIssueNotFound},
		"for another company's task":  {k.operator, RunInput{AgentID: k.worker, IssueID: &foreign.issue}, ErrIssueNotFound},
		"for no such task":            {k.operator, RunInput{AgentID: k.worker, IssueID: ptr(uuid.New())}, ErrIssueNotFound},
		"of another company's agent":  {k.operator, RunInput{AgentID: foreign.agent}, ErrAgentNotFound},
		"of no such agent":            {k.operator, RunInput{AgentID: uuid.New()}, ErrAgentNotFound},
		"a viewer":                    {k.user(k.home, "viewer", "active"), RunInput{AgentID: k.worker}, ErrNotAllowed},
		"an auditor":                  {Principal{Role: RoleAuditor, TokenID: uuid.New()}, RunInput{AgentID: k.worker}, ErrNotAllowed},
		"a run":                       {runPrincipal(k.run(task.ID)), RunInput{AgentID: k.worker}, ErrNotAllowed},
		"a stranger":                  {k.user(foreign.company, "owner", "active"), RunInput{AgentID: k.worker}, ErrCompanyNotFound},
	} {
		_, _, err := k.CreateRun(t.Context(), c.by, k.home, c.in, Once{})
		wantRefusal(t, what, err, c.want)
	}
}

// The context is read in Go before the run is stored, and by the database after: they must agree on
// which task a run is for.
func TestAContextBindsARunToTheTaskThatItNames(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	task, column := k.issue(IssueInput{}), k.issue(IssueInput{})
	id := task.ID.String()
	for context, c := range map[string]struct {
		want    *Refusal
		boundTo *uuid.UUID
	}{
		`{"issueId": "` + id + `"}`:                                  {nil, &task.ID},
		`{"issueId": "` + upper(id) + `"}`:                           {nil, &task.ID},
		`{"issueId": "x", "issueId": "` + id + `"}`:                  {nil, &task.ID},
		`{"IssueID": "` + id + `"}`:                                  {nil, nil},
		`{"issueId": null}`:                                          {nil, nil},
		`{"other": 1}`:                                               {nil, nil},
		`{"issueId": "` + uuid.NewString() + `"}`:                    {ErrIssueNotFound, nil},
		`{"issueId": "{` + id + `}"}`:                                {ErrIssueNotFound, nil},
		`{"issueId": "urn:uuid:` + id + `"}`:                         {ErrIssueNotFound, nil},
		`{"issueId": "PAP-12"}`:                                      {ErrIssueNotFound, nil},
		`{"issueId": 12}`:                                            {ErrIssueNotFound, nil},
		`{"issueId": {"id": "` + id + `"}}`:                          {ErrIssueNotFound, nil},
		`{"issueId": "` + k.private(IssueInput{}).ID.String() + `"}`: {ErrIssueNotFound, nil},
	} {
		in := RunInput{AgentID: k.worker, ContextSnapshot: json.RawMessage(context)}
		run, _, err := k.CreateRun(t.Context(), k.user(k.home, "member", "active"), k.home, in, Once{})
		wantRefusal(t, context, err, c.want)
		if !sameID(run.BoundIssueID, c.boundTo) {
			t.Errorf("%s: bound to %v, want %v", context, run.BoundIssueID, c.boundTo)
		}
		in.IssueID = &column.ID
		run, _, err = k.CreateRun(t.Context(), k.operator, k.home, in, Once{})
		wantRefusal(t, context+" beside a task", err, nil)
		if !sameID(run.BoundIssueID, &column.ID) {
			t.Errorf("%s beside a task: bound to %v", context, run.BoundIssueID)
		}
	}
}

func upper(id string) string {
	raw := []byte(id)
	for i, c := range raw {
		if 'a' <= c && c <= 'f' {
			raw[i] = c - 'a' + 'A'
		}
	}
	return string(raw)
}

func TestWhoReadsARun(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	secret := k.private(IssueInput{})
	loose, hidden := k.runOf(k.worker, nil), k.run(secret.ID)
	foreign := newForeign(k)
	for what, c := range map[string]struct {
		by            Principal
		loose, hidden *Refusal
	}{
		"an operator":            {k.operator, nil, nil},
		"an auditor":             {Principal{Role: RoleAuditor, TokenID: uuid.New()}, nil, nil},
		"a member":               {k.user(k.home, "viewer", "active"), nil, ErrRunNotFound},
		"another run":            {runPrincipal(loose), nil, ErrRunNotFound},
		"a run of a hidden task": {runPrincipal(hidden), nil, nil},
		"a stranger":             {k.user(foreign.company, "owner", "active"), ErrRunNotFound, ErrRunNotFound},
	} {
		_, err := k.GetRun(t.Context(), c.by, loose.ID)
		wantRefusal(t, what+" reads a run without a task", err, c.loose)
		_, err = k.GetRun(t.Context(), c.by, hidden.ID)
		wantRefusal(t, what+" reads the run of a hidden task", err, c.hidden)
		list, err := k.ListRuns(t.Context(), c.by, k.home, RunFilter{}, Page{})
		listed := map[uuid.UUID]bool{}
		for _, run := range list.Items {
			listed[run.ID] = true
		}
		if !errors.Is(err, ErrCompanyNotFound) && (listed[loose.ID] != (c.loose == nil) || listed[hidden.ID] != (c.hidden == nil)) {
			t.Errorf("%s: the list has %v, %v", what, listed, err)
		}
	}
	k.finish(loose)
	_, err := k.GetRun(t.Context(), runPrincipal(loose), loose.ID)
	wantRefusal(t, "a run that ended reads itself", err, nil)
	_, err = k.GetRun(t.Context(), runPrincipal(loose), hidden.ID)
	wantRefusal(t, "a run that ended reads another", err, ErrRunNotFound)
	_, err = k.GetRun(t.Context(), k.operator, uuid.New())
	wantRefusal(t, "no such run", err, ErrRunNotFound)
}

func TestRunsAreListedByWhatTheyAre(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	task := k.issue(IssueInput{})
	other := k.agent(k.home)
	first, second := k.run(task.ID), k.runOf(other, nil)
	third, _, err := k.CreateRun(t.Context(), k.operator, k.home, RunInput{
		AgentID: other, Status: "queued", ContextSnapshot: json.RawMessage(`{"issueId": "` + task.ID.String() + `"}`),
	}, Once{})
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		filter RunFilter
		want   []uuid.UUID
	}{
		"all":       {RunFilter{}, []uuid.UUID{first.ID, second.ID, third.ID}},
		"by agent":  {RunFilter{AgentID: &other}, []uuid.UUID{second.ID, third.ID}},
		"by task":   {RunFilter{IssueID: &task.ID}, []uuid.UUID{first.ID, third.ID}},
		"by status": {RunFilter{Status: ptr("queued")}, []uuid.UUID{third.ID}},
	} {
		got := []uuid.UUID{}
		for _, run := range must(k.ListRuns(t.Context(), k.operator, k.home, c.filter, Page{}))(t).Items {
			got = append(got, run.ID)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

// A change of a task's binding waits until no run of it is running. A run that starts at that moment waits for the
// change in turn, or the change would miss it.
func TestARunDoesNotStartWhileItsTaskIsRebound(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 8)
	w := s.worker(s.task())
	w.RunID = s.insert("heartbeat_runs", "company_id", s.company, "agent_id", s.agent, "issue_id", w.task, "status", "queued")
	rebinding, err := s.database.Pool.Begin(t.Context())
	s.wantNoError("begin", err)
	defer rebinding.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // after the commit it does nothing
	_, err = rebinding.Exec(t.Context(), "SELECT FROM issues WHERE id = $1 FOR NO KEY UPDATE", w.task)
	s.wantNoError("lock the task", err)
	started := make(chan error, 1)
	go func() {
		_, err := s.FinishRun(t.Context(), s.operator, w.RunID, FinishInput{Status: "running"})
		started <- err
	}()
	for waiting := 0; waiting == 0; {
		select {
		case err := <-started:
			t.Fatalf("it started: %v", err)
		default:
			waiting = s.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
		}
	}
	s.wantNoError("commit", rebinding.Commit(t.Context()))
	s.wantNoError("start", <-started)
}

func TestARebindingAndTheStartOfARunAtOnceLeaveOneTruth(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 8)
	for range 30 {
		w := s.worker(s.task())
		w.RunID = s.insert("heartbeat_runs", "company_id", s.company, "agent_id", s.agent, "issue_id", w.task, "status", "queued")
		to := s.free()
		calls := race(t, 2, func(i int) (any, error) {
			if i == 0 {
				return s.FinishRun(t.Context(), s.operator, w.RunID, FinishInput{Status: "running"})
			}
			return s.UpdateIssue(t.Context(), s.operator, w.task, IssuePatch{ExecutionWorkspaceID: To(to)})
		})
		s.wantNoError("start", calls[0].err)
		if calls[1].err != nil {
			s.wantCode("rebind", calls[1].err, ErrTaskRunActive)
			continue
		}
		// The binding changed before the run started.
		if late := s.text("SELECT (r.started_at < i.updated_at)::text FROM heartbeat_runs r JOIN issues i ON i.id = r.issue_id WHERE r.id = $1", w.RunID); late != "false" {
			t.Errorf("the task was rebound under its running run: %s", late)
		}
	}
}
