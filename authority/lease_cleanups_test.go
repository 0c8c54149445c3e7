package authority

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"berth/provider"
)

// parked is a scene whose machines are in a park, with its log.
type parked struct {
	*scene
	park *park
	log  *slog.Logger
	said *bytes.Buffer // what the log holds
}

func newParked(t *testing.T) *parked {
	t.Helper()
	p := &parked{scene: newScene(t), park: newPark(), said: &bytes.Buffer{}}
	p.log = slog.New(slog.NewTextHandler(p.said, nil))
	p.Service = p.another()
	return p
}

// another is one more server on the same database, store and providers.
func (p *parked) another() *Service {
	return New(p.database.Pool, p.store, p.log, WithProviders(p.park), WithCleanupAfter(0))
}

// rented is a lease of the run on a machine that runs in the park.
func (p *parked) rented(w worker, columns ...any) (lease uuid.UUID, machine string) {
	p.t.Helper()
	machine = "m-" + uuid.NewString()
	p.park.set(machine, provider.StateRunning)
	return p.lease(w, append([]any{"provider_lease_id", machine}, columns...)...), machine
}

// loose is a run without a workspace.
func (p *parked) loose() worker {
	p.t.Helper()
	return p.worker(p.task())
}

func (p *parked) sweep() CleanupSweep {
	p.t.Helper()
	did, err := p.CleanUpLeases(p.t.Context())
	p.wantNoError("sweep", err)
	return did
}

func (p *parked) wantSweep(want CleanupSweep) {
	p.t.Helper()
	if did := p.sweep(); did != want {
		p.t.Fatalf("the sweep did %+v, want %+v", did, want)
	}
}

// due makes all clean-ups due, as the database's clock would after a while.
func (p *parked) due() {
	p.t.Helper()
	p.exec("UPDATE lease_cleanups SET next_attempt_at = clock_timestamp() WHERE settled_at IS NULL")
}

// wantLease compares a lease's status and clean-up with "status/cleanupStatus".
func (p *parked) wantLease(what string, lease uuid.UUID, want string) {
	p.t.Helper()
	if got := p.text("SELECT concat_ws('/', status, cleanup_status) FROM environment_leases WHERE id = $1", lease); got != want {
		p.t.Fatalf("%s: the lease is %s, want %s", what, got, want)
	}
}

// proof is the kind and state of the receipt that proves the lease's machine stopped, or why there is none.
func (p *parked) proof(lease uuid.UUID) string {
	p.t.Helper()
	return p.text(`SELECT coalesce(t.kind || ' ' || t.state, p.missing) FROM lease_proofs p
		LEFT JOIN termination_receipts t ON t.id = p.receipt_id WHERE p.lease_id = $1`, lease)
}

func (p *parked) cleanup(lease uuid.UUID, column string) string {
	p.t.Helper()
	return p.text("SELECT "+column+"::text FROM lease_cleanups WHERE lease_id = $1", lease)
}

// sighted reports whether it is remembered that the provider knew the lease's machine.
func (p *parked) sighted(lease uuid.UUID) bool {
	p.t.Helper()
	return p.count("SELECT count(*) FROM lease_sightings WHERE lease_id = $1", lease) == 1
}

