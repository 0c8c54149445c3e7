package authority

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"berth/db"
)

// situation is one thing that can be so when a reservation is decided, and what is answered when
// nothing that comes before it in the table of outcomes is so as well.
type situation struct {
	name string
	set  func(*reservationFacts)
	want verdict
	// text is part of the sentence for people, for the outcomes where clients rely on it.
	text string
}

func refused(r *Refusal) verdict { return verdict{refusal: r} }
func granted(g grant) verdict    { return verdict{grant: g} }

// reservable are facts under which a run is granted the free workspace that its task is bound to.
func reservable() reservationFacts {
	agent, issue, run, workspace := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	running, active, identifier := "running", "active", "ONE-1"
	epoch, generation, dirty := int64(3), int64(0), false
	return reservationFacts{
		company: uuid.New(),
		by:      Principal{Role: RoleRun, RunID: run, AgentID: agent},
		asked:   ReserveInput{IssueID: issue, RunID: run},
		found: db.GetReservationFactsRow{
			IssueID: &issue, IssueReadable: true, IssueIdentifier: &identifier,
			RunID: &run, RunStatus: &running, RunAgentID: &agent, RunIssueID: &issue,
			AgentExists: true, EnvironmentExists: true, ProjectExists: true, ProjectWorkspaceExists: true,
			WorkspaceID: &workspace, WorkspaceStatus: &active, WorkspaceLifecycleGeneration: &generation,
			WorkspaceEpoch: &epoch, WorkspaceDirty: &dirty, WorkspaceSourceMatches: true,
			ReadableByAgent: true, HolderReadable: true,
		},
	}
}

// creatable are facts under which a task that is bound to no workspace gets a new one.
func creatable() reservationFacts {
	f := reservable()
	f.found.WorkspaceID, f.found.WorkspaceStatus, f.found.WorkspaceEpoch = nil, nil, nil
	f.found.WorkspaceLifecycleGeneration, f.found.WorkspaceDirty = nil, nil
	return f
}

// onTheAsker are the outcomes that do not depend on a workspace, in the order in which they are answered.
var onTheAsker = []situation{
	{"unknown task", func(f *reservationFacts) { f.found.IssueID = nil }, refused(ErrIssueNotFound), ""},
	{"task not readable", func(f *reservationFacts) { f.found.IssueReadable = false }, refused(ErrIssueNotFound), ""},
	{"unknown run", func(f *reservationFacts) {
		f.found.RunID, f.found.RunStatus, f.found.RunAgentID, f.found.RunIssueID = nil, nil, nil, nil
	}, refused(ErrRunNotFound), ""},
	{"unknown agent", func(f *reservationFacts) {
		f.asked.AgentID, f.found.AgentExists = new(uuid.New()), false
	}, refused(ErrAgentNotFound), ""},
	{"unknown environment", func(f *reservationFacts) {
		f.asked.EnvironmentID, f.found.EnvironmentExists = new(uuid.New()), false
	}, refused(ErrEnvironmentNotFound), ""},
	{"unknown project", func(f *reservationFacts) {
		f.asked.ProjectID, f.found.ProjectExists = new(uuid.New()), false
	}, refused(ErrProjectNotFound), ""},
	{"unknown project workspace", func(f *reservationFacts) {
		f.asked.ProjectWorkspaceID, f.found.ProjectWorkspaceExists = new(uuid.New()), false
	}, refused(ErrProjectWorkspaceNotFound), ""},
	{"another run's token", func(f *reservationFacts) { f.by.RunID = uuid.New() }, refused(ErrRunIdentity), ""},
	{"run ended", func(f *reservationFacts) { f.found.RunStatus = new("succeeded") }, refused(ErrRunIdentity), ""},
	{"run queued", func(f *reservationFacts) { f.found.RunStatus = new("queued") }, refused(ErrRunIdentity), ""},
	{"run of another agent", func(f *reservationFacts) {
		f.asked.AgentID, f.found.AgentExists = new(uuid.New()), true
	}, refused(ErrRunIdentity), ""},
	{"run of another task", func(f *reservationFacts) { f.found.RunIssueID = new(uuid.New()) }, refused(ErrRunIdentity), ""},
	{"run of no task", func(f *reservationFacts) { f.found.RunIssueID = nil }, refused(ErrRunIdentity), ""},
	{"key of another request", func(f *reservationFacts) {
		f.once = Once{Key: "key", Digest: []byte("this")}
		f.found.KeyedTenureID, f.found.KeyedDigest = new(uuid.New()), []byte("that")
	}, refused(ErrIdempotencyKey), ""},
	{"key of an ended tenure", func(f *reservationFacts) {
		f.once = Once{Key: "key", Digest: []byte("this")}
		f.found.KeyedTenureID, f.found.KeyedDigest = new(uuid.New()), []byte("this")
		f.found.KeyedEndedAt, f.found.KeyedEndedHow, f.found.KeyedEndedBy = new(time.Now()), new("release"), new("run:1")
	}, refused(ErrTenureEnded), ""},
	{"asked workspace missing", func(f *reservationFacts) {
		f.asked.ExistingWorkspaceID, f.found.AskedWorkspaceReadable = new(uuid.New()), false
	}, refused(ErrWorkspaceMissing), "remote_workspace_missing"},
	{"asked workspace not bound", func(f *reservationFacts) {
		f.asked.ExistingWorkspaceID, f.found.AskedWorkspaceReadable = new(uuid.New()), true
	}, refused(ErrBinding), "Task workspace binding is unavailable"},
	{"files not readable for the agent", func(f *reservationFacts) {
		f.found.ReadableByAgent = false
	}, refused(ErrWorkspaceAccess), ""},
}

