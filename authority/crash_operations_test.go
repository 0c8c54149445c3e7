package authority

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"berth/provider"
)

// crashStage is what an operation is done to, in a form that another process can be told of.
type crashStage struct {
	By       Principal
	Task     uuid.UUID
	Fence    Fence // its workspace is uuid.Nil where the operation makes one
	Snapshot uuid.UUID
	Lease    uuid.UUID
	Other    uuid.UUID // another run, or a provider's id
}

// crashOperation is one whose every moment a fault strikes. set makes the stage by real calls; call is the operation
// itself, and what the caller repeats after the fault. After it was done, repeating it is granted again, or refused by
// one of repeats.
type crashOperation struct {
	set     func(y *crashYard) crashStage
	call    func(ctx context.Context, s *Service, st crashStage) error
	repeats []*Refusal
	steps   bool // it is done in steps that each last
}

// crashYard is a company with machines.
type crashYard struct {
	*scene
	machines string // the folder of the yard
}

// machine is a running machine that is leased for the run.
func (y *crashYard) machine(w worker) (lease uuid.UUID, id string) {
	y.t.Helper()
	id = uuid.NewString()
	y.wantNoError("rent a machine", os.WriteFile(filepath.Join(y.machines, id), []byte(provider.StateRunning), 0o600))
	return y.lease(w, "provider_lease_id", id), id
}

// holding is the stage of a writer that calls.
func (y *crashYard) holding() (crashStage, worker) {
	w, fence := y.writer(y.free())
	return crashStage{By: w.Principal, Task: w.task, Fence: fence}, w
}

// changing is the stage of a writer with unsaved work.
func (y *crashYard) changing() (crashStage, worker) {
	st, w := y.holding()
	y.dirty(w, st.Fence)
	return st, w
}

// wanting is the stage of a run that wants the workspace.
func (y *crashYard) wanting(workspace uuid.UUID) (crashStage, worker) {
	w := y.worker(y.boundTask(workspace))
	return crashStage{By: w.Principal, Task: w.task, Fence: Fence{WorkspaceID: workspace, RunID: w.RunID}}, w
}

const crashContent = "what is saved"

var crashKey = Once{Key: "crash", Digest: []byte("crash")}

func crashSave(ctx context.Context, s *Service, st crashStage) error {
	_, err := s.CommitSnapshot(ctx, st.By, st.Fence, st.Snapshot)
	return err
}

func crashReserve(ctx context.Context, s *Service, st crashStage) error {
	_, err := s.Reserve(ctx, st.By, ReserveInput{IssueID: st.Task, RunID: st.By.RunID}, Once{})
	return err
}

func crashFinish(ctx context.Context, s *Service, st crashStage) error {
	_, err := s.FinishRun(ctx, st.By, st.Fence.RunID, FinishInput{Status: "succeeded", Discard: true})
	return err
}

func crashRelease(ctx context.Context, s *Service, st crashStage) error {
	_, err := s.Release(ctx, st.By, st.Fence, true)
	return err
}

