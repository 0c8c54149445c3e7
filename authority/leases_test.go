package authority

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// lease records a machine of a run, held by a provider that can prove its stop.
func (k *kit) lease(run *uuid.UUID, change func(in *LeaseInput)) Lease {
	k.t.Helper()
	in := LeaseInput{EnvironmentID: k.environment, HeartbeatRunID: run, Provider: ptr("e2b"), ProviderLeaseID: ptr("sandbox-" + uuid.NewString())}
	if change != nil {
		change(&in)
	}
	return must(k.CreateLease(k.t.Context(), k.operator, k.home, in, Once{}))(k.t)
}

func TestALeaseIsWhatWasRecorded(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	w := k.workspace(WorkspaceInput{})
	task := k.issue(IssueInput{})
	run, next := k.run(task.ID), k.run(task.ID)
	expires := time.Now().UTC().Add(time.Hour).Truncate(time.Microsecond)
	in := LeaseInput{
		EnvironmentID: k.environment, HeartbeatRunID: &run.ID, IssueID: &task.ID, ExecutionWorkspaceID: &w.ID,
		Provider: ptr("e2b"), ProviderLeaseID: ptr("sandbox"), LeasePolicy: "retain_on_failure", Status: "pending_cleanup",
		CleanupStatus: ptr("failed"), FailureReason: ptr("no answer"), ReleasePending: true, ReplacedByRunID: &next.ID, ExpiresAt: &expires,
	}
	lease := must(k.CreateLease(t.Context(), k.operator, k.home, in, once("key", "body")))(t)
	want := Lease{
		ID: lease.ID, CompanyID: k.home, EnvironmentID: k.environment, HeartbeatRunID: &run.ID, IssueID: &task.ID,
		ExecutionWorkspaceID: &w.ID, Provider: in.Provider, ProviderLeaseID: in.ProviderLeaseID, Status: "pending_cleanup",
		LeasePolicy: "retain_on_failure", CleanupStatus: in.CleanupStatus, FailureReason: in.FailureReason, ReleasePending: true,
		ReplacedByRunID: &next.ID, ExpiresAt: &expires, AcquiredAt: lease.AcquiredAt, CreatedAt: lease.CreatedAt, UpdatedAt: lease.UpdatedAt,
	}
	if diff := cmp.Diff(want, lease); diff != "" {
		t.Errorf("the lease (-want +got):\n%s", diff)
	}
	for what, read := range map[string]Lease{
		"replayed": must(k.CreateLease(t.Context(), k.operator, k.home, in, once("key", "body")))(t),
		"read":     must(k.GetLease(t.Context(), k.operator, lease.ID))(t),
	} {
		if diff := cmp.Diff(lease, read); diff != "" {
			t.Errorf("%s (-created):\n%s", what, diff)
		}
	}
	plain := k.lease(nil, func(in *LeaseInput) { in.Provider, in.ProviderLeaseID = nil, nil })
	if plain.Status != "active" || plain.LeasePolicy != "ephemeral" || plain.HeartbeatRunID != nil {
		t.Errorf("a lease of nothing is %+v", plain)
	}
}

func TestALeaseThatIsRecordedLateWasAcquiredBeforeItsRelease(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	run := k.runOf(k.worker, nil)
	released := time.Now().UTC().Add(-time.Hour).Truncate(time.Microsecond)
	lease := k.lease(&run.ID, func(in *LeaseInput) { in.Status, in.ReleasedAt = "released", &released })
	if lease.ReleasedAt == nil || !lease.ReleasedAt.Equal(released) || lease.AcquiredAt.After(released) {
		t.Errorf("acquired at %s, released at %v, want %s", lease.AcquiredAt, lease.ReleasedAt, released)
	}
}

