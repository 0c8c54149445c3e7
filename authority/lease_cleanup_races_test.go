package authority

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

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
	// Nobody gets an answer before every server has asked for all that it claims at first.
	did := make([]CleanupSweep, 4)
	var asked atomic.Int64
	all := make(chan struct{})
	p.park.change(func(k *park) {
		k.during = func(string, string) {
			if asked.Add(1) == int64(len(did)*cleanupsAtOnce) {
				close(all)
			}
			<-all
		}
	})
	var sweeps []func() error
	for i := range did {
		server := p.another()
		sweeps = append(sweeps, func() (err error) {
			did[i], err = server.CleanUpLeases(t.Context())
			return err
		})
	}
	errs := together(sweeps...)
	for _, err := range errs {
		p.wantNoError("sweep", err)
	}
	var sum CleanupSweep
	for _, one := range did {
		sum.Begun += one.Begun
		sum.Settled += one.Settled
		sum.Failed += one.Failed
	}
	if want := (CleanupSweep{Begun: leases, Settled: leases}); sum != want {
		t.Errorf("together they did %+v, want %+v", sum, want)
	}
	for _, machine := range machines {
		if asked, destroyed := p.park.times("state", machine), p.park.times("destroy", machine); asked != 1 || destroyed != 1 {
			t.Errorf("a machine was asked for %d times, and destroyed %d times", asked, destroyed)
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
				got, err = p.Reserve(t.Context(), second.Principal, ReserveInput{IssueID: second.task, RunID: second.RunID}, Once{})
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
