package authority

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/google/uuid"

	"berth/provider"
)

// cloud is the outside party of a test: a provider with machines, each with a life of its own. What its machines do when
// they are asked to stop is for the test to say.
type cloud struct {
	mu       sync.Mutex
	machines map[string]provider.State
	failing  map[string]provider.Kind
	deaf     bool // takes a request to stop, and goes on
	liar     bool // answers about another machine
	stops    map[string]int
	onAsk    func() // between the question and the answer
}

func newCloud() *cloud {
	return &cloud{machines: map[string]provider.State{}, failing: map[string]provider.Kind{}, stops: map[string]int{}}
}

func (c *cloud) For(name string, _ json.RawMessage) (provider.Provider, error) {
	if name != "cloud" {
		return nil, provider.ErrUnknownProvider
	}
	return c, nil
}

func (c *cloud) State(_ context.Context, id string) (provider.Answer, error) {
	return c.answer(id, func() {})
}

func (c *cloud) Stop(_ context.Context, id string) (provider.Answer, error) {
	return c.answer(id, func() {
		c.stops[id]++
		if c.machines[id] == provider.StateRunning && !c.deaf {
			c.machines[id] = provider.StateStopped
		}
	})
}

func (c *cloud) Destroy(_ context.Context, id string) (provider.Answer, error) {
	return c.answer(id, func() { c.machines[id] = provider.StateDestroyed })
}

func (c *cloud) answer(id string, act func()) (provider.Answer, error) {
	if c.onAsk != nil {
		c.onAsk()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if kind, fails := c.failing[id]; fails {
		return provider.Answer{}, &provider.Error{Kind: kind}
	}
	if _, known := c.machines[id]; !known {
		return provider.Answer{}, &provider.Error{Kind: provider.KindNotFound}
	}
	act()
	answer := provider.Answer{ID: id, State: c.machines[id], Word: string(c.machines[id])}
	if c.liar {
		answer.ID += "0"
	}
	return answer, nil
}

func (c *cloud) set(id string, state provider.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.machines[id] = state
}

func (c *cloud) asked(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stops[id]
}

// withCloud lets the scene's service ask a cloud.
func (s *scene) withCloud() *cloud {
	c := newCloud()
	WithProviders(c)(s.Service)
	return c
}

// machine is a running machine of the cloud that is leased for the run; columns change the lease.
func (s *scene) machine(c *cloud, w worker, columns ...any) (lease uuid.UUID, id string) {
	s.t.Helper()
	id = uuid.NewString()
	c.set(id, provider.StateRunning)
	return s.lease(w, append([]any{"provider_lease_id", id}, columns...)...), id
}

// due moves the next attempt of every open request and silence to now.
func (s *scene) due() {
	s.t.Helper()
	s.exec("UPDATE stop_requests SET next_attempt_at = clock_timestamp() WHERE settled_at IS NULL")
	s.exec("UPDATE writer_silences SET next_attempt_at = clock_timestamp() WHERE ended_at IS NULL")
}

// kinds counts the events of a workspace by their kind.
func (s *scene) kinds(workspace uuid.UUID) map[string]int {
	s.t.Helper()
	events, err := s.ListEvents(s.t.Context(), s.operator, workspace, Page{Limit: 200})
	s.wantNoError("list the events", err)
	kinds := map[string]int{}
	for _, e := range events.Items {
		kinds[e.Kind]++
	}
	return kinds
}

func (s *scene) runStatus(w worker) string {
	s.t.Helper()
	return s.text("SELECT status FROM heartbeat_runs WHERE id = $1", w.RunID)
}

func (s *scene) leaseStatus(lease uuid.UUID) string {
	s.t.Helper()
	return s.text("SELECT concat_ws(' ', status, cleanup_status) FROM environment_leases WHERE id = $1", lease)
}

func TestAPauseDoublesUpToHalfAnHour(t *testing.T) {
	t.Parallel()
	for attempts, longest := range map[int]float64{0: 30, 1: 30, 2: 60, 3: 120, 6: 960, 7: 1800, 8: 1800, 1 << 30: 1800} {
		for range 100 {
			if pause := pauseAfter(attempts).Seconds(); pause > longest || pause < longest*0.9 {
				t.Fatalf("after %d attempts the pause is %v s, want about %v", attempts, pause, longest)
			}
		}
	}
}
