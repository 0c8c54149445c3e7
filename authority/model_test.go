package authority

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// The rules as a model: a few variables in memory, one caller at a time, nothing that can fail. What
// the service answers and what its database holds must be what the model says.

type modelWorkspace struct {
	id      uuid.UUID
	closed  bool
	epoch   int64
	writer  *modelRun
	dirty   bool
	marks   int
	saved   uuid.UUID
	tenures []*modelTenure
	saves   []*modelSave
}

type modelRun struct {
	worker
	workspace *modelWorkspace // of its task
	status    string
	machines  []*modelMachine
}

type modelMachine struct {
	lease    uuid.UUID
	provider string
	stopped  bool
}

type modelTenure struct {
	epoch    int64
	run      *modelRun
	how      string // "" while it lives
	unsaved  bool
	unproven bool
}

type modelSave struct {
	id        uuid.UUID
	run       *modelRun
	epoch     int64
	parent    uuid.UUID
	marks     int
	content   string
	uploaded  bool
	committed bool
}

func (r *modelRun) ended() bool { return r.status != "running" }

func (r *modelRun) proven() bool {
	return len(r.machines) > 0 && !slices.ContainsFunc(r.machines, func(m *modelMachine) bool { return !m.stopped })
}

// modelAnswer is what a reservation answers.
type modelAnswer struct {
	refusal  *Refusal
	state    string // of a pending writer
	replayed bool
	handover string // its kind, "" for none
}

func (r *modelRun) reserve() modelAnswer {
	w := r.workspace
	switch {
	case r.ended():
		return modelAnswer{refusal: ErrRunIdentity}
	case w.writer == r:
		return modelAnswer{replayed: true, handover: w.toldAt(w.epoch)}
	case w.closed:
		return modelAnswer{refusal: ErrOwnershipChanged}
	case w.writer == nil:
		w.begin(r)
		return modelAnswer{handover: w.toldAt(w.epoch)}
	case !w.writer.ended():
		return modelAnswer{refusal: ErrWriterPending, state: "writer_running"}
	case w.dirty:
		return modelAnswer{refusal: ErrWriterPending, state: "writer_ended_dirty"}
	case !w.writer.proven():
		return modelAnswer{refusal: ErrWriterPending, state: "writer_ended_unproven"}
	}
	w.end("handover", false)
	w.begin(r)
	return modelAnswer{handover: "proof"}
}

func (w *modelWorkspace) begin(r *modelRun) {
	w.epoch++
	w.writer = r
	w.tenures = append(w.tenures, &modelTenure{epoch: w.epoch, run: r})
}

// end closes the live tenure.
func (w *modelWorkspace) end(how string, unproven bool) {
	last := w.tenures[len(w.tenures)-1]
	last.how, last.unsaved, last.unproven = how, w.dirty, unproven
	w.writer, w.dirty = nil, false
}

// toldAt is the kind of handover that the tenure at the epoch began with.
func (w *modelWorkspace) toldAt(epoch int64) string {
	for _, t := range w.tenures {
		switch {
		case t.how == "takeover" && t.epoch == epoch-2:
			return "takeover"
		case t.how == "handover" && t.epoch == epoch-1:
			return "proof"
		}
	}
	return ""
}

// fence is the refusal of a write that claims the workspace for the run at the epoch, or nil.
func (r *modelRun) fence(epoch int64) *Refusal {
	if r.workspace.writer == r && r.workspace.epoch == epoch && !r.ended() {
		return nil
	}
	if r.once(epoch) {
		return ErrTenureEnded
	}
	return ErrStaleEpoch
}

// once reports whether the run was ever the writer at the epoch.
func (r *modelRun) once(epoch int64) bool {
	return slices.ContainsFunc(r.workspace.tenures, func(t *modelTenure) bool { return t.epoch == epoch && t.run == r })
}

func (r *modelRun) markDirty(epoch int64) *Refusal {
	if refusal := r.fence(epoch); refusal != nil {
		return refusal
	}
	r.workspace.dirty = true
	r.workspace.marks++
	return nil
}

func (r *modelRun) release(epoch int64, discard bool) *Refusal {
	if refusal := r.fence(epoch); refusal != nil {
		return refusal
	}
	if r.workspace.dirty && !discard {
		return ErrWorkspaceDirty
	}
	r.workspace.end("release", false)
	return nil
}

