package authority

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"
)

// propertyTime bounds how long the property looks for a fault; a fault that it found is made small
// without regard to it.
const propertyTime = 15 * time.Second

func TestWhateverIsDoneTheServiceAnswersAsTheModelDoes(t *testing.T) {
	t.Parallel()
	shared := newScene(t)
	began, failed := time.Now(), false
	for time.Since(began) < propertyTime {
		rapid.Check(t, func(rt *rapid.T) {
			if !failed && time.Since(began) > propertyTime {
				return
			}
			defer func() { failed = failed || rt.Failed() }()
			rt.Repeat(newPlay(shared, rt).actions())
		})
	}
}

// play is a company in which a property does what it likes, and the model of it.
type play struct {
	*scene
	model
}

func newPlay(shared *scene, rt *rapid.T) *play {
	here := *shared
	here.t = rt
	p := &play{scene: here.elsewhere()}
	for range rapid.IntRange(1, 2).Draw(rt, "workspaces") {
		id := p.free()
		p.workspaces = append(p.workspaces, &modelWorkspace{id: id, epoch: 3, saved: p.snapshotOf(id)})
	}
	for range 3 {
		p.newRun(rt)
	}
	return p
}

// actions are what a property may do. What comes twice is done twice as often: a save has steps, and
// a fault may need two saves.
func (p *play) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":             p.check,
		"a new run":    p.newRun,
		"reserve":      p.reserve,
		"reserve more": p.reserve,
		"renew":        p.renew,
		"dirty":        p.markDirty,
		"dirty more":   p.markDirty,
		"location":     p.setLocation,
		"begin a save": p.beginSave,
		"save":         p.saveInSteps,
		"upload":       p.upload,
		"upload more":  p.upload,
		"commit":       p.commit,
		"commit more":  p.commit,
		"release":      p.release,
		"finish":       p.finish,
		"machine":      p.machine,
		"receipt":      p.receipt,
		"abandon":      p.abandon,
		"takeover":     p.takeover,
		"close":        p.setClosed,
		"attack":       p.attack,
	}
}

// check compares what is stored with the model, and holds it against the rules.
func (p *play) check(rt *rapid.T) {
	if stored, want := p.stored(), p.String(); stored != want {
		rt.Fatalf("the database holds\n%s\nand the model\n%s", stored, want)
	}
	p.wantSoundHistory()
}

// answers fails the property unless the service refused as the model did, or neither refused.
func (p *play) answers(rt *rapid.T, what string, err error, want *Refusal) {
	switch {
	case want == nil && err != nil:
		rt.Fatalf("%s: %v, and the model grants it", what, err)
	case want != nil:
		p.wantCode(what, err, want)
	}
}

// run is any, but mostly one that did not end: those that did are more and more.
func (p *play) run(rt *rapid.T) *modelRun {
	if rarely(rt, "one of all") {
		return rapid.SampledFrom(p.runs).Draw(rt, "run")
	}
	return p.living(rt)
}

// living is a run that did not end, a new one if all did.
func (p *play) living(rt *rapid.T) *modelRun {
	among := slices.DeleteFunc(slices.Clone(p.runs), (*modelRun).ended)
	if len(among) == 0 {
		p.newRun(rt)
		among = p.runs[len(p.runs)-1:]
	}
	return rapid.SampledFrom(among).Draw(rt, "living run")
}

func (p *play) workspace(rt *rapid.T) *modelWorkspace {
	return rapid.SampledFrom(p.workspaces).Draw(rt, "workspace")
}

func chance(rt *rapid.T, of string) bool { return rapid.Bool().Draw(rt, of) }

// rarely is so about once in eight times. The value is not at an edge, which rapid draws more often.
func rarely(rt *rapid.T, of string) bool { return rapid.IntRange(0, 7).Draw(rt, of) == 5 }

// claim is a run with an epoch that it claims: the writer with its own, or the one before if nobody
// writes (often somebody then reserves first), and rarely any living run with any epoch. A run that
// ended claims only what it had: it reads nothing else.
func (p *play) claim(rt *rapid.T) (*modelRun, Fence) {
	w := p.workspace(rt)
	if w.writer == nil && chance(rt, "reserve first") {
		p.reserveFor(rt, p.living(rt))
	}
	if len(w.tenures) > 0 && !rarely(rt, "another claims it") {
		last := w.tenures[len(w.tenures)-1]
		return last.run, Fence{WorkspaceID: w.id, RunID: last.run.RunID, Epoch: last.epoch}
	}
	r := p.living(rt)
	epoch := r.workspace.epoch + int64(rapid.SampledFrom([]int{0, -1, 1}).Draw(rt, "off"))
	return r, Fence{WorkspaceID: r.workspace.id, RunID: r.RunID, Epoch: epoch}
}

func (p *play) newRun(rt *rapid.T) {
	w := p.workspace(rt)
	p.runs = append(p.runs, &modelRun{worker: p.worker(p.boundTask(w.id)), workspace: w, status: "running"})
}

func (p *play) reserve(rt *rapid.T) { p.reserveFor(rt, p.run(rt)) }

