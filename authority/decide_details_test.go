package authority

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// proven is a machine that is proven stopped.
func proven() LeaseProof {
	return LeaseProof{LeaseID: uuid.New(), Provider: "cloud", Kind: "termination", ReceiptID: uuid.NewString()}
}

func TestAPendingWriterIsDescribedByItsState(t *testing.T) {
	t.Parallel()
	unproven := LeaseProof{LeaseID: uuid.New(), Provider: "cloud", Missing: "receipt_missing"}
	for _, c := range []struct {
		state   string
		set     func(*reservationFacts)
		missing int
	}{
		{"writer_running", func(f *reservationFacts) { f.writtenBy(uuid.New()); f.leases = []LeaseProof{unproven} }, 0},
		{"writer_ended_dirty", func(f *reservationFacts) { f.endedWriter(unproven); f.found.WorkspaceDirty = new(true) }, 1},
		{"writer_ended_unproven", func(f *reservationFacts) { f.endedWriter(proven(), unproven) }, 1},
		{"writer_ended_unproven", func(f *reservationFacts) { f.endedWriter() }, 0},
	} {
		f := reservable()
		c.set(&f)
		got, _ := decide(f).refusal.Details.(WriterPending)
		if got.State != c.state || got.MissingProof == nil || len(got.MissingProof) != c.missing || got.RetryAfter <= 0 {
			t.Errorf("the details are %+v, want the state %s with %d machines without proof", got, c.state, c.missing)
		}
		if c.missing == 1 && got.MissingProof[0] != (MissingProof{unproven.LeaseID, "cloud", "receipt_missing"}) {
			t.Errorf("the machine without proof is %+v, want %+v", got.MissingProof[0], unproven)
		}
	}
}

func TestTheHolderIsNamedOnlyToThoseWhoMayReadItsTask(t *testing.T) {
	t.Parallel()
	f := reservable()
	f.writtenBy(uuid.New())
	if got, _ := decide(f).refusal.Details.(WriterPending); got.Holder == nil || got.Holder.RunID != *f.found.WriterRunID || got.Holder.Epoch != 3 {
		t.Errorf("the holder is %+v, want run %s at epoch 3", got.Holder, *f.found.WriterRunID)
	}
	f.found.HolderReadable = false
	if got, _ := decide(f).refusal.Details.(WriterPending); got.Holder != nil {
		t.Errorf("a holder whose task may not be read is told: %+v", got.Holder)
	}
}

func TestAGrantTellsWhomItFollows(t *testing.T) {
	t.Parallel()
	f := reservable()
	if got := decide(f); got.handover != nil {
		t.Errorf("nobody was before, and the grant tells of %+v", got.handover)
	}
	f.endedWriter(proven())
	want := Handover{Kind: "proof", FromRunID: *f.found.WriterRunID, FromEpoch: 3}
	if got := decide(f).handover; got == nil || *got != want {
		t.Errorf("over an ended writer the grant tells of %+v, want %+v", got, want)
	}

	f = reservable()
	from := uuid.New()
	f.found.LastRunID, f.found.LastEpoch, f.found.LastEndedHow = &from, new(int64(2)), new("takeover")
	f.found.LastUnproven, f.found.LastUnsavedWork = new(true), new(true)
	want = Handover{Kind: "takeover", FromRunID: from, FromEpoch: 2, Unproven: true, UnsavedWork: true}
	if got := decide(f).handover; got == nil || *got != want {
		t.Errorf("after a takeover the grant tells of %+v, want %+v", got, want)
	}
	f.found.LastEndedHow = new("release")
	if got := decide(f).handover; got != nil {
		t.Errorf("after a release the grant tells of %+v", got)
	}
}

func TestAReplayTellsTheHandoverOfItsTenure(t *testing.T) {
	t.Parallel()
	f := reservable()
	f.writtenBy(f.asked.RunID)
	want := Handover{Kind: "proof", FromRunID: uuid.New(), FromEpoch: 2}
	f.found.TenureHandover, _ = json.Marshal(want)
	if got := decide(f).handover; got == nil || *got != want {
		t.Errorf("the replay tells of %+v, want %+v", got, want)
	}
}

func TestNoRefusalEchoesAnIdThatTheCallerSent(t *testing.T) {
	t.Parallel()
	f := reservable()
	for _, table := range outcomeTables() {
		for _, one := range table.situations {
			f = table.facts()
			one.set(&f)
			r := decide(f).refusal
			if r == nil {
				continue
			}
			details, err := json.Marshal(r.Details)
			if err != nil {
				t.Fatal(err)
			}
			said := r.Detail + string(details)
			for _, sent := range []*uuid.UUID{
				&f.asked.IssueID, &f.asked.RunID, f.asked.AgentID, f.asked.EnvironmentID,
				f.asked.ProjectID, f.asked.ProjectWorkspaceID, f.asked.ExistingWorkspaceID,
			} {
				if sent != nil && strings.Contains(said, sent.String()) {
					t.Errorf("%s: the refusal repeats an id of the request: %s", one.name, said)
				}
			}
		}
	}
}

// Whoever looks at a workspace that is not free has no run there yet.
func TestWithoutARunTheExplanationIsForOneThatWouldBeginNow(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	task := s.boundTask(workspace)
	explained := func(by Principal) string {
		e, err := s.Explain(t.Context(), by, ReserveInput{IssueID: task})
		s.wantNoError("explain", err)
		if pending, ok := e.Details.(WriterPending); ok {
			return pending.State
		}
		return e.Detail
	}
	if got := explained(s.operator); got != "Nobody is the writer." {
		t.Errorf("of a free workspace: %s", got)
	}
	holder := s.worker(task)
	fence := s.mustReserve(holder)
	if got := explained(s.operator); got != "writer_running" {
		t.Errorf("of one that is held: %s", got)
	}
	if got := explained(holder.Principal); got != "The run is the writer." {
		t.Errorf("to its writer: %s", got)
	}
	s.gone(s.worker(s.boundTask(workspace)))
	_, err := s.Release(t.Context(), holder.Principal, fence, false)
	s.wantNoError("release", err)
	if got := explained(s.operator); got != "others_wait" {
		t.Errorf("of one that others wait for: %s", got)
	}
	nowhere, err := s.Explain(t.Context(), s.operator, ReserveInput{IssueID: uuid.New()})
	if err != nil || nowhere.Code == nil || *nowhere.Code != ErrIssueNotFound.Code {
		t.Errorf("of no task: %+v, %v", nowhere, err)
	}
}
