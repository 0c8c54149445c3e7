package authority

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"berth/provider"
)

// world is a workspace with everybody around it: a writer that may have a machine, one who may wait, a recovery.
type world struct {
	*crashYard
	workspace uuid.UUID
	writer    worker // the last one
	fence     Fence
	save      uuid.UUID // the last one that was begun
	lease     uuid.UUID // the machine of the last writer, uuid.Nil for none
	machine   string
	waiter    worker
	recoverer *worker
	silent    bool // time passed since the writer was heard of
}

func newWorld(c *crash) *world {
	w := &world{crashYard: c.yard()}
	w.Service = New(c.pool, c.Service.store, c.log, WithPolling(), WithProviders(yard{dir: c.machines})) // in which time passes on its own
	w.workspace = w.free()
	w.waiter = w.worker(w.boundTask(w.workspace))
	return w
}

// state is what the workspace is in: as much of it as a way out may depend on. What goes on beside the writer is told
// in words that end with an exclamation mark.
func (w *world) state() string {
	w.t.Helper()
	state := w.text(`SELECT concat_ws(' ', coalesce(r.status, 'nobody'), CASE WHEN w.dirty THEN 'dirty' ELSE 'clean' END,
			CASE WHEN w.status <> 'active' THEN w.status END,
			CASE WHEN w.writer_run_id IS NOT NULL THEN coalesce((SELECT concat_ws('/', 'machine', l.provider, l.status, l.cleanup_status,
					CASE WHEN p.receipt_id IS NOT NULL THEN 'proven' END)
				FROM environment_leases l LEFT JOIN lease_proofs p ON p.lease_id = l.id WHERE l.heartbeat_run_id = w.writer_run_id), 'no machine') END,
			(SELECT 'stop-' || state || '!' FROM stop_requests q WHERE q.workspace_id = w.id AND q.epoch = w.epoch AND settled_at IS NULL),
			CASE WHEN EXISTS (SELECT FROM snapshots s WHERE s.workspace_id = w.id AND s.state = 'pending' AND s.epoch = w.epoch
				AND s.parent_snapshot_id = w.snapshot_id) AND w.writer_run_id IS NOT NULL THEN 'saving!' END,
			CASE WHEN EXISTS (SELECT FROM recovery_tokens k WHERE k.workspace_id = w.id AND k.epoch = w.epoch)
				AND w.writer_run_id IS NOT NULL THEN 'recovery!' END,
			CASE WHEN EXISTS (SELECT FROM reservation_places p WHERE p.workspace_id = w.id) THEN 'waiting!' END)
		FROM execution_workspaces w LEFT JOIN heartbeat_runs r ON r.id = w.writer_run_id WHERE w.id = $1`, w.workspace)
	if w.silent && strings.HasPrefix(state, "running") {
		state += " silent!"
	}
	return state
}

// granted makes the run the writer.
func (w *world) granted(to worker, got Reservation) {
	w.writer, w.fence = to, Fence{WorkspaceID: w.workspace, RunID: to.RunID, Epoch: got.Workspace.Authority.Epoch}
	w.lease, w.recoverer, w.silent = uuid.Nil, nil, false
	WithSilentAfter(DefaultSilentAfter)(w.Service)
}

// hold leases a machine for the writer, which is to have one at most.
func (w *world) hold(cloud string) {
	if w.fence.RunID == uuid.Nil || w.lease != uuid.Nil {
		return
	}
	w.machine = uuid.NewString()
	w.wantNoError("rent a machine", os.WriteFile(filepath.Join(w.machines, w.machine), []byte(provider.StateRunning), 0o600))
	lease, err := w.CreateLease(w.t.Context(), w.operator, w.company, LeaseInput{
		EnvironmentID: w.environment, HeartbeatRunID: &w.fence.RunID, Provider: &cloud, ProviderLeaseID: &w.machine,
	}, Once{})
	if err == nil {
		w.lease = lease.ID
	}
}

// receive records a receipt, if the lease takes it.
func (w *world) receive(kind, state string) {
	if w.lease != uuid.Nil {
		_, _, _ = w.RecordReceipt(w.t.Context(), w.operator, w.lease, ReceiptInput{ProviderLeaseID: w.machine, State: state, Kind: kind})
	}
}

func (w *world) setStatus(status string) {
	_, _ = w.UpdateWorkspace(w.t.Context(), w.operator, w.workspace, WorkspacePatch{Status: &status})
}

