package authority

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

// outcome is what one of several calls at once answered.
type outcome[T any] struct {
	answer T
	err    error
}

// race makes n calls that begin together, each on a goroutine of its own.
func race[T any](t tb, n int, call func(i int) (T, error)) []outcome[T] {
	t.Helper()
	outcomes := make([]outcome[T], n)
	start, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start.Done()
			outcomes[i].answer, outcomes[i].err = call(i)
		})
	}
	cancel()
	all.Wait()
	return outcomes
}

// wantKnown fails the test when a call failed in a way that is not an answer.
func wantKnown(t *testing.T, what string, err error) {
	t.Helper()
	if refused, known := AsRefusal(err); err != nil && (!known || refused.Code == ErrUnavailable.Code) {
		t.Errorf("%s: %v, which is no answer", what, err)
	}
}

// wantSoundHistory fails the test unless the rules about writers hold, as SQL sees them: in a company
// no two tenures overlap, none ends before it began, the document and the history name the same
// writer, and unsaved work and an open life cycle have what they need.
func (s *scene) wantSoundHistory() {
	s.t.Helper()
	if broken := s.text(`
		WITH w AS (SELECT * FROM execution_workspaces WHERE company_id = $1), t AS (SELECT * FROM tenures WHERE company_id = $1)
		SELECT string_agg(rule || ': ' || what, E'\n') FROM (
			SELECT 'tenures overlap' AS rule, earlier.id::text AS what FROM t earlier JOIN t later USING (workspace_id)
			WHERE earlier.epoch < later.epoch AND (earlier.ended_at IS NULL OR later.started_at < earlier.ended_at)
			UNION ALL SELECT 'a tenure ends before it began', id::text FROM t WHERE ended_at <= started_at
			UNION ALL SELECT 'a tenure began after its run ended', t.id::text FROM t JOIN heartbeat_runs r ON r.id = t.run_id
				WHERE t.started_at > r.finished_at
			UNION ALL SELECT 'document and history disagree', w.id::text FROM w
				LEFT JOIN t ON t.workspace_id = w.id AND t.ended_at IS NULL
				WHERE w.writer_run_id IS DISTINCT FROM t.run_id OR t.epoch <> w.epoch
			UNION ALL SELECT 'an epoch went down', w.id::text FROM w JOIN t ON t.workspace_id = w.id WHERE t.epoch > w.epoch
			UNION ALL SELECT 'a run holds two', writer_run_id::text FROM w WHERE writer_run_id IS NOT NULL
				GROUP BY writer_run_id HAVING count(*) > 1
			UNION ALL SELECT 'unsaved work of nobody', id::text FROM w WHERE dirty AND writer_run_id IS NULL
			UNION ALL SELECT 'closed with a writer', id::text FROM w
				WHERE status IN ('archived', 'cleanup_failed') AND writer_run_id IS NOT NULL
			UNION ALL SELECT 'the saved state is not there', w.id::text FROM w LEFT JOIN snapshots s
				ON s.id = w.snapshot_id AND s.workspace_id = w.id AND s.state IN ('committed', 'unavailable') WHERE s.id IS NULL
		) AS broken`, s.company); broken != "" {
		s.t.Errorf("%s", broken)
	}
}

func TestOfSixtyFourRacersExactlyOneWins(t *testing.T) {
	t.Parallel()
	const racers, rounds = 64, 50
	s := newCrowd(t, 16)
	workspace := s.free()
	workers := make([]worker, racers)
	var siblings []uuid.UUID
	for range 8 {
		siblings = append(siblings, s.boundTask(workspace))
	}
	for i := range workers {
		workers[i] = s.worker(siblings[i%len(siblings)])
	}
	for round := range rounds {
		var winner *Fence
		for i, r := range race(t, racers, func(i int) (Reservation, error) { return s.reserve(workers[i]) }) {
			if r.err != nil {
				s.wantCode("a loser", r.err, ErrWriterPending)
				continue
			}
			if winner != nil {
				t.Errorf("round %d: %s wins as well as %s", round, workers[i].RunID, winner.RunID)
			}
			winner = &Fence{workspace, workers[i].RunID, r.answer.Workspace.Authority.Epoch}
		}
		if winner == nil || winner.Epoch != int64(4+round) {
			t.Fatalf("round %d: the winner is %+v, want one at epoch %d", round, winner, 4+round)
		}
		_, err := s.Release(t.Context(), Principal{Role: RoleRun, CompanyID: s.company, RunID: winner.RunID}, *winner, false)
		s.wantNoError("release", err)
	}
	if n := s.count("SELECT count(*) FROM tenures WHERE workspace_id = $1", workspace); n != rounds {
		t.Errorf("there are %d tenures after %d rounds", n, rounds)
	}
	s.wantSoundHistory()
}