func (r *modelRun) finish(status string, itself, discard bool) *Refusal {
	switch {
	case r.ended() && r.status != status:
		return ErrRunFinal
	case r.ended():
		return nil
	}
	if itself && r.workspace.writer == r {
		if r.workspace.dirty && !discard {
			return ErrWorkspaceDirty
		}
		r.workspace.end("finish", false)
	}
	r.status = status
	return nil
}

func (w *modelWorkspace) takeover(acceptRisk bool) *Refusal {
	switch {
	case w.writer == nil:
		return ErrNoWriter
	case !w.writer.proven() && !acceptRisk:
		return ErrTakeoverNeedsProof
	}
	w.end("takeover", !w.writer.proven())
	w.epoch++
	return nil
}

func (w *modelWorkspace) setClosed(closed bool) *Refusal {
	if closed && w.writer != nil {
		return ErrWorkspaceInUse
	}
	w.closed = closed
	return nil
}

// beginSave follows a parent; the caller adds the save, once it has an id.
func (r *modelRun) beginSave(epoch int64, parent uuid.UUID) *Refusal {
	if refusal := r.fence(epoch); refusal != nil {
		return refusal
	}
	if parent != r.workspace.saved {
		return ErrSnapshotSuperseded
	}
	return nil
}

func (save *modelSave) upload() *Refusal {
	if save.committed {
		return ErrSnapshotNotPending
	}
	if refusal := save.run.fence(save.epoch); refusal != nil {
		return refusal
	}
	save.uploaded = true
	return nil
}

func (save *modelSave) commit() *Refusal {
	w := save.run.workspace
	if save.committed {
		return nil
	}
	if refusal := save.run.fence(save.epoch); refusal != nil {
		return refusal
	}
	switch {
	case !save.uploaded:
		return ErrSnapshotIncomplete
	case save.parent != w.saved:
		return ErrSnapshotSuperseded
	}
	save.committed = true
	w.saved = save.id
	w.dirty = w.dirty && w.marks != save.marks
	return nil
}

// model is all that a property plays with.
type model struct {
	workspaces []*modelWorkspace
	runs       []*modelRun
}

// String says what the database is to hold; stored says what it does.
func (m *model) String() string {
	var lines []string
	for _, w := range m.workspaces {
		writer, status := "nobody", "active"
		if w.writer != nil {
			writer = w.writer.RunID.String()
		}
		if w.closed {
			status = "archived"
		}
		lines = append(lines, fmt.Sprintf("%s epoch %d writer %s dirty %t marks %d saved %s %s", w.id, w.epoch, writer, w.dirty, w.marks, w.saved, status))
		for _, t := range w.tenures {
			lines = append(lines, fmt.Sprintf("%s tenure %d run %s %s unsaved %t unproven %t",
				w.id, t.epoch, t.run.RunID, cmp.Or(t.how, "lives"), t.unsaved, t.unproven))
		}
		for _, save := range w.saves {
			state := "pending"
			if save.committed {
				state = "committed"
			}
			lines = append(lines, fmt.Sprintf("%s snapshot %s epoch %d run %s %s", w.id, save.id, save.epoch, save.run.RunID, state))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// stored is what the database holds of the company, in the words of the model.
func (s *scene) stored() string {
	s.t.Helper()
	text := s.text(`SELECT string_agg(line, E'\n') FROM (
		SELECT format('%s epoch %s writer %s dirty %s marks %s saved %s %s', id, epoch, coalesce(writer_run_id::text, 'nobody'),
			dirty::text, dirty_marks, snapshot_id, status) AS line FROM execution_workspaces WHERE company_id = $1
		UNION ALL SELECT format('%s tenure %s run %s %s unsaved %s unproven %s', workspace_id, epoch, run_id,
			coalesce(ended_how, 'lives'), unsaved_work::text, unproven::text) FROM tenures WHERE company_id = $1
		UNION ALL SELECT format('%s snapshot %s epoch %s run %s %s', workspace_id, id, epoch, run_id, state)
			FROM snapshots WHERE company_id = $1 AND run_id IS NOT NULL) AS lines`, s.company)
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