func (w *world) saver() Principal {
	if w.recoverer != nil {
		return w.recoverer.Principal
	}
	return w.writer.Principal
}

// graphSteps are what may happen to a workspace. What is refused in a state is no step from there.
var graphSteps = map[string]func(w *world){
	"reserve": func(w *world) {
		next := w.worker(w.boundTask(w.workspace))
		if got, err := w.reserve(next); err == nil {
			w.granted(next, got)
		}
	},
	"mark dirty": func(w *world) { _, _ = w.MarkDirty(w.t.Context(), w.writer.Principal, w.fence) },
	"begin a save": func(w *world) {
		parent := w.snapshotOf(w.workspace)
		begun, err := w.CreateSnapshot(w.t.Context(), w.saver(), w.fence, SnapshotInput{
			SHA256: hexDigest(crashContent), Size: int64(len(crashContent)), ParentSnapshotID: &parent,
		})
		if err == nil {
			w.save = begun.ID
			_, _ = w.UploadSnapshot(w.t.Context(), w.saver(), w.workspace, w.save, strings.NewReader(crashContent))
		}
	},
	"commit the save": func(w *world) { _, _ = w.CommitSnapshot(w.t.Context(), w.saver(), w.fence, w.save) },
	"release":         func(w *world) { _, _ = w.Release(w.t.Context(), w.writer.Principal, w.fence, false) },
	"discard":         func(w *world) { _, _ = w.Release(w.t.Context(), w.writer.Principal, w.fence, true) },
	"be ended": func(w *world) {
		_, _ = w.FinishRun(w.t.Context(), w.operator, w.fence.RunID, FinishInput{Status: "failed"})
	},
	"hold a machine":          func(w *world) { w.hold("cloud") },
	"hold a foreign machine":  func(w *world) { w.hold("elsewhere") },
	"receipt: terminated":     func(w *world) { w.receive(receiptTermination, stateStopped) },
	"receipt: to be retained": func(w *world) { w.receive(receiptRetained, stateStopped) },
	"receipt: to be cleaned":  func(w *world) { w.receive(receiptRecoveryCleanup, stateStopped) },
	"fall silent":             func(w *world) { w.silent = true; WithSilentAfter(time.Nanosecond)(w.Service) },
	"request a stop": func(w *world) {
		_, _ = w.RequestStop(w.t.Context(), w.operator, w.workspace, StopInput{Reason: "maintenance", Deadline: time.Now()}, Once{})
	},
	"enforce stops": func(w *world) {
		w.claimsRunOut()
		w.wantNoError("enforce stops", w.EnforceStopRequests(w.t.Context()))
	},
	"clean up": func(w *world) {
		w.claimsRunOut()
		_, err := w.CleanUpLeases(w.t.Context())
		w.wantNoError("clean up", err)
	},
	"wait": func(w *world) {
		in := ReserveInput{IssueID: w.waiter.task, RunID: w.waiter.RunID, WaitSeconds: 60}
		got, turn, err := w.ReserveOrWait(w.t.Context(), w.waiter.Principal, in, Once{}, nil)
		if turn.Leave(); turn == nil && err == nil {
			w.granted(w.waiter, got)
			w.waiter = w.worker(w.boundTask(w.workspace))
		}
	},
	"stop waiting": func(w *world) {
		w.wantNoError("leave the line", w.LeaveQueue(w.t.Context(), w.waiter.Principal, w.waiter.task, w.waiter.RunID))
	},
	"open a recovery": func(w *world) {
		_, secret, err := w.CreateRecoveryToken(w.t.Context(), w.operator, w.workspace, RecoveryInput{Epoch: w.fence.Epoch, AcceptRisk: true}, Once{})
		if err == nil {
			by, err := w.Authenticate(w.t.Context(), secret)
			w.wantNoError("authenticate a recovery", err)
			w.recoverer = &worker{Principal: by}
		}
	},
	"take over":        func(w *world) { _, _ = w.Takeover(w.t.Context(), w.operator, w.workspace, acceptingRisk) },
	"archive":          func(w *world) { w.setStatus("archived") },
	"fail to clean up": func(w *world) { w.setStatus("cleanup_failed") },
	"reopen":           func(w *world) { w.setStatus("active") },
}

// apiDocument is the API's description of itself.
func apiDocument(t *testing.T) string {
	t.Helper()
	document, err := os.ReadFile("../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(document)
}
