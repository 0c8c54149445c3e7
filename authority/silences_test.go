package authority

import (
	"testing"
	"time"

	"berth/provider"
)

// silent lets every writer count as silent from the instant on that it was heard of.
func (s *scene) silent() { WithSilentAfter(time.Nanosecond)(s.Service) }

func (s *scene) prove() {
	s.t.Helper()
	s.wantNoError("look after silent writers", s.ProveSilentWriters(s.t.Context()))
}

func TestASilentWriterIsToldOfOnceAndKeepsItsWorkspace(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	c := s.withCloud()
	workspace := s.free()
	w, fence := s.writer(workspace)
	_, id := s.machine(c, w)
	s.silent()
	before := s.row(workspace)
	for range 5 {
		s.prove()
		s.due()
	}
	if n := s.kinds(workspace)["writer.silent"]; n != 1 {
		t.Errorf("the silence was told %d times", n)
	}
	if s.row(workspace) != before || s.runStatus(w) != "running" || c.asked(id) != 0 {
		t.Errorf("the run is %s, and its machine was asked to stop %d times", s.runStatus(w), c.asked(id))
	}
	if _, err := s.Renew(t.Context(), w.Principal, fence); err != nil {
		t.Errorf("the late writer renews: %v", err)
	}
	WithSilentAfter(time.Hour)(s.Service)
	s.prove()
	if how := s.text("SELECT ended_how FROM writer_silences"); how != "heard" {
		t.Errorf("the silence ended as %q", how)
	}
	WithSilentAfter(time.Nanosecond)(s.Service)
	s.prove()
	if n := s.kinds(workspace)["writer.silent"]; n != 2 {
		t.Errorf("after it was heard, and fell silent again, it was told %d times", n)
	}
}

func TestAWriterThatIsHeardOfIsNotSilent(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	s.writer(workspace)
	s.prove()
	if n := s.count("SELECT count(*) FROM writer_silences"); n != 0 {
		t.Errorf("there are %d silences", n)
	}
}

func TestASilentWriterWhoseMachinesAreGoneIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, state := range []provider.State{provider.StateStopped, provider.StateDestroyed} {
		s := newScene(t)
		c := s.withCloud()
		workspace := s.free()
		w, _ := s.writer(workspace)
		_, one := s.machine(c, w)
		_, two := s.machine(c, w)
		s.silent()
		c.set(one, state)
		s.prove()
		if s.runStatus(w) != "running" {
			t.Fatalf("with one of two machines running the run is %s", s.runStatus(w))
		}
		c.set(two, state)
		s.due()
		s.prove()
		by := s.text("SELECT concat_ws(' ', r.status, r.finished_by = 'silence:' || s.id, s.ended_how) FROM heartbeat_runs r, writer_silences s WHERE r.id = $1", w.RunID)
		if by != "interrupted t stopped" {
			t.Errorf("%s: the run and the silence are %q", state, by)
		}
		if got, err := s.reserve(s.worker(s.boundTask(workspace))); err != nil || got.Handover == nil {
			t.Errorf("%s: the next gets %+v, %v", state, got, err)
		}
	}
}

// What a provider does not know may be a machine of another account, or one that never was.
func TestAMachineThatTheProviderDoesNotKnowIsNoProofOfSilenceForEver(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.withCloud()
	workspace := s.free()
	w, _ := s.writer(workspace)
	s.lease(w)
	s.silent()
	s.prove()
	if s.runStatus(w) != "running" || s.text("SELECT last_error_kind FROM writer_silences") != "not_found" {
		t.Errorf("the run is %s", s.runStatus(w))
	}
}

func TestAMachineThatItsProviderKnewAndLostIsDestroyed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	c := s.withCloud()
	workspace := s.free()
	w, _ := s.writer(workspace)
	lease, id := s.machine(c, w)
	s.silent()
	s.prove()
	delete(c.machines, id)
	s.exec("UPDATE environments SET config = '{\"provider\": {\"kind\": \"another account\"}}'")
	s.due()
	s.prove()
	if s.runStatus(w) != "running" {
		t.Fatal("another configuration's word was believed")
	}
	s.exec("UPDATE environments SET config = DEFAULT")
	s.due()
	s.prove()
	if s.runStatus(w) != "interrupted" || s.leaseStatus(lease) != "expired success" {
		t.Errorf("the run is %s, the lease %s", s.runStatus(w), s.leaseStatus(lease))
	}
}

// The provider is right that the machine stopped, and the run came back on another one meanwhile.
func TestAWriterThatRenewsWhileItsProviderIsAskedGoesOn(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	c := s.withCloud()
	workspace := s.free()
	w, fence := s.writer(workspace)
	lease, id := s.machine(c, w)
	c.set(id, provider.StateStopped)
	s.silent()
	c.onAsk = func() {
		c.onAsk = nil
		_, err := s.Renew(t.Context(), w.Principal, fence)
		s.wantNoError("renew", err)
	}
	s.prove()
	if s.runStatus(w) != "running" || s.leaseStatus(lease) != "active" || s.text("SELECT ended_how FROM writer_silences") != "heard" {
		t.Errorf("the run is %s, the lease %s", s.runStatus(w), s.leaseStatus(lease))
	}
}

func TestARenewalAndTheProofOfItsSilenceAtOnceLeaveOneTruth(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 12)
	c := s.withCloud()
	for range 40 {
		workspace := s.free()
		w, fence := s.writer(workspace)
		w.TokenIssuedAt = time.Now()
		_, id := s.machine(c, w)
		s.silent()
		s.prove() // which notices the silence, and proves nothing yet
		WithSilentAfter(time.Hour)(s.Service)
		c.set(id, provider.StateStopped)
		s.due()
		calls := race(t, 2, func(i int) (any, error) {
			if i == 0 {
				return nil, s.ProveSilentWriters(t.Context())
			}
			return s.Renew(t.Context(), w.Principal, fence)
		})
		s.wantNoError("look after silent writers", calls[0].err)
		renewed := s.text("SELECT coalesce(last_renewed_at::text, '') FROM heartbeat_runs WHERE id = $1", w.RunID) != ""
		switch {
		case calls[1].err == nil && (s.runStatus(w) != "running" || !renewed):
			t.Errorf("it renewed, and is %s", s.runStatus(w))
		case calls[1].err != nil:
			s.wantCode("renew after the proof", calls[1].err, ErrTenureEnded)
			if s.runStatus(w) != "interrupted" || renewed {
				t.Errorf("it was refused, and is %s", s.runStatus(w))
			}
		}
		if s.runStatus(w) == runRunning {
			s.end(w, "failed") // or it is silent in the next round
		}
	}
	s.wantSoundHistory()
}
