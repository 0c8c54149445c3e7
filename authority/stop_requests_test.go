package authority

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"berth/provider"
)

// stopAt asks the writer to stop by a time from now on.
func (s *scene) stopAt(workspace uuid.UUID, from time.Duration) StopRequest {
	s.t.Helper()
	r, err := s.RequestStop(s.t.Context(), s.operator, workspace, StopInput{Reason: "maintenance", Deadline: time.Now().Add(from)}, Once{})
	s.wantNoError("request a stop", err)
	return r
}

func (s *scene) enforce() {
	s.t.Helper()
	s.wantNoError("enforce", s.EnforceStopRequests(s.t.Context()))
}

// stopState is the state and last error kind of a request.
func (s *scene) stopState(r StopRequest) string {
	s.t.Helper()
	return s.text("SELECT concat_ws(' ', state, last_error_kind) FROM stop_requests WHERE id = $1", r.ID)
}

func TestARenewalTellsTheNewestRequestToStop(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	w.TokenIssuedAt = time.Now()
	told := func() *StopNotice {
		renewal, err := s.Renew(t.Context(), w.Principal, fence)
		s.wantNoError("renew", err)
		return renewal.StopRequested
	}
	if told() != nil {
		t.Error("it is told to stop before anybody asked")
	}
	first := s.stopAt(workspace, time.Hour)
	if got := told(); got == nil || got.Reason != "maintenance" || !got.Deadline.Equal(first.Deadline) {
		t.Errorf("it is told %+v, want %+v", got, first)
	}
	second := s.stopAt(workspace, 2*time.Hour)
	if got := told(); got == nil || !got.Deadline.Equal(second.Deadline) {
		t.Errorf("it is told %+v, want the newer %+v", got, second)
	}
	if first, second := s.stopState(first), s.stopState(second); first != "superseded" || second != "requested" {
		t.Errorf("the requests are %s and %s", first, second)
	}
	if kinds := s.kinds(workspace); kinds["stop.requested"] != 2 || kinds["stop.superseded"] != 1 {
		t.Errorf("the events are %v", kinds)
	}
	s.wantNoError("release", func() error { _, err := s.Release(t.Context(), w.Principal, fence, false); return err }())
	next, nextFence := s.writer(workspace)
	next.TokenIssuedAt = time.Now()
	if renewal, err := s.Renew(t.Context(), next.Principal, nextFence); err != nil || renewal.StopRequested != nil {
		t.Errorf("the next writer is told %+v, %v, which was for the one before", renewal.StopRequested, err)
	}
}

func TestOnlyOperatorsAskAWriterToStopAndSayWhy(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	in := StopInput{Reason: "maintenance", Deadline: time.Now()}
	_, err := s.RequestStop(t.Context(), s.operator, workspace, in, Once{})
	s.wantCode("without a writer", err, ErrNoWriter)
	w, _ := s.writer(workspace)
	_, err = s.RequestStop(t.Context(), w.Principal, workspace, in, Once{})
	s.wantCode("by the writer", err, ErrNotAllowed)
	_, err = s.RequestStop(t.Context(), s.operator, workspace, StopInput{Reason: " ", Deadline: time.Now()}, Once{})
	s.wantCode("without a reason", err, ErrValidation)
	_, err = s.RequestStop(t.Context(), s.operator, uuid.New(), in, Once{})
	s.wantCode("of nothing", err, ErrWorkspaceNotFound)
	other := s.elsewhere()
	stranger := other.worker(other.task())
	_, err = s.RequestStop(t.Context(), stranger.Principal, workspace, in, Once{})
	s.wantCode("from another company", err, ErrWorkspaceNotFound)
	_, err = s.ListStopRequests(t.Context(), stranger.Principal, workspace, Page{})
	s.wantCode("list from another company", err, ErrWorkspaceNotFound)
	asked := s.stopAt(workspace, time.Hour)
	list, err := s.ListStopRequests(t.Context(), w.Principal, workspace, Page{})
	if err != nil || len(list.Items) != 1 || list.Items[0].ID != asked.ID {
		t.Errorf("the writer lists %+v, %v", list, err)
	}
}

func TestNobodyIsMadeToStopBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	c := s.withCloud()
	workspace := s.free()
	w, _ := s.writer(workspace)
	_, id := s.machine(c, w)
	r := s.stopAt(workspace, time.Hour)
	s.enforce()
	if c.asked(id) != 0 || s.stopState(r) != "requested" {
		t.Errorf("the machine was asked %d times, the request is %s", c.asked(id), s.stopState(r))
	}
}

func TestAfterTheDeadlineTheMachinesAreStoppedAndTheRunIsInterrupted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dirty  bool
		policy string
		state  provider.State
		lease  string
		next   string // the state in which the workspace is for the next
	}{
		"clean":            {false, "ephemeral", provider.StateRunning, "pending_cleanup pending", ""},
		"clean and reused": {false, "reuse_by_environment", provider.StateRunning, "released success", ""},
		"dirty":            {true, "ephemeral", provider.StateRunning, "pending_cleanup pending", "writer_ended_dirty"},
		"dirty and reused": {true, "reuse_by_environment", provider.StateRunning, "pending_cleanup pending", "writer_ended_dirty"},
		"destroyed":        {false, "ephemeral", provider.StateDestroyed, "expired success", ""},
		"dirty, destroyed": {true, "ephemeral", provider.StateDestroyed, "expired success", "writer_ended_dirty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			clouds := s.withCloud()
			workspace := s.free()
			w, fence := s.writer(workspace)
			if c.dirty {
				s.dirty(w, fence)
			}
			lease, id := s.machine(clouds, w, "lease_policy", c.policy)
			_, second := s.machine(clouds, w)
			clouds.set(id, c.state)
			r := s.stopAt(workspace, -time.Second)
			s.enforce()
			if got := s.leaseStatus(lease); got != c.lease {
				t.Errorf("the lease is %s, want %s", got, c.lease)
			}
			if clouds.asked(second) != 1 {
				t.Errorf("the second machine was asked to stop %d times", clouds.asked(second))
			}
			by := s.text("SELECT concat_ws(' ', status, finished_by) FROM heartbeat_runs WHERE id = $1", w.RunID)
			if by != "interrupted stop-request:"+r.ID.String() || s.stopState(r) != "enforced" {
				t.Errorf("the run is %s, the request %s", by, s.stopState(r))
			}
			got, err := s.reserve(s.worker(s.boundTask(workspace)))
			if c.next == "" {
				if err != nil || got.Handover == nil || got.Handover.Kind != "proof" {
					t.Errorf("the next gets %+v, %v; want a handover on proof", got.Handover, err)
				}
				return
			}
			pending, _ := s.wantCode("the next", err, ErrWriterPending).(WriterPending)
			if pending.State != c.next || len(pending.MissingProof) != 0 {
				t.Errorf("the next is told %+v, want %s", pending, c.next)
			}
		})
	}
}

