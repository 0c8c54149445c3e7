package authority

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func TestAReceiptIsRejectedWithItsReason(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	run := k.runOf(k.worker, nil)
	other := k.runOf(k.worker, nil)
	const machine = "sandbox"
	good := ReceiptInput{ProviderLeaseID: machine, State: "stopped", Kind: "termination", RunID: &run.ID}
	for what, c := range map[string]struct {
		lease  func(in *LeaseInput)
		change func(in *ReceiptInput)
		want   string
	}{
		"a lease without a run":          {func(in *LeaseInput) { in.HeartbeatRunID = nil }, nil, "lease_without_run"},
		"a local machine":                {func(in *LeaseInput) { in.Provider = ptr("local") }, nil, "provider_local"},
		"a machine of no provider":       {func(in *LeaseInput) { in.Provider = nil }, nil, "provider_local"},
		"a provider without a name":      {func(in *LeaseInput) { in.Provider = ptr("") }, nil, "provider_local"},
		"a lease without a machine's id": {func(in *LeaseInput) { in.ProviderLeaseID = nil }, nil, "provider_lease_mismatch"},
		"an empty machine's id": {
			func(in *LeaseInput) { in.ProviderLeaseID = ptr("") },
			func(in *ReceiptInput) { in.ProviderLeaseID = "" }, "provider_lease_mismatch",
		},
		"another machine":     {nil, func(in *ReceiptInput) { in.ProviderLeaseID = "sandbox-2" }, "provider_lease_mismatch"},
		"another run":         {nil, func(in *ReceiptInput) { in.RunID = &other.ID }, "lease_run_mismatch"},
		"a running machine":   {nil, func(in *ReceiptInput) { in.State = "running" }, "state_not_final"},
		"a stopping machine":  {nil, func(in *ReceiptInput) { in.State = "stopping" }, "state_not_final"},
		"a state of no name":  {nil, func(in *ReceiptInput) { in.State = "" }, "state_not_final"},
		"a stop by this run":  {nil, nil, ""},
		"a stop by whichever": {nil, func(in *ReceiptInput) { in.RunID = nil }, ""},
	} {
		lease := k.lease(&run.ID, func(in *LeaseInput) {
			in.ProviderLeaseID = ptr(machine)
			if c.lease != nil {
				c.lease(in)
			}
		})
		in := good
		if c.change != nil {
			c.change(&in)
		}
		_, _, err := k.RecordReceipt(t.Context(), k.operator, lease.ID, in)
		if c.want == "" {
			wantRefusal(t, what, err, nil)
			continue
		}
		wantRefusal(t, what, err, ErrReceiptRejected)
		var refused *Refusal
		if errors.As(err, &refused) {
			if diff := cmp.Diff(ReceiptRejection{Reason: c.want}, refused.Details); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		if after := must(k.GetLease(t.Context(), k.operator, lease.ID))(t); after.Status != "active" {
			t.Errorf("%s moved the lease to %s", what, after.Status)
		}
	}
	_, _, err := k.RecordReceipt(t.Context(), k.operator, uuid.New(), good)
	wantRefusal(t, "no such lease", err, ErrLeaseNotFound)
	for _, kind := range []string{"", "end"} {
		in := good
		in.Kind = kind
		_, _, err := k.RecordReceipt(t.Context(), k.operator, uuid.New(), in)
		wantField(t, "a receipt of kind "+kind, err, "body.kind")
	}
	for _, kind := range []string{"retained", "recovery_cleanup"} {
		_, _, err := k.RecordReceipt(t.Context(), k.operator, uuid.New(), ReceiptInput{State: "destroyed", Kind: kind})
		wantField(t, "a destroyed machine that is "+kind, err, "body.kind")
	}
}

// leaseState is what a receipt moves in a lease.
type leaseState struct {
	Status, Cleanup, Failure string
	Released                 bool
}

func stateOf(lease Lease) leaseState {
	state := leaseState{Status: lease.Status, Released: lease.ReleasedAt != nil}
	if lease.CleanupStatus != nil {
		state.Cleanup = *lease.CleanupStatus
	}
	if lease.FailureReason != nil {
		state.Failure = *lease.FailureReason
	}
	return state
}

func TestAReceiptMovesItsLeaseForward(t *testing.T) {
	t.Parallel()
	const unsaved = "work_folder_save_required"
	stopped := ReceiptInput{State: "stopped", Kind: "termination"}
	destroyed := ReceiptInput{State: "destroyed", Kind: "termination"}
	retained := ReceiptInput{State: "stopped", Kind: "retained"}
	cleanup := ReceiptInput{State: "stopped", Kind: "recovery_cleanup"}
	k := newKit(t)
	run := k.runOf(k.worker, nil)
	for what, c := range map[string]struct {
		from     leaseState
		receipts []ReceiptInput
		want     leaseState
		refused  bool
		proven   bool
	}{
		"stopped":              {leaseState{Status: "active"}, []ReceiptInput{stopped}, leaseState{"released", "success", "", true}, false, true},
		"destroyed":            {leaseState{Status: "active"}, []ReceiptInput{destroyed}, leaseState{"expired", "success", "", true}, false, true},
		"stopped after a fail": {leaseState{Status: "failed", Failure: "x"}, []ReceiptInput{stopped}, leaseState{"released", "success", "x", true}, false, true},
		"kept":                 {leaseState{Status: "active"}, []ReceiptInput{retained}, leaseState{"retained", "", unsaved, false}, false, true},
		"kept after a failure": {leaseState{Status: "failed", Failure: "x"}, []ReceiptInput{retained}, leaseState{"retained", "", unsaved, false}, false, true},
		"kept already":         {leaseState{Status: "retained"}, []ReceiptInput{retained}, leaseState{"retained", "", unsaved, false}, false, true},
		"to be cleaned":        {leaseState{Status: "active"}, []ReceiptInput{cleanup}, leaseState{"pending_cleanup", "pending", "", false}, false, true},
		"to be cleaned, again": {
			leaseState{Status: "pending_cleanup", Cleanup: "failed"}, []ReceiptInput{cleanup}, leaseState{"pending_cleanup", "failed", "", false}, false, true,
		},
		"released, and yet to be cleaned": {
			leaseState{Status: "released", Cleanup: "failed"}, []ReceiptInput{cleanup}, leaseState{"pending_cleanup", "failed", "", false}, false, true,
		},
		"kept, cleaned, destroyed": {
			leaseState{Status: "active"}, []ReceiptInput{retained, cleanup, destroyed}, leaseState{"expired", "success", unsaved, true}, false, true,
		},
		"stopped, then destroyed":   {leaseState{Status: "active"}, []ReceiptInput{stopped, destroyed}, leaseState{"expired", "success", "", true}, false, true},
		"destroyed, then stopped":   {leaseState{Status: "active"}, []ReceiptInput{destroyed, stopped}, leaseState{"expired", "success", "", true}, false, true},
		"stopped, then kept":        {leaseState{Status: "active"}, []ReceiptInput{stopped, retained}, leaseState{"released", "success", "", true}, true, true},
		"stopped, then to cleaned":  {leaseState{Status: "active"}, []ReceiptInput{stopped, cleanup}, leaseState{"released", "success", "", true}, true, true},
		"to be cleaned, then kept":  {leaseState{Status: "active"}, []ReceiptInput{cleanup, retained}, leaseState{"pending_cleanup", "pending", "", false}, true, true},
		"released unclean and kept": {leaseState{Status: "released"}, []ReceiptInput{retained}, leaseState{Status: "released"}, true, false},
	} {
		lease := k.lease(&run.ID, func(in *LeaseInput) {
			in.Status = c.from.Status
			if c.from.Cleanup != "" {
				in.CleanupStatus = &c.from.Cleanup
			}
			if c.from.Failure != "" {
				in.FailureReason = &c.from.Failure
			}
		})
		var err error
		for _, in := range c.receipts {
			in.ProviderLeaseID = *lease.ProviderLeaseID
			_, _, err = k.RecordReceipt(t.Context(), k.operator, lease.ID, in)
		}
		want := ErrLeaseForward
		if !c.refused {
			want = nil
		}
		wantRefusal(t, what, err, want)
		if diff := cmp.Diff(c.want, stateOf(must(k.GetLease(t.Context(), k.operator, lease.ID))(t))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		var proven bool
		query := "SELECT receipt_id IS NOT NULL FROM lease_proofs WHERE lease_id = $1"
		if err := k.database.Pool.QueryRow(t.Context(), query, lease.ID).Scan(&proven); err != nil {
			t.Fatal(err)
		}
		if proven != c.proven {
			t.Errorf("%s: the stop is proven: %v, want %v", what, proven, c.proven)
		}
	}
}

func TestTheSameReceiptAgainChangesNothing(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	run := k.runOf(k.worker, nil)
	lease := k.lease(&run.ID, nil)
	retained := ReceiptInput{ProviderLeaseID: *lease.ProviderLeaseID, State: "stopped", Kind: "retained"}
	first, kept, err := k.RecordReceipt(t.Context(), k.operator, lease.ID, retained)
	if err != nil {
		t.Fatal(err)
	}
	want := Receipt{
		ID: first.ID, CompanyID: k.home, LeaseID: lease.ID, RunID: run.ID, Provider: "e2b", ProviderLeaseID: *lease.ProviderLeaseID,
		State: "stopped", Kind: "retained", RecordedBy: k.operator.Actor(), ConfirmedAt: first.ConfirmedAt,
	}
	if diff := cmp.Diff(want, first); diff != "" || first.ConfirmedAt.Before(lease.AcquiredAt) {
		t.Errorf("the receipt (-want +got):\n%s", diff)
	}
	again, same, err := k.RecordReceipt(t.Context(), k.operator, lease.ID, retained)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again) + cmp.Diff(kept, same); diff != "" {
		t.Errorf("the second answer differs:\n%s", diff)
	}
	destroyed := ReceiptInput{ProviderLeaseID: *lease.ProviderLeaseID, State: "destroyed", Kind: "termination"}
	_, gone, err := k.RecordReceipt(t.Context(), k.operator, lease.ID, destroyed)
	if err != nil {
		t.Fatal(err)
	}
	again, same, err = k.RecordReceipt(t.Context(), k.operator, lease.ID, retained)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again) + cmp.Diff(gone, same); diff != "" {
		t.Errorf("a late repetition answers another receipt, or moved the lease back:\n%s", diff)
	}
}