func TestLeasesAreForOperators(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	task := k.issue(IssueInput{})
	run := k.run(task.ID)
	lease := k.lease(&run.ID, nil)
	foreign := newForeign(k)
	for what, c := range map[string]struct {
		by                          Principal
		create, read, list, receipt *Refusal
	}{
		"an auditor":  {Principal{Role: RoleAuditor, TokenID: uuid.New()}, ErrNotAllowed, nil, nil, ErrNotAllowed},
		"a member":    {k.user(k.home, "owner", "active"), ErrNotAllowed, ErrLeaseNotFound, ErrNotAllowed, ErrLeaseNotFound},
		"the run":     {runPrincipal(run), ErrNotAllowed, ErrLeaseNotFound, ErrNotAllowed, ErrLeaseNotFound},
		"a stranger":  {k.user(foreign.company, "owner", "active"), ErrCompanyNotFound, ErrLeaseNotFound, ErrCompanyNotFound, ErrLeaseNotFound},
		"an operator": {k.operator, nil, nil, nil, nil},
	} {
		in := LeaseInput{EnvironmentID: k.environment, HeartbeatRunID: &run.ID}
		_, err := k.CreateLease(t.Context(), c.by, k.home, in, Once{})
		wantRefusal(t, what+" records a lease", err, c.create)
		_, err = k.GetLease(t.Context(), c.by, lease.ID)
		wantRefusal(t, what+" reads a lease", err, c.read)
		_, err = k.ListLeases(t.Context(), c.by, k.home, LeaseFilter{}, Page{})
		wantRefusal(t, what+" lists leases", err, c.list)
		_, err = k.UpdateLease(t.Context(), c.by, lease.ID, LeasePatch{})
		wantRefusal(t, what+" changes a lease", err, c.receipt)
		_, _, err = k.RecordReceipt(t.Context(), c.by, lease.ID, ReceiptInput{ProviderLeaseID: *lease.ProviderLeaseID, State: "stopped", Kind: "termination"})
		wantRefusal(t, what+" records a receipt", err, c.receipt)
	}
}

func TestWhatALeaseNamesInAnotherCompanyDoesNotExist(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	foreign := newForeign(k)
	run := k.runOf(k.worker, nil)
	lease := k.lease(&run.ID, nil)
	for what, c := range map[string]struct {
		id     uuid.UUID
		create func(in *LeaseInput, id *uuid.UUID)
		patch  func(id uuid.UUID) LeasePatch
		want   *Refusal
	}{
		"run": {foreign.run, func(in *LeaseInput, id *uuid.UUID) { in.HeartbeatRunID = id }, nil, ErrRunNotFound},
		"replacing run": {
			foreign.run, func(in *LeaseInput, id *uuid.UUID) { in.ReplacedByRunID = id },
			func(id uuid.UUID) LeasePatch { return LeasePatch{ReplacedByRunID: To(id)} }, ErrRunNotFound,
		},
		"task": {
			foreign.issue, func(in *LeaseInput, id *uuid.UUID) { in.IssueID = id },
			func(id uuid.UUID) LeasePatch { return LeasePatch{IssueID: To(id)} }, ErrIssueNotFound,
		},
		"workspace": {
			foreign.workspace, func(in *LeaseInput, id *uuid.UUID) { in.ExecutionWorkspaceID = id },
			func(id uuid.UUID) LeasePatch { return LeasePatch{ExecutionWorkspaceID: To(id)} }, ErrWorkspaceNotFound,
		},
		"environment": {uuid.New(), func(in *LeaseInput, id *uuid.UUID) { in.EnvironmentID = *id }, nil, ErrEnvironmentNotFound},
	} {
		for _, id := range []uuid.UUID{c.id, uuid.New()} {
			in := LeaseInput{EnvironmentID: k.environment, HeartbeatRunID: &run.ID}
			c.create(&in, &id)
			_, err := k.CreateLease(t.Context(), k.operator, k.home, in, Once{})
			wantRefusal(t, "a lease with another company's "+what, err, c.want)
			if c.patch != nil {
				_, err = k.UpdateLease(t.Context(), k.operator, lease.ID, c.patch(id))
				wantRefusal(t, "a change to another company's "+what, err, c.want)
			}
		}
	}
	_, err := k.UpdateLease(t.Context(), k.operator, uuid.New(), LeasePatch{})
	wantRefusal(t, "no such lease", err, ErrLeaseNotFound)
	_, err = k.CreateLease(t.Context(), k.operator, k.home, LeaseInput{Status: "gone", LeasePolicy: "mine", CleanupStatus: ptr("")}, Once{})
	wantField(t, "everything wrong", err, "body.status", "body.leasePolicy", "body.cleanupStatus")
	_, err = k.UpdateLease(t.Context(), k.operator, lease.ID, LeasePatch{Status: ptr("gone"), CleanupStatus: To("bad")})
	wantField(t, "everything wrong in a change", err, "body.status", "body.cleanupStatus")
}