// Every way into a workspace ends at the same row: by its id, by a parent, by a choice that was
// applied, and by an operator for a run.
func TestOfEightByAnyWayInExactlyOneWins(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 12)
	for range 10 {
		workspace := s.free()
		parent := s.boundTask(workspace, "status", "done")
		var ways []func() (Reservation, error)
		for range 2 {
			byID, child, chosen, helped := s.worker(s.boundTask(workspace)), s.worker(s.child(parent)), s.chosen(workspace), s.worker(s.boundTask(workspace))
			ways = append(ways,
				func() (Reservation, error) {
					return s.reserve(byID, func(in *ReserveInput) { in.ExistingWorkspaceID = &workspace })
				},
				func() (Reservation, error) { return s.reserve(child) },
				func() (Reservation, error) {
					if _, _, err := s.ApplySelection(t.Context(), chosen.Principal, chosen.task, chosen.RunID); err != nil {
						return Reservation{}, err
					}
					return s.reserve(chosen)
				},
				func() (Reservation, error) {
					return s.Reserve(t.Context(), s.operator, ReserveInput{IssueID: helped.task, RunID: helped.RunID}, Once{})
				})
		}
		winners := 0
		for _, r := range race(t, len(ways), func(i int) (Reservation, error) { return ways[i]() }) {
			if r.err != nil {
				s.wantCode("a loser", r.err, ErrWriterPending)
				continue
			}
			winners++
			if got := r.answer.Workspace; got.ID != workspace || got.Authority.Epoch != 4 {
				t.Errorf("a winner got %+v", got)
			}
		}
		if winners != 1 {
			t.Errorf("%d won, want 1", winners)
		}
	}
	s.wantSoundHistory()
}

// child is a task that inherits its parent's workspace.
func (s *scene) child(parent uuid.UUID) uuid.UUID {
	s.t.Helper()
	child, err := s.CreateIssue(s.t.Context(), s.operator, s.company, IssueInput{Title: "Child", ParentID: &parent}, Once{})
	s.wantNoError("make a child", err)
	return child.ID
}

// chosen is a run whose task is to get the workspace at the run's admission.
func (s *scene) chosen(workspace uuid.UUID) worker {
	s.t.Helper()
	task := s.task()
	_, err := s.SelectWorkspace(s.t.Context(), s.operator, task, SelectionInput{
		Selection: Selection{Kind: SelectExisting, WorkspaceID: &workspace}, RequestKey: "choice",
	})
	s.wantNoError("choose a workspace", err)
	return s.worker(task)
}

func TestAReservationAndAClosingDoNotBothHappen(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 8)
	for range 30 {
		workspace := s.free()
		w := s.worker(s.boundTask(workspace))
		calls := race(t, 2, func(i int) (Workspace, error) {
			if i == 0 {
				return s.UpdateWorkspace(t.Context(), s.operator, workspace, WorkspacePatch{Status: new("archived")})
			}
			r, err := s.reserve(w)
			return r.Workspace, err
		})
		switch closing, reserving := calls[0].err, calls[1].err; {
		case closing == nil:
			s.wantCode("reserve what is closed", reserving, ErrOwnershipChanged)
		case reserving == nil:
			s.wantCode("close what is reserved", closing, ErrWorkspaceInUse)
		default:
			t.Errorf("neither happened: %v, %v", closing, reserving)
		}
	}
	s.wantSoundHistory()
}

func TestARunThatEndsWhileItReservesHoldsNothingUnseen(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 8)
	for round := range 40 {
		workspace := s.free()
		w := s.worker(s.boundTask(workspace))
		by := w.Principal
		if round%2 == 0 {
			by = s.operator
		}
		calls := race(t, 2, func(i int) (any, error) {
			if i == 0 {
				return s.FinishRun(t.Context(), by, w.RunID, FinishInput{Status: "failed"})
			}
			return s.reserve(w)
		})
		s.wantNoError("finish", calls[0].err)
		if calls[1].err != nil {
			s.wantCode("reserve after the end", calls[1].err, ErrRunIdentity)
		}
		holds := s.text("SELECT coalesce(writer_run_id::text, '') FROM execution_workspaces WHERE id = $1", workspace) != ""
		if want := calls[1].err == nil && by.Role == RoleOperator; holds != want {
			t.Errorf("ended by %s, reserved: %v; the run holds the workspace: %v", by.Role, calls[1].err, holds)
		}
	}
	s.wantSoundHistory()
}