func TestTheMachineOfAnEndedRunIsDestroyedByWhateverRouteItEnded(t *testing.T) {
	t.Parallel()
	for route, end := range map[string]func(p *parked, w worker, f Fence) error{
		"released, then finished by its own token": func(p *parked, w worker, f Fence) error {
			if _, err := p.Release(t.Context(), w.Principal, f, false); err != nil {
				return err
			}
			_, err := p.FinishRun(t.Context(), w.Principal, w.RunID, FinishInput{Status: "succeeded"})
			return err
		},
		"finished by its own token": func(p *parked, w worker, _ Fence) error {
			_, err := p.FinishRun(t.Context(), w.Principal, w.RunID, FinishInput{Status: "failed"})
			return err
		},
		"ended by an operator": func(p *parked, w worker, _ Fence) error {
			_, err := p.FinishRun(t.Context(), p.operator, w.RunID, FinishInput{Status: "timed_out"})
			return err
		},
		"taken over, then ended": func(p *parked, w worker, f Fence) error {
			if _, err := p.Takeover(t.Context(), p.operator, f.WorkspaceID, TakeoverInput{Reason: "test", AcceptRisk: true}); err != nil {
				return err
			}
			_, err := p.FinishRun(t.Context(), p.operator, w.RunID, FinishInput{Status: "cancelled"})
			return err
		},
	} {
		t.Run(route, func(t *testing.T) {
			t.Parallel()
			p := newParked(t)
			w, f := p.writer(p.free())
			lease, machine := p.rented(w)
			p.wantSweep(CleanupSweep{}) // the run goes on
			if n := p.park.times("state", machine); n > 0 {
				t.Error("the machine of a running run was asked for")
			}
			p.wantNoError("end the run", end(p, w, f))
			p.wantSweep(CleanupSweep{Begun: 1, Settled: 1})
			p.wantLease("after the sweep", lease, "expired/success")
			if got := p.park.state(machine); got != provider.StateDestroyed {
				t.Errorf("the machine is %s", got)
			}
			if got := p.proof(lease); got != "termination destroyed" {
				t.Errorf("the proof is %q", got)
			}
			if by := p.text("SELECT recorded_by FROM termination_receipts WHERE lease_id = $1", lease); by != cleanupActor {
				t.Errorf("recorded by %q", by)
			}
			p.due()
			p.wantSweep(CleanupSweep{})
		})
	}
}

func TestUnsavedWorkIsStoppedOverAndItsMachineKeptUntilTheWorkIsGivenUp(t *testing.T) {
	t.Parallel()
	for kept, columns := range map[string][]any{
		"recovery_cleanup": nil,
		"retained":         {"status", "retained", "failure_reason", failureUnsaved},
	} {
		t.Run(kept, func(t *testing.T) {
			t.Parallel()
			p := newParked(t)
			w, f := p.writer(p.free())
			lease, machine := p.rented(w, columns...)
			_, err := p.MarkDirty(t.Context(), w.Principal, f)
			p.wantNoError("mark dirty", err)
			p.end(w, "failed")
			p.wantSweep(CleanupSweep{Begun: 1, Stopped: 1})
			for range 3 {
				if got := p.park.state(machine); got != provider.StateStopped {
					t.Fatalf("the machine with unsaved work is %s", got)
				}
				if got := p.proof(lease); got != kept+" stopped" {
					t.Fatalf("the proof is %q", got)
				}
				p.due()
				p.wantSweep(CleanupSweep{HeldBack: 1})
			}
			if by := p.cleanup(lease, "held_back_by"); by != heldByUnsavedWork {
				t.Errorf("held back by %q", by)
			}
			_, err = p.Takeover(t.Context(), p.operator, f.WorkspaceID, TakeoverInput{Reason: "the work is not needed"})
			p.wantNoError("take over", err)
			before := p.row(f.WorkspaceID)
			p.due()
			p.wantSweep(CleanupSweep{Settled: 1})
			p.wantLease("after the takeover", lease, "expired/success")
			if got := p.park.state(machine); got != provider.StateDestroyed {
				t.Errorf("the machine is %s", got)
			}
			if after := p.row(f.WorkspaceID); after != before {
				t.Errorf("the clean-up changed the workspace:\n%s\n%s", before, after)
			}
		})
	}
}

func TestALaterFailureNeverTouchesTheNewWriter(t *testing.T) {
	t.Parallel()
	p := newParked(t)
	first, f := p.writer(p.free())
	lease, machine := p.rented(first)
	p.end(first, "failed")
	// The machine stops, and its provider does not get it destroyed.
	p.park.set(machine, provider.StateStopped)
	p.park.change(func(p *park) { p.deaf = true })
	p.wantSweep(CleanupSweep{Begun: 1, Failed: 1})
	p.wantLease("not destroyed", lease, "pending_cleanup/failed")
	if got := p.proof(lease); got != "recovery_cleanup stopped" {
		t.Fatalf("the proof is %q: a machine that stopped and is not destroyed keeps nobody out", got)
	}
	second := p.worker(p.boundTask(f.WorkspaceID))
	after := p.mustReserve(second)
	if after.Epoch != f.Epoch+1 {
		t.Fatalf("handed over at epoch %d after %d", after.Epoch, f.Epoch)
	}
	_, err := p.MarkDirty(t.Context(), second.Principal, after)
	p.wantNoError("mark dirty", err)
	whole := func() string {
		return p.row(f.WorkspaceID) + p.text("SELECT jsonb_agg(t ORDER BY epoch)::text FROM tenures t WHERE workspace_id = $1", f.WorkspaceID)
	}
	before := whole()
	for range cleanupWarnAfter {
		p.due()
		p.wantSweep(CleanupSweep{Failed: 1})
	}
	p.park.change(func(p *park) { p.deaf = false })
	p.due()
	p.wantSweep(CleanupSweep{Settled: 1})
	if got := whole(); got != before {
		t.Errorf("the clean-up after a handover changed the workspace:\n%s\n%s", before, got)
	}
	if _, err := p.Renew(t.Context(), second.Principal, after); err != nil {
		t.Errorf("the new writer: %v", err)
	}
}