func TestALeaseGoesForwardOnly(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	run := k.runOf(k.worker, nil)
	now := time.Now().UTC().Add(time.Second)
	settled := LeasePatch{Status: ptr("released"), CleanupStatus: To("success"), ReleasedAt: To(now)}
	for what, c := range map[string]struct {
		steps []LeasePatch
		want  *Refusal
	}{
		"active to retained to pending cleanup": {[]LeasePatch{{Status: ptr("retained")}, {Status: ptr("pending_cleanup")}}, nil},
		"released back to active":               {[]LeasePatch{{Status: ptr("released")}, {Status: ptr("active")}}, ErrLeaseForward},
		"retained back to active":               {[]LeasePatch{{Status: ptr("retained")}, {Status: ptr("active")}}, ErrLeaseForward},
		"a failed clean-up, tried again":        {[]LeasePatch{{Status: ptr("expired"), CleanupStatus: To("failed")}, {Status: ptr("pending_cleanup")}}, nil},
		"settled, then pending again":           {[]LeasePatch{settled, {Status: ptr("pending_cleanup")}}, ErrLeaseForward},
		"settled, then its clean-up forgotten":  {[]LeasePatch{settled, {CleanupStatus: ToNull[string]()}}, ErrLeaseForward},
		"settled, then expired":                 {[]LeasePatch{settled, {Status: ptr("expired")}}, nil},
		"active, and released":                  {[]LeasePatch{{ReleasedAt: To(now)}}, ErrValidation},
	} {
		lease := k.lease(&run.ID, nil)
		var err error
		for _, step := range c.steps {
			_, err = k.UpdateLease(t.Context(), k.operator, lease.ID, step)
		}
		var got error
		if refusal, ok := AsRefusal(err); ok {
			got = refusal
		} else if err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, what, got, c.want)
	}
}

func TestAChangeOfALeaseChangesWhatItNames(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	run, next := k.runOf(k.worker, nil), k.runOf(k.worker, nil)
	before := k.lease(&run.ID, nil)
	after := must(k.UpdateLease(t.Context(), k.operator, before.ID, LeasePatch{
		Status: ptr("retained"), FailureReason: To("work_folder_save_required"), ReleasePending: ptr(true), ReplacedByRunID: To(next.ID),
	}))(t)
	want := before
	want.Status, want.FailureReason, want.ReleasePending = "retained", ptr("work_folder_save_required"), true
	want.ReplacedByRunID, want.UpdatedAt = &next.ID, after.UpdatedAt
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("the lease (-want +got):\n%s", diff)
	}
	list := must(k.ListLeases(t.Context(), k.operator, k.home, LeaseFilter{HeartbeatRunID: &run.ID, Status: ptr("retained")}, Page{}))(t)
	if diff := cmp.Diff([]Lease{after}, list.Items); diff != "" {
		t.Errorf("the list (-want +got):\n%s", diff)
	}
	if list := must(k.ListLeases(t.Context(), k.operator, k.home, LeaseFilter{Status: ptr("active")}, Page{}))(t); len(list.Items) != 0 {
		t.Errorf("%d active leases are listed", len(list.Items))
	}
}

// The writer of a workspace ended and its one lease is proven. A second lease and a handover come
// at once: the handover rests on both leases or comes before the second.
func TestANewLeaseAndAHandoverDoNotPassEachOther(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	for range 15 {
		task := k.bound(k.workspace(WorkspaceInput{}).ID)
		writer := k.run(task.ID)
		k.reserved(writer)
		k.finish(writer)
		first := k.lease(&writer.ID, nil)
		stop := ReceiptInput{ProviderLeaseID: *first.ProviderLeaseID, State: "stopped", Kind: "termination"}
		if _, _, err := k.RecordReceipt(t.Context(), k.operator, first.ID, stop); err != nil {
			t.Fatal(err)
		}
		next := k.run(task.ID)
		var second Lease
		errs := together(
			func() (err error) {
				in := LeaseInput{EnvironmentID: k.environment, HeartbeatRunID: &writer.ID}
				second, err = k.CreateLease(t.Context(), k.operator, k.home, in, Once{})
				return err
			},
			func() error {
				_, err := k.Reserve(t.Context(), runPrincipal(next), ReserveInput{IssueID: task.ID, RunID: next.ID}, Once{})
				return err
			},
		)
		if errs[0] != nil {
			t.Fatal(errs[0])
		}
		if errs[1] != nil {
			wantRefusal(t, "the handover", errs[1], ErrWriterPending)
			continue
		}
		var started time.Time
		if err := k.database.Pool.QueryRow(t.Context(), "SELECT started_at FROM tenures WHERE run_id = $1", next.ID).Scan(&started); err != nil {
			t.Fatal(err)
		}
		if second.CreatedAt.Before(started) {
			t.Errorf("handed over at %s, past a lease of %s that is not proven", started, second.CreatedAt)
		}
	}
}
