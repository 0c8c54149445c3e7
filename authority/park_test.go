package authority

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"berth/provider"
)

// park is the provider "cloud" with its machines, outside of everything that is tested. It answers as
// it is told to, and counts what it was asked.
type park struct {
	mu       sync.Mutex
	machines map[string]provider.State
	failing  error                    // what every call fails with
	deaf     bool                     // takes a wish and does nothing about it
	lie      string                   // the id to answer with instead of the one asked for
	asked    map[string]int           // "stop m-1": how often
	during   func(wish, id string)    // runs inside of each call
	config   func(config string) bool // whether the machines are there under that configuration
}

func newPark() *park {
	return &park{machines: map[string]provider.State{}, asked: map[string]int{}}
}

func (p *park) For(name string, config json.RawMessage) (provider.Provider, error) {
	if name != "cloud" {
		return nil, provider.ErrUnknownProvider
	}
	return parkAccount{park: p, empty: p.config != nil && !p.config(string(config))}, nil
}

func (p *park) set(id string, state provider.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.machines[id] = state
}

func (p *park) change(do func(p *park)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do(p)
}

// times is how often the park was asked that of the machine.
func (p *park) times(wish, id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[wish+" "+id]
}

func (p *park) state(id string) provider.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.machines[id]
}

// parkAccount is the park as one configuration shows it.
type parkAccount struct {
	*park
	empty bool
}

func (a parkAccount) State(ctx context.Context, id string) (provider.Answer, error) {
	return a.answer(ctx, "state", id, "")
}

func (a parkAccount) Stop(ctx context.Context, id string) (provider.Answer, error) {
	return a.answer(ctx, "stop", id, provider.StateStopped)
}

func (a parkAccount) Destroy(ctx context.Context, id string) (provider.Answer, error) {
	return a.answer(ctx, "destroy", id, provider.StateDestroyed)
}

func (a parkAccount) answer(ctx context.Context, wish, id string, becomes provider.State) (provider.Answer, error) {
	a.mu.Lock()
	during := a.during
	a.mu.Unlock()
	if during != nil {
		during(wish, id)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked[wish+" "+id]++
	if err := ctx.Err(); err != nil {
		return provider.Answer{}, &provider.Error{Kind: provider.KindTimeout, Cause: err}
	}
	if a.failing != nil {
		return provider.Answer{}, &provider.Error{Kind: provider.KindUnreachable, Cause: a.failing}
	}
	state, known := a.machines[id]
	if !known || a.empty {
		return provider.Answer{}, &provider.Error{Kind: provider.KindNotFound, Cause: errors.New("no such machine")}
	}
	if becomes != "" && !a.deaf && state != provider.StateDestroyed {
		state = becomes
		a.machines[id] = state
	}
	if a.lie != "" {
		id = a.lie
	}
	return provider.Answer{ID: id, State: state, Word: string(state)}, nil
}
