package authority

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
)

// machine is how a test makes one lease of a writer that ended.
type machine struct {
	name    string
	columns []any
	receipt [2]string // kind and state; none when empty
	missing string    // why it does not prove that the machine stopped; "" when it does
}

var (
	anHourAgo  = time.Now().Add(-time.Hour)
	terminated = []any{"status", "released", "cleanup_status", "success", "acquired_at", anHourAgo, "released_at", anHourAgo}
	retained   = []any{"status", "retained", "failure_reason", "work_folder_save_required"}
	stopped    = [2]string{"termination", "stopped"}
	kept       = [2]string{"retained", "stopped"}
	recovered  = [2]string{"recovery_cleanup", "stopped"}
)

func with(columns []any, more ...any) []any { return append(append([]any{}, columns...), more...) }

var machines = []machine{
	{"released", terminated, stopped, ""},
	{"destroyed", with(terminated, "status", "expired"), [2]string{"termination", "destroyed"}, ""},
	{"failed, and terminated all the same", with(terminated, "status", "failed"), stopped, ""},
	{"retained for its files", retained, kept, ""},
	{"stopped, to be destroyed yet", []any{"status", "pending_cleanup", "cleanup_status", "pending"}, recovered, ""},
	{"stopped, its destruction failed", []any{"status", "pending_cleanup", "cleanup_status", "failed"}, recovered, ""},
	{"note of no workspace", with(terminated, "execution_workspace_id", nil), stopped, ""},

	{"no provider", with(terminated, "provider", nil), [2]string{}, "provider_cannot_prove"},
	{"local provider", with(terminated, "provider", "local"), [2]string{}, "provider_cannot_prove"},
	{"empty provider", with(terminated, "provider", ""), [2]string{}, "provider_cannot_prove"},
	{"no id of the provider", with(terminated, "provider_lease_id", nil), [2]string{}, "provider_lease_id_missing"},
	{"active", nil, [2]string{}, "lease_active"},
	{"active in spite of a receipt", nil, stopped, "lease_active"},
	{"no receipt", terminated, [2]string{}, "receipt_missing"},
	{"retained, release pending", with(retained, "release_pending", true), kept, "release_pending"},
	{"retained, and given to another run", with(retained, "replaced_by_run_id", uuid.Nil), kept, "lease_replaced"},
	{"clean-up not confirmed", with(terminated, "cleanup_status", "pending"), stopped, "cleanup_unconfirmed"},
	{"clean-up failed", with(terminated, "cleanup_status", "failed"), stopped, "cleanup_unconfirmed"},
	{"no time of release", with(terminated, "released_at", nil), stopped, "receipt_does_not_fit_lease"},
	{"retained for another reason", with(retained, "failure_reason", "timed_out"), kept, "receipt_does_not_fit_lease"},
	{"released, by the receipt of a retention", terminated, kept, "receipt_does_not_fit_lease"},
	{"retained, by the receipt of a recovery", retained, recovered, "receipt_does_not_fit_lease"},
	{"to be cleaned up, by the receipt of a retention", []any{"status", "pending_cleanup"}, kept, "receipt_does_not_fit_lease"},
}

// hold makes the machine for the run.
func (m machine) hold(s *scene, w worker) uuid.UUID {
	columns := with(m.columns)
	for i := 0; i < len(columns); i += 2 {
		if columns[i] == "replaced_by_run_id" {
			columns[i+1] = s.worker(w.task).RunID
		}
	}
	lease := s.lease(w, columns...)
	if m.receipt[0] != "" {
		s.receipt(lease, m.receipt[0], m.receipt[1])
	}
	return lease
}