// overWorkspace are the outcomes for a task that is bound, in order; they follow those of onTheAsker.
var overWorkspace = []situation{
	{"the same run is the writer", func(f *reservationFacts) { f.writtenBy(f.asked.RunID) }, granted(grantReplay), ""},
	{"workspace archived", func(f *reservationFacts) {
		f.found.WorkspaceStatus = new("archived")
	}, refused(ErrOwnershipChanged), "Workspace ownership changed."},
	{"workspace cleanup_failed", func(f *reservationFacts) {
		f.found.WorkspaceStatus = new("cleanup_failed")
	}, refused(ErrOwnershipChanged), "Workspace ownership changed."},
	{"another source", func(f *reservationFacts) {
		f.asked.Source, f.found.WorkspaceSourceMatches = json.RawMessage(`{"kind": "git"}`), false
	}, refused(ErrSourceMismatch), ""},
	{"another epoch expected", func(f *reservationFacts) { f.asked.ExpectedEpoch = new(int64(2)) }, refused(ErrStaleEpoch), ""},
	{"the run holds another workspace", func(f *reservationFacts) {
		f.found.HeldWorkspaceID = new(uuid.New())
	}, refused(ErrRunHoldsWorkspace), ""},
	{"the last epoch is used", func(f *reservationFacts) {
		f.found.WorkspaceEpoch = new(int64(maximumEpoch))
	}, refused(ErrEpochExhausted), ""},
	{"nobody writes", func(f *reservationFacts) { f.found.WriterRunID = nil }, granted(grantFree), ""},
	{"another writes", func(f *reservationFacts) { f.writtenBy(uuid.New()) }, refused(ErrWriterPending), "unfinished writer"},
	{"writer queued", func(f *reservationFacts) {
		f.writtenBy(uuid.New())
		f.found.WriterStatus = new("queued")
	}, refused(ErrWriterPending), "unfinished writer"},
	{"writer ended dirty", func(f *reservationFacts) {
		f.endedWriter(proven())
		f.found.WorkspaceDirty = new(true)
	}, refused(ErrWriterPending), "unfinished writer"},
	{"a machine without proof", func(f *reservationFacts) {
		f.endedWriter(proven(), LeaseProof{LeaseID: uuid.New(), Missing: "lease_active"})
	}, refused(ErrWriterPending), "unfinished writer"},
	{"no machine at all", func(f *reservationFacts) { f.endedWriter() }, refused(ErrWriterPending), "unfinished writer"},
	{"writer ended and proven stopped", func(f *reservationFacts) { f.endedWriter(proven(), proven()) }, granted(grantHandover), ""},
}