func (p *play) reserveFor(rt *rapid.T, r *modelRun) {
	want := r.reserve()
	got, err := p.scene.reserve(r.worker)
	p.answers(rt, "reserve", err, want.refusal)
	if want.refusal != nil {
		refused, _ := AsRefusal(err)
		if pending, ok := refused.Details.(WriterPending); ok && pending.State != want.state {
			rt.Fatalf("the pending writer is %s, and to the model %s", pending.State, want.state)
		}
		return
	}
	kind := ""
	if got.Handover != nil {
		kind = got.Handover.Kind
	}
	if a := got.Workspace.Authority; a.Epoch != r.workspace.epoch || got.Replayed != want.replayed || kind != want.handover {
		rt.Fatalf("reserved at epoch %d, replayed %t, over %q; the model at %d, %t, %q",
			a.Epoch, got.Replayed, kind, r.workspace.epoch, want.replayed, want.handover)
	}
}

func (p *play) renew(rt *rapid.T) {
	r, fence := p.claim(rt)
	_, err := p.Renew(rt.Context(), r.Principal, fence)
	p.answers(rt, "renew", err, r.fence(fence.Epoch))
}

func (p *play) markDirty(rt *rapid.T) {
	r, fence := p.claim(rt)
	_, err := p.MarkDirty(rt.Context(), r.Principal, fence)
	p.answers(rt, "mark dirty", err, r.markDirty(fence.Epoch))
}

func (p *play) setLocation(rt *rapid.T) {
	r, fence := p.claim(rt)
	_, err := p.SetLocation(rt.Context(), r.Principal, fence, json.RawMessage(`{"path": "/x"}`))
	p.answers(rt, "set the location", err, r.fence(fence.Epoch))
}

func (p *play) beginSave(rt *rapid.T) {
	r, fence := p.claim(rt)
	parent := r.workspace.saved
	if len(r.workspace.saves) > 0 && rarely(rt, "an older parent") {
		parent = r.workspace.saves[0].id
	}
	content := fmt.Sprintf("save %d", len(r.workspace.saves))
	got, err := p.CreateSnapshot(rt.Context(), r.Principal, fence, SnapshotInput{
		SHA256: hexDigest(content), Size: int64(len(content)), ParentSnapshotID: &parent,
	})
	want := r.beginSave(fence.Epoch, parent)
	p.answers(rt, "begin a save", err, want)
	if want == nil {
		r.workspace.saves = append(r.workspace.saves, &modelSave{
			id: got.ID, run: r, epoch: fence.Epoch, parent: parent, marks: r.workspace.marks, content: content,
		})
	}
}

// save is one that was begun, mostly one of the last two, or nil.
func (p *play) save(rt *rapid.T) *modelSave {
	w := p.workspace(rt)
	if len(w.saves) == 0 {
		return nil
	}
	latest := w.saves[max(0, len(w.saves)-2):]
	return rapid.SampledFrom(append(latest[:len(latest):len(latest)], rapid.SampledFrom(w.saves).Draw(rt, "any save"))).Draw(rt, "save")
}

func (p *play) upload(rt *rapid.T) {
	save := p.save(rt)
	if save == nil {
		return
	}
	_, err := p.UploadSnapshot(rt.Context(), save.run.Principal, save.run.workspace.id, save.id, strings.NewReader(save.content))
	p.answers(rt, "upload", err, save.upload())
}

func (p *play) commit(rt *rapid.T) {
	save := p.save(rt)
	if save == nil {
		return
	}
	fence := Fence{WorkspaceID: save.run.workspace.id, RunID: save.run.RunID, Epoch: save.epoch}
	got, err := p.CommitSnapshot(rt.Context(), save.run.Principal, fence, save.id)
	p.answers(rt, "commit", err, save.commit())
	if err == nil && (got.State != "committed" || got.ID != save.id) {
		rt.Fatalf("committed as %+v", got)
	}
}

// saveInSteps does what a save or two need, one after the other, with a change in between or not.
func (p *play) saveInSteps(rt *rapid.T) {
	steps := []func(*rapid.T){p.beginSave, p.upload, p.commit}
	if chance(rt, "two saves") {
		steps = []func(*rapid.T){p.beginSave, p.beginSave, p.upload, p.upload, p.upload, p.commit, p.commit}
	}
	if chance(rt, "a change meanwhile") {
		steps = slices.Insert(steps, rapid.IntRange(0, len(steps)).Draw(rt, "when"), p.markDirty)
	}
	for _, step := range steps {
		step(rt)
	}
}

func (p *play) release(rt *rapid.T) {
	r, fence := p.claim(rt)
	discard := chance(rt, "discard")
	_, err := p.Release(rt.Context(), r.Principal, fence, discard)
	p.answers(rt, "release", err, r.release(fence.Epoch, discard))
}

func (p *play) finish(rt *rapid.T) {
	r, _ := p.claim(rt)
	in := FinishInput{Status: rapid.SampledFrom(terminalStatuses[:2]).Draw(rt, "status"), Discard: chance(rt, "discard")}
	by, itself := p.operator, chance(rt, "by itself")
	if itself {
		by = r.Principal
	}
	_, err := p.FinishRun(rt.Context(), by, r.RunID, in)
	p.answers(rt, "finish", err, r.finish(in.Status, itself, in.Discard))
}