func TestEachMachineOfAnEndedWriterIsProvenOrSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, m := range machines {
		workspace := s.free()
		w, fence := s.writer(workspace)
		s.stop(w) // one machine is proven, and the other decides
		lease := m.hold(s, w)
		s.end(w, "failed")
		next := s.worker(s.boundTask(workspace))
		before := s.row(workspace)
		got, err := s.reserve(next)
		if m.missing == "" {
			if want := (Handover{Kind: "proof", FromRunID: w.RunID, FromEpoch: fence.Epoch}); err != nil || got.Handover == nil || *got.Handover != want {
				t.Errorf("%s: %+v, %v; want the handover %+v", m.name, got.Handover, err, want)
			}
			continue
		}
		pending, _ := s.wantCode(m.name, err, ErrWriterPending).(WriterPending)
		if pending.State != "writer_ended_unproven" || len(pending.MissingProof) != 1 ||
			pending.MissingProof[0].LeaseID != lease || pending.MissingProof[0].Reason != m.missing {
			t.Errorf("%s: the details are %+v, want %s", m.name, pending, m.missing)
		}
		if after := s.row(workspace); after != before {
			t.Errorf("%s: the refusal changed the workspace:\n%s\n%s", m.name, before, after)
		}
	}
}

func TestAnotherRunsProofIsNoProof(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, _ := s.writer(workspace)
	other := s.worker(w.task)
	s.stop(other)
	s.end(other, "succeeded")
	s.lease(w)
	s.end(w, "failed")
	_, err := s.reserve(s.worker(s.boundTask(workspace)))
	pending, _ := s.wantCode("with the proof of another run", err, ErrWriterPending).(WriterPending)
	if len(pending.MissingProof) != 1 || pending.MissingProof[0].Reason != "lease_active" {
		t.Errorf("the details are %+v", pending)
	}
}

func TestARunningWriterIsNotReplacedWhateverItsMachinesSay(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, _ := s.writer(workspace)
	s.stop(w)
	_, err := s.reserve(s.worker(s.boundTask(workspace)))
	s.wantCode("over a running writer", err, ErrWriterPending)
}

func TestAHandoverIsOnRecordWithItsProof(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	s.stop(w)
	s.end(w, "timed_out")
	next := s.worker(s.boundTask(workspace))
	s.mustReserve(next)

	tenures, err := s.ListTenures(t.Context(), s.operator, workspace, Page{})
	s.wantNoError("list the tenures", err)
	if len(tenures.Items) != 2 {
		t.Fatalf("there are %d tenures, want 2", len(tenures.Items))
	}
	to, from := tenures.Items[0], tenures.Items[1]
	var told Handover
	var proof []struct{ LeaseID, ReceiptID, Kind string }
	if err := json.Unmarshal(to.Handover, &told); err != nil || told.FromRunID != w.RunID || told.FromEpoch != fence.Epoch {
		t.Errorf("the new tenure tells of %s, %v", to.Handover, err)
	}
	if err := json.Unmarshal(from.Proof, &proof); err != nil || len(proof) != 1 || proof[0].Kind != "termination" {
		t.Errorf("the old tenure's proof is %s, %v", from.Proof, err)
	}
	if from.EndedHow == nil || *from.EndedHow != "handover" || *from.EndedBy != next.Actor() || to.StartedAt.Before(*from.EndedAt) {
		t.Errorf("the tenures are %+v and %+v", from, to)
	}
	again, err := s.reserve(next)
	if err != nil || again.Handover == nil || *again.Handover != told {
		t.Errorf("a replay tells of %+v, %v", again.Handover, err)
	}
}

func TestWhatBecomesOfAnOldMachineDoesNotTouchTheNewWriter(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, _ := s.writer(workspace)
	lease := machine{columns: []any{"status", "pending_cleanup"}, receipt: recovered}.hold(s, w)
	s.end(w, "cancelled")
	next := s.worker(s.boundTask(workspace))
	fence := s.mustReserve(next)
	before := s.row(workspace)
	s.exec("UPDATE environment_leases SET status = 'failed', cleanup_status = 'failed' WHERE id = $1", lease)
	s.lease(w) // and a machine that is found only now
	if after := s.row(workspace); after != before {
		t.Errorf("the workspace changed:\n%s\n%s", before, after)
	}
	if _, err := s.Renew(t.Context(), next.Principal, fence); err != nil {
		t.Errorf("the new writer renews: %v", err)
	}
}