// overNothing are the outcomes for a task that is bound to no workspace; they follow those of onTheAsker.
var overNothing = []situation{
	{"a source that cannot be fetched", func(f *reservationFacts) {
		f.asked.Source = json.RawMessage(`{"kind": "git"}`)
	}, refused(ErrSourceUnsupported), ""},
	{"an epoch expected where there is none", func(f *reservationFacts) { f.asked.ExpectedEpoch = new(int64(1)) }, refused(ErrStaleEpoch), ""},
	{"the run holds another workspace", func(f *reservationFacts) {
		f.found.HeldWorkspaceID = new(uuid.New())
	}, refused(ErrRunHoldsWorkspace), ""},
	{"all is well", func(*reservationFacts) {}, granted(grantCreate), ""},
}

// writtenBy makes a running run the writer, which owns nothing else that the facts speak of.
func (f *reservationFacts) writtenBy(run uuid.UUID) {
	f.found.WriterRunID, f.found.WriterStatus, f.found.WriterFinishedAt = &run, new("running"), nil
	f.found.TenureID, f.found.TenureStartedAt = new(uuid.New()), new(time.Now())
	f.found.WorkspaceDirty, f.leases = new(false), nil
}

// endedWriter makes a run that ended the writer, with these machines.
func (f *reservationFacts) endedWriter(leases ...LeaseProof) {
	f.writtenBy(uuid.New())
	f.found.WriterStatus, f.found.WriterFinishedAt, f.leases = new("failed"), new(time.Now()), leases
}

func TestEachSituationHasItsOutcome(t *testing.T) {
	t.Parallel()
	for _, table := range outcomeTables() {
		for _, one := range table.situations {
			t.Run(table.name+"/"+one.name, func(t *testing.T) {
				f := table.facts()
				one.set(&f)
				one.check(t, decide(f))
			})
		}
	}
}

// Whatever else is so, the first situation of the table answers: neighbours above all, but every
// pair as well.
func TestTheFirstSituationOfTheTableAnswers(t *testing.T) {
	t.Parallel()
	for _, table := range outcomeTables() {
		for i, first := range table.situations {
			for _, later := range table.situations[i+1:] {
				t.Run(fmt.Sprintf("%s/%s, and %s", table.name, first.name, later.name), func(t *testing.T) {
					f := table.facts()
					later.set(&f)
					first.set(&f)
					first.check(t, decide(f))
				})
			}
		}
	}
}

type outcomeTable struct {
	name       string
	facts      func() reservationFacts
	situations []situation
}

func outcomeTables() []outcomeTable {
	return []outcomeTable{
		{"bound", reservable, append(slices.Clone(onTheAsker), overWorkspace...)},
		{"unbound", creatable, append(slices.Clone(onTheAsker), overNothing...)},
	}
}

func (one situation) check(t *testing.T, got verdict) {
	t.Helper()
	switch {
	case one.want.refusal == nil && got.refusal != nil:
		t.Errorf("refused with %v, want it granted as %s", got.refusal, one.want.grant)
	case one.want.refusal == nil && got.grant != one.want.grant:
		t.Errorf("granted as %s, want %s", got.grant, one.want.grant)
	case one.want.refusal != nil && got.refusal == nil:
		t.Errorf("granted as %s, want %s", got.grant, one.want.refusal.Code)
	case one.want.refusal != nil && got.refusal.Code != one.want.refusal.Code:
		t.Errorf("refused with %v, want %s", got.refusal, one.want.refusal.Code)
	case one.want.refusal != nil && !strings.Contains(got.refusal.Detail, one.text):
		t.Errorf("the detail is %q, want %q in it", got.refusal.Detail, one.text)
	}
}
