package authority

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// errand is a search for a way into a workspace, by somebody who knows of it what an explanation says and no more.
type errand struct {
	*scene
	workspace uuid.UUID
	next      worker
	explained Explanation
}

// moves are what somebody does who reads the name of a call in an explanation: by the run itself, or as an operator,
// and through the calls of the API alone. That a call is refused is no fault of the move: the next one is tried.
var moves = map[string]func(e *errand){
	"reserveWorkspace":     func(*errand) {}, // once it is reservable, see leadsOut
	"listReservationQueue": func(e *errand) { e.places() },
	"leaveReservationQueue": func(e *errand) {
		for _, p := range e.places() {
			if p.Waiting != nil && p.Waiting.RunID != e.next.RunID {
				e.answered(e.LeaveQueue(e.t.Context(), e.operator, p.Waiting.IssueID, p.Waiting.RunID))
			}
		}
	},
	"requestStop": func(e *errand) {
		_, err := e.RequestStop(e.t.Context(), e.operator, e.workspace, StopInput{Reason: "needed", Deadline: time.Now()}, Once{})
		e.answered(err)
	},
	"updateHeartbeatRun": func(e *errand) {
		if holder := e.holder(); holder != nil {
			_, err := e.FinishRun(e.t.Context(), e.operator, holder.RunID, FinishInput{Status: "interrupted"})
			e.answered(err)
		}
	},
	"recordTerminationReceipt": (*errand).bringReceipts,
	"createRecoveryToken":      (*errand).recover,
	"takeOverWorkspace": func(e *errand) {
		_, err := e.Takeover(e.t.Context(), e.operator, e.workspace, acceptingRisk)
		e.answered(err)
	},
	"updateExecutionWorkspace": func(e *errand) {
		_, err := e.UpdateWorkspace(e.t.Context(), e.operator, e.workspace, WorkspacePatch{Status: new("active")})
		e.answered(err)
	},
	"selectWorkspace": func(*errand) {}, // leads to another workspace
}

// answered fails the test when a call failed in a way that is not an answer.
func (e *errand) answered(err error) {
	e.t.Helper()
	if refused, known := AsRefusal(err); err != nil && (!known || refused.Code == ErrUnavailable.Code) {
		e.t.Errorf("%v, which is no answer", err)
	}
}

func (e *errand) places() []Place {
	queue, err := e.ListQueue(e.t.Context(), e.operator, e.next.task, Page{})
	e.answered(err)
	return queue.Items
}

func (e *errand) pending() WriterPending {
	pending, _ := e.explained.Details.(WriterPending)
	return pending
}

func (e *errand) holder() *Holder { return e.pending().Holder }

// bringReceipts says, for the machines that are named, that they stopped.
func (e *errand) bringReceipts() {
	for _, missing := range e.pending().MissingProof {
		lease, err := e.GetLease(e.t.Context(), e.operator, missing.LeaseID)
		e.wantNoError("read a lease", err)
		if lease.ProviderLeaseID == nil {
			continue
		}
		_, _, err = e.RecordReceipt(e.t.Context(), e.operator, missing.LeaseID, ReceiptInput{
			ProviderLeaseID: *lease.ProviderLeaseID, State: stateStopped, Kind: receiptTermination,
		})
		e.answered(err)
	}
}

// recover saves what the ended writer left, by a recovery token.
func (e *errand) recover() {
	holder := e.holder()
	if holder == nil {
		return
	}
	fence := Fence{WorkspaceID: e.workspace, RunID: holder.RunID, Epoch: holder.Epoch}
	_, secret, err := e.CreateRecoveryToken(e.t.Context(), e.operator, e.workspace, RecoveryInput{Epoch: fence.Epoch}, Once{})
	if e.answered(err); err != nil {
		return
	}
	by, err := e.Authenticate(e.t.Context(), secret)
	e.wantNoError("authenticate a recovery", err)
	w, err := e.GetWorkspace(e.t.Context(), by, e.workspace)
	e.wantNoError("read what is recovered", err)
	e.save(worker{Principal: by}, fence, "recovered", *w.Authority.SnapshotID)
}

// explain asks anew, and holds the answer against what reading the workspace says: a read and a refusal never
// contradict each other.
func (e *errand) explain() {
	e.t.Helper()
	var err error
	e.explained, err = e.Explain(e.t.Context(), e.operator, ReserveInput{IssueID: e.next.task, RunID: e.next.RunID})
	e.wantNoError("explain", err)
	read, err := e.GetWorkspace(e.t.Context(), e.operator, e.workspace)
	e.wantNoError("read the workspace", err)
	writer, pending := read.Authority.WriterRunID, e.pending()
	overWriter := strings.HasPrefix(pending.State, "writer_")
	switch {
	case writer == nil && overWriter:
		e.t.Errorf("the workspace has no writer, and the refusal is %s", pending.State)
	case overWriter && (pending.Holder == nil || pending.Holder.RunID != *writer || pending.Holder.Epoch != read.Authority.Epoch):
		e.t.Errorf("the writer is %s at %d, and the refusal tells of %+v", *writer, read.Authority.Epoch, pending.Holder)
	case pending.State == "writer_ended_dirty" && !read.Authority.Dirty:
		e.t.Errorf("the refusal is %s, and nothing is unsaved", pending.State)
	case writer != nil && e.explained.Reservable && (read.Authority.Dirty || e.status(*writer) == runRunning):
		e.t.Errorf("it is reservable over a writer that is %s, with unsaved work: %t", e.status(*writer), read.Authority.Dirty)
	case closedStatus(read.Status) != (e.explained.Code != nil && *e.explained.Code == ErrOwnershipChanged.Code):
		e.t.Errorf("the workspace is %s, and the explanation %v", read.Status, e.explained.Code)
	}
}

func (e *errand) status(run uuid.UUID) string {
	r, err := e.GetRun(e.t.Context(), e.operator, run)
	e.wantNoError("read a run", err)
	return r.Status
}

// situation is what an explanation says, in one word.
func (e *errand) situation() string {
	switch {
	case e.explained.Reservable:
		return "reservable"
	case e.pending().State != "":
		return fmt.Sprintf("%s, %d without proof", e.pending().State, len(e.pending().MissingProof))
	default:
		return string(*e.explained.Code)
	}
}

// leadsOut does what explanations name, in the order in which they name it, until a new run is the writer. The test
// fails where that leads nowhere. It returns the moves that helped.
func (s *scene) leadsOut(workspace uuid.UUID) (way []string) {
	s.t.Helper()
	e := &errand{scene: s, workspace: workspace, next: s.worker(s.boundTask(workspace))}
	e.explain()
	for !e.explained.Reservable {
		before := e.situation()
		if !slices.ContainsFunc(e.explained.NextActions, func(name string) bool {
			move, known := moves[name]
			if !known {
				s.t.Errorf("%s: nobody knows how to do %s", before, name)
				return false
			}
			move(e)
			if e.explain(); e.situation() == before {
				return false
			}
			way = append(way, name)
			return true
		}) {
			s.t.Errorf("%s: none of %v leads on", before, e.explained.NextActions)
			return way
		}
		if len(way) > 8 {
			s.t.Errorf("going in circles: %v", way)
			return way
		}
	}
	got, err := s.reserve(e.next)
	if err != nil {
		s.t.Errorf("it is explained as reservable, and refused: %v", err)
		return way
	}
	if a := got.Workspace.Authority; a.WriterRunID == nil || *a.WriterRunID != e.next.RunID {
		s.t.Errorf("the new writer is %v, want %s", a.WriterRunID, e.next.RunID)
	}
	return way
}