func TestWithoutProofThatAWriterStoppedNothingIsFreedAndPeopleAreTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare  func(s *scene, c *cloud, w worker)
		kind     string
		attempts int // until the alert
	}{
		"no machine":            {func(*scene, *cloud, worker) {}, "no_machine", 1},
		"an unknown provider":   {func(s *scene, _ *cloud, w worker) { s.lease(w, "provider", "elsewhere") }, "unknown_provider", 1},
		"a local provider":      {func(s *scene, _ *cloud, w worker) { s.lease(w, "provider", "local") }, "cannot_prove", 1},
		"no id of the provider": {func(s *scene, _ *cloud, w worker) { s.lease(w, "provider_lease_id", nil) }, "cannot_prove", 1},
		"a machine never known": {func(s *scene, _ *cloud, w worker) { s.lease(w) }, "not_found", stopAttemptsBeforeAlert},
		"it does not stop":      {func(s *scene, c *cloud, w worker) { s.machine(c, w); c.deaf = true }, "still_running", stopAttemptsBeforeAlert},
		"another machine":       {func(s *scene, c *cloud, w worker) { s.machine(c, w); c.liar = true }, "wrong_machine", 1},
		"an unknown state":      {func(s *scene, c *cloud, w worker) { _, id := s.machine(c, w); c.set(id, "resting") }, "still_running", stopAttemptsBeforeAlert},
		"it cannot be reached":  {func(s *scene, c *cloud, w worker) { _, id := s.machine(c, w); c.failing[id] = provider.KindTimeout }, "timeout", stopAttemptsBeforeAlert},
		"one of two is stopped": {func(s *scene, c *cloud, w worker) { s.machine(c, w); s.lease(w, "provider", "elsewhere") }, "unknown_provider", 1},
		"another run's machine": {func(s *scene, c *cloud, w worker) {
			_, id := s.machine(c, w)
			s.lease(s.worker(w.task), "provider_lease_id", id)
		}, "machine_in_use", 1},
		"a credential in a word": {func(s *scene, c *cloud, w worker) { _, id := s.machine(c, w); c.failing[id] = provider.KindRefused }, "refused", stopAttemptsBeforeAlert},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			clouds := s.withCloud()
			workspace := s.free()
			w, fence := s.writer(workspace)
			c.prepare(s, clouds, w)
			r := s.stopAt(workspace, -time.Second)
			before := s.row(workspace)
			for attempt := 1; attempt <= c.attempts+1; attempt++ {
				s.enforce()
				want := "enforcing " + c.kind
				if attempt >= c.attempts {
					want = "alert " + c.kind
				}
				if got := s.stopState(r); got != want {
					t.Errorf("after attempt %d the request is %q, want %q", attempt, got, want)
				}
				pause := s.count("SELECT extract(epoch FROM next_attempt_at - clock_timestamp())::int FROM stop_requests WHERE id = $1", r.ID)
				if longest := int(30) << (attempt - 1); pause > longest || pause < longest*8/10-5 {
					t.Errorf("after attempt %d the next comes in %d s, want about %d", attempt, pause, longest)
				}
				s.due()
			}
			if s.row(workspace) != before || s.runStatus(w) != "running" {
				t.Error("something was freed")
			}
			if kinds := s.kinds(workspace); kinds["stop.alert"] != 1 {
				t.Errorf("the events are %v, want one alert", kinds)
			}
			if _, err := s.Release(t.Context(), w.Principal, fence, false); err != nil {
				t.Errorf("the writer releases: %v", err)
			}
			s.enforce()
			if got := s.stopState(r); !strings.HasPrefix(got, "over") {
				t.Errorf("after the release the request is %s", got)
			}
		})
	}
}

// A wrapper that was asked to stop saves what its command left. The next wish would cut that off.
func TestAMachineThatTookTheWishToStopGetsTimeBeforeTheNext(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	c := s.withCloud()
	workspace := s.free()
	w, fence := s.writer(workspace)
	_, id := s.machine(c, w)
	c.deaf = true
	s.stopAt(workspace, -time.Second)
	for attempt, asked := range []int{1, 1, 1, 2, 3} {
		s.enforce()
		if got := c.asked(id); got != asked {
			t.Errorf("after attempt %d it was asked %d times, want %d", attempt+1, got, asked)
		}
		s.due()
	}
	s.save(w, fence, "what was left", s.snapshotOf(workspace))
	c.failing[id] = provider.KindTimeout
	s.enforce()
	delete(c.failing, id)
	s.due()
	s.enforce()
	if got := c.asked(id); got != 4 {
		t.Errorf("it was asked %d times: after a wish that did not arrive it is asked again", got)
	}
}

func TestAMachineOfAnotherRunIsNeverAskedToStop(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	c := s.withCloud()
	workspace := s.free()
	w, _ := s.writer(workspace)
	_, id := s.machine(c, w)
	s.lease(s.worker(w.task), "provider_lease_id", id)
	s.stopAt(workspace, -time.Second)
	s.enforce()
	if c.asked(id) != 0 {
		t.Errorf("it was asked %d times", c.asked(id))
	}
}

// A stop that was asked for because of a tenure that ended must not reach the run's next one.
func TestAReceiptThatComesAfterTheReleaseIsNotRecorded(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	c := s.withCloud()
	workspace := s.free()
	w, fence := s.writer(workspace)
	lease, _ := s.machine(c, w)
	r := s.stopAt(workspace, -time.Second)
	c.onAsk = func() {
		c.onAsk = nil
		_, err := s.Release(t.Context(), w.Principal, fence, false)
		s.wantNoError("release", err)
	}
	s.enforce()
	if s.leaseStatus(lease) != "active" || s.runStatus(w) != "running" || s.stopState(r) != "over" {
		t.Errorf("the lease is %s, the run %s, the request %s", s.leaseStatus(lease), s.runStatus(w), s.stopState(r))
	}
}

func TestAnAttemptThatLostItsClaimChangesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	c := s.withCloud()
	workspace := s.free()
	w, _ := s.writer(workspace)
	s.machine(c, w)
	first := s.stopAt(workspace, -time.Second)
	c.onAsk = func() {
		c.onAsk = nil
		s.stopAt(workspace, time.Hour) // an operator gives it more time, meanwhile
	}
	s.enforce()
	if s.runStatus(w) != "running" || s.stopState(first) != "superseded" {
		t.Errorf("the run is %s, the first request %s", s.runStatus(w), s.stopState(first))
	}
}

func TestTwoServersEnforceARequestOnce(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 16)
	c := s.withCloud()
	var ids []string
	for range 20 {
		workspace := s.free()
		w, _ := s.writer(workspace)
		_, id := s.machine(c, w)
		ids = append(ids, id)
		s.stopAt(workspace, -time.Second)
	}
	other := *s.Service // another server on the same database
	for _, r := range race(t, 4, func(i int) (any, error) {
		if i%2 == 0 {
			return nil, other.EnforceStopRequests(t.Context())
		}
		return nil, s.EnforceStopRequests(t.Context())
	}) {
		s.wantNoError("enforce", r.err)
	}
	for _, id := range ids {
		if c.asked(id) != 1 {
			t.Errorf("a machine was asked to stop %d times", c.asked(id))
		}
	}
	if n := s.count("SELECT count(*) FROM stop_requests WHERE state = 'enforced' AND attempts = 1"); n != len(ids) {
		t.Errorf("%d requests were enforced at once, want %d", n, len(ids))
	}
	s.wantSoundHistory()
}

func TestAClaimOfAServerThatDiedIsFreeTwoMinutesLater(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	c := s.withCloud()
	workspace := s.free()
	w, _ := s.writer(workspace)
	s.machine(c, w)
	r := s.stopAt(workspace, -time.Second)
	_, err := s.queries.ClaimStopRequest(t.Context(), s.pool, uuid.New()) // and the server dies
	s.wantNoError("claim", err)
	s.enforce()
	if s.stopState(r) != "enforcing" {
		t.Errorf("the request is %s, which another server had claimed", s.stopState(r))
	}
	s.exec("UPDATE stop_requests SET next_attempt_at = next_attempt_at - interval '2 minutes'")
	s.enforce()
	if s.stopState(r) != "enforced" {
		t.Errorf("the request is %s two minutes later", s.stopState(r))
	}
}

// Of a release and an enforcement at once, either the writer ended by itself or the request ended it; never both,
// and the next writer is never touched.
func TestAnEnforcementAndAReleaseAtOnceLeaveOneTruth(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 12)
	c := s.withCloud()
	for range 40 {
		workspace := s.free()
		w, fence := s.writer(workspace)
		s.machine(c, w)
		r := s.stopAt(workspace, -time.Second)
		calls := race(t, 2, func(i int) (any, error) {
			if i == 0 {
				return nil, s.EnforceStopRequests(t.Context())
			}
			return s.Release(t.Context(), w.Principal, fence, false)
		})
		s.wantNoError("enforce", calls[0].err)
		s.due()
		s.enforce()
		how := s.text("SELECT coalesce(ended_how, '') FROM tenures WHERE workspace_id = $1", workspace)
		state, run := s.stopState(r), s.runStatus(w)
		switch released := calls[1].err == nil; {
		case released && (how != "release" || !strings.HasPrefix(state, "over") || run != "running"):
			t.Errorf("released, and the tenure ended by %q, the request is %s, the run %s", how, state, run)
		case !released:
			s.wantCode("release of an interrupted run", calls[1].err, ErrTenureEnded)
			if how != "" || !strings.HasPrefix(state, "enforced") || run != "interrupted" {
				t.Errorf("interrupted, and the tenure ended by %q, the request is %s, the run %s", how, state, run)
			}
		}
		s.writer(workspace) // either way the next gets in
	}
	s.wantSoundHistory()
}