func (p *play) machine(rt *rapid.T) { p.hold(rt, p.run(rt)) }

// hold makes a machine for the run.
func (p *play) hold(rt *rapid.T, r *modelRun) {
	m := &modelMachine{provider: uuid.NewString()}
	lease, err := p.CreateLease(rt.Context(), p.operator, p.company, LeaseInput{
		EnvironmentID: p.environment, HeartbeatRunID: &r.RunID, Provider: new("cloud"), ProviderLeaseID: &m.provider,
	}, Once{})
	p.wantNoError("hold a machine", err)
	m.lease = lease.ID
	r.machines = append(r.machines, m)
}

func (p *play) receipt(rt *rapid.T) {
	r := p.run(rt)
	if len(r.machines) == 0 {
		p.hold(rt, r)
		return
	}
	p.stopped(rt, rapid.SampledFrom(r.machines).Draw(rt, "machine"))
}

// stopped records the provider's word that the machine stopped.
func (p *play) stopped(rt *rapid.T, m *modelMachine) {
	_, _, err := p.RecordReceipt(rt.Context(), p.operator, m.lease, ReceiptInput{
		ProviderLeaseID: m.provider, State: "stopped", Kind: "termination",
	})
	p.wantNoError("record a receipt", err)
	m.stopped = true
}

// abandon is a writer that others end, with its machines proven stopped as far as chance has it, and
// somebody who wants the workspace next.
func (p *play) abandon(rt *rapid.T) {
	r := p.workspace(rt).writer
	if r == nil {
		return
	}
	p.hold(rt, r)
	for _, m := range r.machines {
		if !rarely(rt, "no receipt") {
			p.stopped(rt, m)
		}
	}
	_, err := p.FinishRun(rt.Context(), p.operator, r.RunID, FinishInput{Status: "failed"})
	p.answers(rt, "end a writer", err, r.finish("failed", false, false))
	p.reserve(rt)
}

func (p *play) takeover(rt *rapid.T) {
	w := p.workspace(rt)
	in := TakeoverInput{Reason: "because", AcceptRisk: chance(rt, "accept the risk")}
	_, err := p.Takeover(rt.Context(), p.operator, w.id, in)
	p.answers(rt, "take over", err, w.takeover(in.AcceptRisk))
}

func (p *play) setClosed(rt *rapid.T) {
	w := p.workspace(rt)
	status := rapid.SampledFrom([]string{"active", "archived"}).Draw(rt, "status")
	_, err := p.UpdateWorkspace(rt.Context(), p.operator, w.id, WorkspacePatch{Status: &status})
	p.answers(rt, "close or reopen", err, w.setClosed(status == "archived"))
}

// attacks are statements that the database refuses from the service's role in every state. @w is a
// workspace and @r a run.
var attacks = []string{
	`UPDATE execution_workspaces SET epoch = epoch - 1 WHERE id = @w`,
	`UPDATE execution_workspaces SET epoch = epoch + 2 WHERE id = @w`,
	`UPDATE execution_workspaces SET epoch = epoch + 1, writer_run_id = @r, dirty = false WHERE id = @w`,
	`UPDATE execution_workspaces SET dirty = true, writer_run_id = NULL WHERE id = @w`,
	`UPDATE execution_workspaces SET status = 'archived', writer_run_id = @r, epoch = epoch + 1 WHERE id = @w`,
	`UPDATE execution_workspaces SET snapshot_id = NULL WHERE id = @w`,
	`UPDATE execution_workspaces SET id = gen_random_uuid() WHERE id = @w`,
	`DELETE FROM execution_workspaces WHERE id = @w`,
	`DELETE FROM tenures WHERE workspace_id = @w`,
	`UPDATE tenures SET run_id = @r WHERE workspace_id = @w`,
	`INSERT INTO tenures (id, company_id, workspace_id, epoch, run_id, started_at, started_by)
		SELECT gen_random_uuid(), company_id, id, epoch + 1, @r, clock_timestamp(), 'attack' FROM execution_workspaces WHERE id = @w`,
	`DELETE FROM snapshots WHERE workspace_id = @w`,
	`UPDATE snapshots SET epoch = epoch + 1 WHERE workspace_id = @w`,
	`DELETE FROM heartbeat_runs WHERE id = @r`,
	`UPDATE heartbeat_runs SET agent_id = gen_random_uuid() WHERE id = @r`,
	`DELETE FROM environment_leases`,
	`UPDATE termination_receipts SET state = 'destroyed'`,
	`TRUNCATE events`,
}

func (p *play) attack(rt *rapid.T) {
	statement := rapid.SampledFrom(attacks).Draw(rt, "attack")
	w, r := p.workspace(rt), p.run(rt)
	_, err := p.database.Pool.Exec(rt.Context(), statement, pgx.NamedArgs{"w": w.id, "r": r.RunID})
	if err == nil {
		rt.Fatalf("done: %s", statement)
	}
}
