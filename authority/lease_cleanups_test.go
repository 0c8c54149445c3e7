package authority

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

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
	return New(p.database.Pool, p.store, p.log, WithProviders(p.park))
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

func TestAFailedCleanUpComesAgainLaterAndLaterAndTellsPeopleOnce(t *testing.T) {
	t.Parallel()
	p := newParked(t)
	w := p.loose()
	lease, _ := p.rented(w)
	p.end(w, "succeeded")
	const secret = "token-of-the-provider"
	p.park.change(func(p *park) { p.failing = errors.New("denied: " + secret) })
	low, high := 30.0, 37.5
	for try := 1; try <= 12; try++ {
		if try > 1 {
			p.wantSweep(CleanupSweep{}) // it is not due yet
			p.due()
		}
		p.wantSweep(CleanupSweep{Begun: min(1, max(0, 2-try)), Failed: 1})
		p.wantLease("after a failure", lease, "pending_cleanup/failed")
		wait := p.text("SELECT extract(epoch FROM next_attempt_at - last_attempt_at)::text FROM lease_cleanups WHERE lease_id = $1", lease)
		var seconds float64
		if _, err := fmt.Sscan(wait, &seconds); err != nil || seconds < low-1 || seconds > high+5 {
			t.Errorf("after failure %d the next try comes in %s s, want %.0f to %.0f", try, wait, low, high)
		}
		low, high = min(2*low, 1800), min(2*high, 1800)
		want := 0
		if try >= cleanupWarnAfter {
			want = 1
		}
		if told := p.count("SELECT count(*) FROM events WHERE kind = 'lease.cleanup_failing' AND run_id = $1", w.RunID); told != want {
			t.Fatalf("after failure %d people were told %d times, want %d", try, told, want)
		}
	}
	if got := p.cleanup(lease, "last_error_kind"); got != "unreachable" {
		t.Errorf("the error's kind is %q", got)
	}
	told := p.text("SELECT data::text FROM events WHERE kind = 'lease.cleanup_failing'")
	if n := strings.Count(p.said.String(), "cannot be cleaned up"); n != 1 || !strings.Contains(told, `"unreachable"`) {
		t.Errorf("the log warns %d times; the event says %s", n, told)
	}
	if strings.Contains(p.said.String()+told+p.text("SELECT jsonb_agg(c)::text FROM lease_cleanups c"), secret) {
		t.Error("what the provider sent is kept")
	}
	p.park.change(func(p *park) { p.failing = nil })
	p.due()
	p.wantSweep(CleanupSweep{Settled: 1})
}

func TestNotFoundIsAnEndOnlyForAMachineTheProviderOnceKnew(t *testing.T) {
	t.Parallel()
	p := newParked(t)
	w := p.loose()
	never := p.lease(w, "provider_lease_id", "never-known")
	known, machine := p.rented(w)
	elsewhere, moved := p.rented(w)
	p.end(w, "succeeded")
	p.park.change(func(p *park) { p.deaf = true })
	p.wantSweep(CleanupSweep{Begun: 3, Failed: 3})
	for _, lease := range []uuid.UUID{known, elsewhere} {
		if p.cleanup(lease, "seen_at") == "" {
			t.Fatal("it is not remembered that the provider answered by the machine's id")
		}
	}
	p.park.change(func(p *park) { delete(p.machines, machine) })
	p.due()
	p.wantSweep(CleanupSweep{Settled: 1, Failed: 2})
	p.wantLease("known and gone", known, "expired/success")
	p.wantLease("never known", never, "pending_cleanup/failed")
	if kind := p.cleanup(never, "last_error_kind"); kind != "not_found" {
		t.Errorf("the machine that was never known failed by %q", kind)
	}
	// Another account knows no machine at all, and its word is none about this one.
	p.exec(`UPDATE environments SET config = '{"account": "other"}'`)
	p.park.change(func(p *park) { p.config = func(config string) bool { return !strings.Contains(config, "other") } })
	p.due()
	p.wantSweep(CleanupSweep{Failed: 2})
	if got := p.park.state(moved); got != provider.StateRunning {
		t.Fatalf("the machine is %s", got)
	}
	if got := p.proof(elsewhere); got == "termination destroyed" {
		t.Error("a machine that runs is proven gone, by another account's word")
	}
}