func TestATakeoverAReleaseAndASaveAtOnceLeaveOneTruth(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 8)
	for range 30 {
		workspace := s.free()
		parent := s.snapshotOf(workspace)
		w, fence := s.writer(workspace)
		save := s.begin(w, fence, "content", parent)
		s.upload(w, fence, save, "content")
		calls := race(t, 3, func(i int) (any, error) {
			switch i {
			case 0:
				return s.Takeover(t.Context(), s.operator, workspace, acceptingRisk)
			case 1:
				return s.Release(t.Context(), w.Principal, fence, true)
			default:
				return s.CommitSnapshot(t.Context(), w.Principal, fence, save)
			}
		})
		epoch, how, current := fence.Epoch, "release", parent
		switch takeover, release := calls[0].err, calls[1].err; {
		case takeover == nil:
			epoch, how = fence.Epoch+1, "takeover"
			s.wantCode("release after a takeover", release, ErrTenureEnded)
		case release == nil:
			s.wantCode("take over what is free", takeover, ErrNoWriter)
		default:
			t.Errorf("neither ended the tenure: %v, %v", takeover, release)
		}
		if calls[2].err == nil {
			current = save
		} else {
			s.wantCode("save after the end", calls[2].err, ErrTenureEnded)
		}
		truth := s.text(`SELECT concat_ws(' ', w.epoch, t.ended_how, w.snapshot_id) FROM execution_workspaces w
			JOIN tenures t ON t.workspace_id = w.id WHERE w.id = $1 AND w.writer_run_id IS NULL`, workspace)
		if want := s.text("SELECT concat_ws(' ', $1::bigint, $2::text, $3::uuid)", epoch, how, current); truth != want {
			t.Errorf("the workspace is %q, want %q", truth, want)
		}
	}
	s.wantSoundHistory()
}

func TestARunThatReservesTwoWorkspacesAtOnceGetsOne(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 12)
	for range 20 {
		one, two := s.free(), s.free()
		w := s.worker(s.boundTask(one))
		granted := map[uuid.UUID]bool{}
		for _, r := range race(t, 8, func(i int) (Reservation, error) {
			if _, err := s.database.Pool.Exec(t.Context(), "UPDATE issues SET execution_workspace_id = $2 WHERE id = $1",
				w.task, []uuid.UUID{one, two}[i%2]); err != nil {
				return Reservation{}, err
			}
			return s.reserve(w)
		}) {
			if r.err != nil {
				s.wantCode("the other workspace", r.err, ErrRunHoldsWorkspace)
				continue
			}
			granted[r.answer.Workspace.ID] = true
		}
		if held := s.count("SELECT count(*) FROM execution_workspaces WHERE writer_run_id = $1", w.RunID); len(granted) != 1 || held != 1 {
			t.Errorf("the run was granted %v and holds %d", granted, held)
		}
	}
	s.wantSoundHistory()
}

// Writers come and go as fast as they can, while the same workspace is closed, reopened and taken
// over. Whatever happens is an answer, and the history stays one line.
func TestInAnyTurmoilTheHistoryIsOneLine(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 12)
	workspace := s.free()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	task := s.boundTask(workspace)
	race(t, 10, func(i int) (any, error) {
		for ctx.Err() == nil {
			switch i {
			case 0:
				_, err := s.Takeover(t.Context(), s.operator, workspace, acceptingRisk)
				wantKnown(t, "take over", err)
			case 1:
				for _, status := range []string{"archived", "active"} {
					_, err := s.UpdateWorkspace(t.Context(), s.operator, workspace, WorkspacePatch{Status: &status})
					wantKnown(t, "close and reopen", err)
				}
			default:
				run, _, err := s.CreateRun(t.Context(), s.operator, s.company, RunInput{AgentID: s.agent, IssueID: &task}, Once{})
				if err != nil {
					t.Errorf("start a run: %v", err)
					return nil, err
				}
				s.turn(t, worker{Principal{Role: RoleRun, CompanyID: s.company, AgentID: s.agent, RunID: run.ID}, task})
			}
		}
		return nil, nil //nolint:nilnil // nothing to say
	})
	if n := s.count("SELECT count(*) FROM tenures WHERE workspace_id = $1", workspace); n == 0 {
		t.Error("nobody got in")
	}
	s.wantSoundHistory()
}

// turn is what a run does in a turmoil: reserve, renew, mark, and end in one of the ways.
func (s *scene) turn(t *testing.T, w worker) {
	t.Helper()
	r, err := s.reserve(w)
	wantKnown(t, "reserve", err)
	if err == nil {
		fence := Fence{r.Workspace.ID, w.RunID, r.Workspace.Authority.Epoch}
		_, err = s.Renew(t.Context(), w.Principal, fence)
		wantKnown(t, "renew", err)
		_, err = s.MarkDirty(t.Context(), w.Principal, fence)
		wantKnown(t, "mark dirty", err)
		if fence.Epoch%2 == 0 {
			_, err = s.Release(t.Context(), w.Principal, fence, true)
			wantKnown(t, "release", err)
		}
	}
	_, err = s.FinishRun(t.Context(), w.Principal, w.RunID, FinishInput{Status: "succeeded", Discard: true})
	wantKnown(t, "finish", err)
}