func TestOfManyEqualReceiptsAtOnceOneIsStored(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	run := k.runOf(k.worker, nil)
	lease := k.lease(&run.ID, nil)
	in := ReceiptInput{ProviderLeaseID: *lease.ProviderLeaseID, State: "stopped", Kind: "termination"}
	receipts := make([]Receipt, 12)
	var calls []func() error
	for i := range receipts {
		calls = append(calls, func() (err error) {
			receipts[i], _, err = k.RecordReceipt(t.Context(), k.operator, lease.ID, in)
			return err
		})
	}
	for i, err := range together(calls...) {
		if err != nil {
			t.Fatal(err)
		}
		if receipts[i].ID != receipts[0].ID {
			t.Errorf("receipts %s and %s were stored", receipts[i].ID, receipts[0].ID)
		}
	}
}

func TestAReceiptLetsTheNextRunIn(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	for _, kind := range []string{"termination", "retained", "recovery_cleanup"} {
		task := k.bound(k.workspace(WorkspaceInput{}).ID)
		writer := k.run(task.ID)
		k.reserved(writer)
		lease := k.lease(&writer.ID, nil)
		k.finish(writer)
		next := k.run(task.ID)
		_, err := k.Reserve(t.Context(), runPrincipal(next), ReserveInput{IssueID: task.ID, RunID: next.ID}, Once{})
		wantRefusal(t, "before the receipt of kind "+kind, err, ErrWriterPending)
		if _, _, err := k.RecordReceipt(t.Context(), k.operator, lease.ID,
			ReceiptInput{ProviderLeaseID: *lease.ProviderLeaseID, State: "stopped", Kind: kind}); err != nil {
			t.Fatal(err)
		}
		reserved := must(k.Reserve(t.Context(), runPrincipal(next), ReserveInput{IssueID: task.ID, RunID: next.ID}, Once{}))(t)
		if reserved.Handover == nil || !sameID(reserved.Workspace.Authority.WriterRunID, &next.ID) {
			t.Errorf("after the receipt of kind %s: %+v", kind, reserved)
		}
		// What later becomes of the old machine does not touch the new writer.
		if _, _, err := k.RecordReceipt(t.Context(), k.operator, lease.ID,
			ReceiptInput{ProviderLeaseID: *lease.ProviderLeaseID, State: "destroyed", Kind: "termination"}); err != nil {
			t.Fatal(err)
		}
		now := must(k.GetWorkspace(t.Context(), k.operator, reserved.Workspace.ID))(t)
		if diff := cmp.Diff(reserved.Workspace, now); diff != "" {
			t.Errorf("after the machine was destroyed (-reserved +now):\n%s", diff)
		}
	}
}