func TestAnAnswerAboutAnotherMachineProvesNothing(t *testing.T) {
	t.Parallel()
	p := newParked(t)
	w := p.loose()
	lease, machine := p.rented(w)
	p.end(w, "succeeded")
	p.park.set(machine, provider.StateDestroyed)
	p.park.change(func(p *park) { p.lie = "m-other" })
	p.wantSweep(CleanupSweep{Begun: 1, Failed: 1})
	if kind := p.cleanup(lease, "last_error_kind"); kind != failedByOtherMachine {
		t.Errorf("it failed by %q", kind)
	}
	if p.cleanup(lease, "seen_at") != "" || p.count("SELECT count(*) FROM termination_receipts") > 0 {
		t.Error("the answer was taken for this machine's")
	}
}

func TestTheMachineOfAnUnknownProviderIsLeftAloneAndToldOfOnce(t *testing.T) {
	t.Parallel()
	p := newParked(t)
	w := p.loose()
	var leases []uuid.UUID
	for _, name := range []any{"other", "local", nil} {
		leases = append(leases, p.lease(w, "provider", name))
	}
	p.end(w, "succeeded")
	p.wantSweep(CleanupSweep{Begun: 3, HeldBack: 3})
	p.due()
	p.wantSweep(CleanupSweep{HeldBack: 3})
	for _, lease := range leases {
		p.wantLease("left alone", lease, "pending_cleanup/pending")
	}
	if told := p.count("SELECT count(*) FROM events WHERE kind = 'lease.cleanup_failing'"); told != len(leases) {
		t.Errorf("people were told %d times of %d leases", told, len(leases))
	}
	debt, err := p.CleanupDebt(t.Context())
	if err != nil || debt.UnknownProvider != 3 || debt.Pending+debt.Failing+debt.HeldBack != 0 || debt.Oldest != 0 {
		t.Errorf("the debt is %+v, %v", debt, err)
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

func TestAnOperatorsReceiptSettlesWhatTheSweepIsAt(t *testing.T) {
	t.Parallel()
	p := newParked(t)
	w := p.loose()
	lease, machine := p.rented(w)
	p.end(w, "succeeded")
	byHand := ReceiptInput{ProviderLeaseID: machine, State: stateDestroyed, Kind: receiptTermination}
	var once sync.Once
	p.park.change(func(k *park) {
		k.during = func(string, string) {
			once.Do(func() {
				_, _, err := p.RecordReceipt(context.WithoutCancel(t.Context()), p.operator, lease, byHand)
				p.wantNoError("record a receipt by hand", err)
			})
		}
	})
	p.wantSweep(CleanupSweep{Begun: 1}) // and then nothing: the lease moved on
	if n := p.count("SELECT count(*) FROM termination_receipts"); n != 1 {
		t.Errorf("%d receipts", n)
	}
	p.wantLease("by hand", lease, "expired/success")
	p.sweep()
	if p.cleanup(lease, "settled_at") == "" {
		t.Error("the clean-up is not settled by the operator's receipt")
	}
}

func TestAStaleSweepChangesNothing(t *testing.T) {
	t.Parallel()
	for stale, happens := range map[string]string{
		"its claim ran out":           "UPDATE lease_cleanups SET claimed_until = clock_timestamp(), next_attempt_at = clock_timestamp() + interval '1 hour'",
		"another server claimed it":   "UPDATE lease_cleanups SET claimed_by = gen_random_uuid()",
		"an operator moved the lease": "UPDATE environment_leases SET status = 'failed'",
	} {
		t.Run(stale, func(t *testing.T) {
			t.Parallel()
			p := newParked(t)
			w := p.loose()
			lease, _ := p.rented(w)
			p.end(w, "succeeded")
			rows := func() string {
				return p.text(`SELECT to_jsonb(l)::text || to_jsonb(c)::text || (SELECT count(*) FROM termination_receipts)
					FROM environment_leases l JOIN lease_cleanups c ON c.lease_id = l.id WHERE l.id = $1`, lease)
			}
			var before string
			var once sync.Once
			p.park.change(func(k *park) {
				k.during = func(string, string) { once.Do(func() { p.exec(happens); before = rows() }) }
			})
			p.wantSweep(CleanupSweep{Begun: 1})
			if after := rows(); after != before {
				t.Errorf("a stale sweep changed rows:\n%s\n%s", before, after)
			}
		})
	}
}

func TestServersThatSweepAtOnceTryEachLeaseOnce(t *testing.T) {
	t.Parallel()
	p := newParked(t)
	const leases = 200
	var machines []string
	for range 20 {
		w := p.loose()
		for range leases / 20 {
			_, machine := p.rented(w)
			machines = append(machines, machine)
		}
		p.end(w, "succeeded")
	}
	var sweeps []func() error
	did := make([]CleanupSweep, 4)
	for i := range did {
		server := p.another()
		sweeps = append(sweeps, func() (err error) {
			did[i], err = server.CleanUpLeases(t.Context())
			return err
		})
	}
	for _, err := range together(sweeps...) {
		p.wantNoError("sweep", err)
	}
	var all CleanupSweep
	for _, one := range did {
		all.Begun += one.Begun
		all.Settled += one.Settled
		all.Failed += one.Failed
	}
	if want := (CleanupSweep{Begun: leases, Settled: leases}); all != want {
		t.Errorf("together they did %+v, want %+v", all, want)
	}
	for _, machine := range machines {
		if n := p.park.times("destroy", machine); n != 1 {
			t.Errorf("a machine was destroyed %d times", n)
		}
	}
}

func TestSweepsAReservationAndAnOperatorAtOnceLeaveOneStory(t *testing.T) {
	t.Parallel()
	p := newParked(t)
	workspace := p.free()
	for round := range 40 {
		first, f := p.writer(workspace)
		lease, machine := p.rented(first)
		p.end(first, "failed")
		second := p.worker(p.boundTask(workspace))
		var got Reservation
		errs := together(
			func() error { _, err := p.CleanUpLeases(t.Context()); return err },
			func() error { _, err := p.another().CleanUpLeases(t.Context()); return err },
			func() (err error) {
				got, err = p.Service.Reserve(t.Context(), second.Principal, ReserveInput{IssueID: second.task, RunID: second.RunID}, Once{})
				return err
			},
			func() error {
				_, _, err := p.RecordReceipt(t.Context(), p.operator, lease,
					ReceiptInput{ProviderLeaseID: machine, State: stateStopped, Kind: receiptTermination})
				return err
			},
		)
		for i, err := range errs {
			var refused *Refusal
			if err != nil && (i != 2 || !errors.As(err, &refused) || refused.Code != ErrWriterPending.Code) {
				t.Fatalf("round %d, caller %d: %v", round, i, err)
			}
		}
		if errs[2] != nil { // it came before the proof
			got = must(p.reserve(second))(t)
		}
		if epoch := got.Workspace.Authority.Epoch; epoch != f.Epoch+1 || got.Handover == nil || got.Handover.Kind != "proof" {
			t.Fatalf("round %d: epoch %d after %d, handover %+v", round, epoch, f.Epoch, got.Handover)
		}
		p.sweep()
		if n := p.count(`SELECT count(*) FROM environment_leases l JOIN lease_cleanups c ON c.lease_id = l.id
			WHERE l.id = $1 AND l.cleanup_status = 'success' AND c.settled_at IS NULL`, lease); n > 0 {
			t.Fatalf("round %d: the clean-up of a clean lease is not settled", round)
		}
		_, err := p.Release(t.Context(), second.Principal, Fence{WorkspaceID: workspace, RunID: second.RunID, Epoch: f.Epoch + 1}, false)
		p.wantNoError("release", err)
	}
}