// crashOperations are all that change who writes, or what is saved.
var crashOperations = map[string]crashOperation{
	"reserve a free workspace": {
		set:  func(y *crashYard) crashStage { st, _ := y.wanting(y.free()); return st },
		call: crashReserve,
	},
	"reserve with a key": {
		set: func(y *crashYard) crashStage { st, _ := y.wanting(y.free()); return st },
		call: func(ctx context.Context, s *Service, st crashStage) error {
			_, err := s.Reserve(ctx, st.By, ReserveInput{IssueID: st.Task, RunID: st.By.RunID}, crashKey)
			return err
		},
	},
	"reserve over an ended writer": {
		set: func(y *crashYard) crashStage {
			held, w := y.holding()
			y.stop(w)
			y.end(w, "failed")
			st, _ := y.wanting(held.Fence.WorkspaceID)
			return st
		},
		call: crashReserve,
	},
	"reserve the first time": {
		set: func(y *crashYard) crashStage {
			w := y.worker(y.task())
			return crashStage{By: w.Principal, Task: w.task}
		},
		call: crashReserve,
	},
	"reserve from a place in line": {
		set: func(y *crashYard) crashStage {
			st, w := y.wanting(y.free())
			y.gone(w)
			return st
		},
		call: crashReserve,
	},
	"take a place in line": {
		set: func(y *crashYard) crashStage {
			held, _ := y.holding()
			st, _ := y.wanting(held.Fence.WorkspaceID)
			return st
		},
		call: func(ctx context.Context, s *Service, st crashStage) error {
			in := ReserveInput{IssueID: st.Task, RunID: st.By.RunID, WaitSeconds: 60}
			_, turn, err := s.ReserveOrWait(ctx, st.By, in, Once{}, nil)
			turn.Leave()
			return err
		},
	},
	"leave the line": {
		set: func(y *crashYard) crashStage {
			held, _ := y.holding()
			st, w := y.wanting(held.Fence.WorkspaceID)
			y.gone(w)
			return st
		},
		call: func(ctx context.Context, s *Service, st crashStage) error {
			return s.LeaveQueue(ctx, st.By, st.Task, st.By.RunID)
		},
	},
	"renew": {
		set: func(y *crashYard) crashStage { st, _ := y.holding(); return st },
		call: func(ctx context.Context, s *Service, st crashStage) error {
			_, err := s.Renew(ctx, st.By, st.Fence)
			return err
		},
	},
	"mark dirty": {
		set: func(y *crashYard) crashStage { st, _ := y.holding(); return st },
		call: func(ctx context.Context, s *Service, st crashStage) error {
			_, err := s.MarkDirty(ctx, st.By, st.Fence)
			return err
		},
	},
	"begin a save": {
		set: func(y *crashYard) crashStage {
			st, _ := y.changing()
			st.Snapshot = y.snapshotOf(st.Fence.WorkspaceID)
			return st
		},
		call: func(ctx context.Context, s *Service, st crashStage) error {
			_, err := s.CreateSnapshot(ctx, st.By, st.Fence, SnapshotInput{
				SHA256: hexDigest(crashContent), Size: int64(len(crashContent)), ParentSnapshotID: &st.Snapshot,
			})
			return err
		},
	},
	"upload a save": {
		set: func(y *crashYard) crashStage {
			st, w := y.changing()
			st.Snapshot = y.begin(w, st.Fence, crashContent, y.snapshotOf(st.Fence.WorkspaceID))
			return st
		},
		call: func(ctx context.Context, s *Service, st crashStage) error {
			_, err := s.UploadSnapshot(ctx, st.By, st.Fence.WorkspaceID, st.Snapshot, strings.NewReader(crashContent))
			return err
		},
	},
	"commit a save": {
		set: func(y *crashYard) crashStage {
			st, w := y.changing()
			st.Snapshot = y.begin(w, st.Fence, crashContent, y.snapshotOf(st.Fence.WorkspaceID))
			y.upload(w, st.Fence, st.Snapshot, crashContent)
			return st
		},
		call: crashSave,
	},
	"commit a recovery": {
		set: func(y *crashYard) crashStage {
			st, w := y.changing()
			y.stop(w)
			y.end(w, "failed")
			by := y.recovery(st.Fence)
			st.By = by.Principal
			st.Snapshot = y.begin(by, st.Fence, crashContent, y.snapshotOf(st.Fence.WorkspaceID))
			y.upload(by, st.Fence, st.Snapshot, crashContent)
			return st
		},
		call: crashSave,
	},
	"release": {
		set:     func(y *crashYard) crashStage { st, _ := y.holding(); return st },
		call:    crashRelease,
		repeats: []*Refusal{ErrTenureEnded},
	},
	"release with unsaved work": {
		set:     func(y *crashYard) crashStage { st, _ := y.changing(); return st },
		call:    crashRelease,
		repeats: []*Refusal{ErrTenureEnded},
	},
	"finish by the run": {
		set:  func(y *crashYard) crashStage { st, _ := y.changing(); return st },
		call: crashFinish,
	},
	"finish by an operator": {
		set: func(y *crashYard) crashStage {
			st, _ := y.changing()
			st.By = y.operator
			return st
		},
		call: crashFinish,
	},
	"take over": {
		set: func(y *crashYard) crashStage {
			st, _ := y.changing()
			st.By = y.operator
			return st
		},
		call: func(ctx context.Context, s *Service, st crashStage) error {
			_, err := s.Takeover(ctx, st.By, st.Fence.WorkspaceID, acceptingRisk)
			return err
		},
		repeats: []*Refusal{ErrNoWriter},
	},
	"request a stop": {
		set: func(y *crashYard) crashStage {
			st, _ := y.holding()
			st.By = y.operator
			return st
		},
		call: func(ctx context.Context, s *Service, st crashStage) error {
			in := StopInput{Reason: "maintenance", Deadline: time.Now().Add(time.Hour)}
			_, err := s.RequestStop(ctx, st.By, st.Fence.WorkspaceID, in, crashKey)
			return err
		},
	},
	"give a recovery token": {
		set: func(y *crashYard) crashStage {
			st, w := y.changing()
			y.stop(w)
			y.end(w, "failed")
			st.By = y.operator
			return st
		},
		call: func(ctx context.Context, s *Service, st crashStage) error {
			_, _, err := s.CreateRecoveryToken(ctx, st.By, st.Fence.WorkspaceID, RecoveryInput{Epoch: st.Fence.Epoch}, crashKey)
			return err
		},
	},
	"record a receipt": {
		set: func(y *crashYard) crashStage {
			st, w := y.holding()
			lease, id := y.machine(w)
			y.end(w, "failed")
			st.By, st.Lease, st.Other = y.operator, lease, uuid.MustParse(id)
			return st
		},
		call: func(ctx context.Context, s *Service, st crashStage) error {
			_, _, err := s.RecordReceipt(ctx, st.By, st.Lease, ReceiptInput{
				ProviderLeaseID: st.Other.String(), State: stateDestroyed, Kind: receiptTermination,
			})
			return err
		},
	},
	"close":  closing("active", "archived"),
	"reopen": closing("archived", "active"),
	"clean up a machine": {
		steps: true,
		set: func(y *crashYard) crashStage {
			st, w := y.holding()
			y.machine(w)
			y.end(w, "failed")
			return st
		},
		call: func(ctx context.Context, s *Service, _ crashStage) error {
			_, err := s.CleanUpLeases(ctx)
			return err
		},
	},
	"enforce a stop": {
		steps: true,
		set: func(y *crashYard) crashStage {
			st, w := y.changing()
			y.machine(w)
			y.stopAt(st.Fence.WorkspaceID, -time.Second)
			return st
		},
		call: func(ctx context.Context, s *Service, _ crashStage) error { return s.EnforceStopRequests(ctx) },
	},
	"prove a silent writer": {
		steps: true,
		set: func(y *crashYard) crashStage {
			st, w := y.changing()
			_, id := y.machine(w)
			_, err := yard{dir: y.machines}.Stop(y.t.Context(), id)
			y.wantNoError("stop a machine", err)
			return st
		},
		call: func(ctx context.Context, s *Service, _ crashStage) error {
			WithSilentAfter(time.Nanosecond)(s)
			return s.ProveSilentWriters(ctx)
		},
	},
}

func closing(from, to string) crashOperation {
	return crashOperation{
		set: func(y *crashYard) crashStage {
			workspace := y.free()
			_, err := y.UpdateWorkspace(y.t.Context(), y.operator, workspace, WorkspacePatch{Status: &from})
			y.wantNoError("set the status", err)
			return crashStage{By: y.operator, Fence: Fence{WorkspaceID: workspace}}
		},
		call: func(ctx context.Context, s *Service, st crashStage) error {
			_, err := s.UpdateWorkspace(ctx, st.By, st.Fence.WorkspaceID, WorkspacePatch{Status: &to})
			return err
		},
	}
}
