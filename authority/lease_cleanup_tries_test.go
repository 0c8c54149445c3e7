package authority

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"berth/provider"
)

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
		if !p.sighted(lease) {
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
	if p.sighted(lease) || p.count("SELECT count(*) FROM termination_receipts") > 0 {
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
	told := func() int { return p.count("SELECT count(*) FROM events WHERE kind = 'lease.cleanup_failing'") }
	p.wantSweep(CleanupSweep{Begun: 3, HeldBack: 3})
	if n := told(); n != 0 {
		t.Errorf("people were told %d times before anybody had the time to bring a receipt", n)
	}
	for range 3 {
		p.due()
		p.wantSweep(CleanupSweep{HeldBack: 3})
	}
	for _, lease := range leases {
		p.wantLease("left alone", lease, "pending_cleanup/pending")
	}
	if n := told(); n != len(leases) {
		t.Errorf("people were told %d times of %d leases", n, len(leases))
	}
	debt, err := p.CleanupDebt(t.Context())
	if err != nil || debt.UnknownProvider != 3 || debt.Pending+debt.Failing+debt.HeldBack != 0 || debt.Oldest != 0 {
		t.Errorf("the debt is %+v, %v", debt, err)
	}
}