func TestAMachineInUseByAnotherRunIsLeftAlone(t *testing.T) {
	t.Parallel()
	p := newParked(t)
	first, second := p.loose(), p.loose()
	old, machine := p.rented(first)
	p.end(first, "succeeded")
	reused := p.lease(second, "provider_lease_id", machine)
	p.wantSweep(CleanupSweep{Begun: 1, HeldBack: 1})
	if by := p.cleanup(old, "held_back_by"); by != heldByUse {
		t.Errorf("held back by %q", by)
	}
	if got := p.park.state(machine); got != provider.StateRunning {
		t.Fatalf("the machine of a running run is %s", got)
	}
	p.end(second, "succeeded")
	p.due()
	p.wantSweep(CleanupSweep{Begun: 1, Settled: 2})
	for _, lease := range []uuid.UUID{old, reused} {
		p.wantLease("after both runs", lease, "expired/success")
	}
}

func TestPoliciesSayWhetherAMachineIsStoppedOrDestroyed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ policy, run, lease string }{
		{"ephemeral", "failed", "expired/success"},
		{"reuse_by_environment", "succeeded", "released/success"},
		{"reuse_by_execution_workspace", "failed", "released/success"},
		{"retain_on_failure", "succeeded", "expired/success"},
		{"retain_on_failure", "failed", "released/success"},
	} {
		t.Run(c.policy+" "+c.run, func(t *testing.T) {
			t.Parallel()
			p := newParked(t)
			w := p.loose()
			lease, _ := p.rented(w, "lease_policy", c.policy)
			p.end(w, c.run)
			p.wantSweep(CleanupSweep{Begun: 1, Settled: 1})
			p.wantLease("after the sweep", lease, c.lease)
		})
	}
}

func TestALeaseThatSomebodyGaveUpIsNotAbandoned(t *testing.T) {
	t.Parallel()
	p := newParked(t)
	w := p.loose()
	for _, columns := range [][]any{
		{"status", "failed"},
		{"status", "failed", "cleanup_status", "failed"},
		{"status", "expired"},
		{"status", "released", "cleanup_status", "failed"},
		{"status", "pending_cleanup"},
	} {
		p.rented(w, columns...)
	}
	theirs, _ := p.rented(w, "status", "released")
	kept, _ := p.rented(w, "status", "retained", "failure_reason", "somebody looks at it")
	files, _ := p.rented(w, "status", "retained", "failure_reason", failureUnsaved)
	p.end(w, "failed")
	p.wantSweep(CleanupSweep{Begun: 6, Settled: 5, Stopped: 1})
	p.wantLease("released by somebody's word", theirs, "released")
	p.wantLease("retained for another reason", kept, "retained")
	p.wantLease("retained with files that no workspace knows", files, "retained")
	if got := p.proof(files); got != "retained stopped" {
		t.Errorf("the proof is %q", got)
	}
}

func TestWhoeverHoldsAMachineGetsAMomentToEndItByItself(t *testing.T) {
	t.Parallel()
	p := newParked(t)
	p.Service = New(p.database.Pool, p.store, p.log, WithProviders(p.park))
	w := p.loose()
	lease, _ := p.rented(w)
	p.end(w, "succeeded")
	p.wantSweep(CleanupSweep{})
	p.wantLease("right after the run", lease, "active")
	late := p.loose()
	ago := time.Now().Add(-time.Minute)
	old, _ := p.rented(late, "acquired_at", ago, "created_at", ago)
	p.exec("UPDATE heartbeat_runs SET status = 'failed', finished_at = $2 WHERE id = $1", late.RunID, ago)
	p.wantSweep(CleanupSweep{Begun: 1, Settled: 1})
	p.wantLease("a minute after the run", old, "expired/success")
}
