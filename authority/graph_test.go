package authority

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

// graphWorkers is on how many databases the graph is walked at once. Sweeps look at a whole database, so each walker
// has one of its own.
const graphWorkers = 4

// A walk over all states that a workspace can get into by the calls of the API, the sweeps and what happens outside.
// From each one, whoever does what the explanations name gets to be the writer.
func TestFromEveryStateOfAWorkspaceThereIsAWayOut(t *testing.T) {
	t.Parallel()
	g := &graph{paths: map[string][]string{}, ways: map[string]string{}}
	g.states, g.paths[""] = []string{""}, nil
	walkers := make(chan *crash, graphWorkers)
	for range graphWorkers {
		c := newCrash(t, "")
		walkers <- c
	}
	for level := g.states; len(level) > 0; level = g.next() {
		var all sync.WaitGroup
		for _, state := range level {
			c := <-walkers
			all.Go(func() {
				defer func() { walkers <- c }()
				g.explore(c, state)
			})
		}
		all.Wait()
	}
	steps := 0
	for _, path := range g.paths {
		steps = max(steps, len(path))
	}
	t.Logf("%d states, the farthest after %d steps", len(g.ways), steps)
	for _, state := range slices.Sorted(maps.Keys(g.ways)) {
		t.Logf("%-120s %s", state, g.ways[state])
	}
	for _, must := range []string{
		"nobody", "running dirty", "running silent!", "failed dirty proven", "failed clean no machine", "failed clean active",
		"archived", "cleanup_failed", "nobody waiting!", "running waiting!", "saving!", "stop-alert!", "recovery!",
	} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(g.ways)), func(state string) bool { return containsAll(state, must) }) {
			t.Errorf("the walk met no state with: %s", must)
		}
	}
}

func containsAll(state, words string) bool {
	for word := range strings.FieldsSeq(words) {
		if !strings.Contains(state, word) {
			return false
		}
	}
	return true
}

// graph is what the walk learned.
type graph struct {
	mu     sync.Mutex
	states []string            // met, and not explored yet
	paths  map[string][]string // the steps by which each state was met first
	ways   map[string]string   // the way out of each
}

// next takes what was met since the last call.
func (g *graph) next() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	level := g.states
	g.states = nil
	return level
}

// met notes a state, by the path that led to it.
func (g *graph) met(state string, path []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.paths[state]; !known && strings.Count(state, "!") <= 1 {
		g.paths[state] = slices.Clone(path)
		g.states = append(g.states, state)
	}
}

func (g *graph) pathTo(state string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.paths[state]
}

// explore takes each step from the state, and then the way out of it.
func (g *graph) explore(c *crash, state string) {
	path := g.pathTo(state)
	here := reach(c, path)
	if state == "" {
		state = here.state()
		g.met(state, nil)
	}
	for _, step := range slices.Sorted(maps.Keys(graphSteps)) {
		graphSteps[step](here)
		if now := here.state(); now != state {
			g.met(now, append(slices.Clone(path), step))
			here = reach(c, path)
		}
	}
	here.wantNotClosedInUse(state)
	here.wantSoundHistory()
	way := strings.Join(here.leadsOut(here.workspace), ", ")
	here.wantSoundHistory()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ways[state] = way
}

// reach is a new world after the steps.
func reach(c *crash, path []string) *world {
	w := newWorld(c)
	for _, step := range path {
		graphSteps[step](w)
	}
	return w
}

func TestWhatExplanationsNameAreCallsOfTheAPI(t *testing.T) {
	t.Parallel()
	named := map[string]bool{}
	for _, actions := range append(slices.Collect(maps.Values(pendingActions)), overdueActions) {
		for _, name := range actions {
			named[name] = true
			if moves[name] == nil {
				t.Errorf("nobody tried what %s leads to", name)
			}
		}
	}
	for _, actions := range refusedActions {
		for _, name := range actions {
			named[name] = true
		}
	}
	document := apiDocument(t)
	for name := range named {
		if !strings.Contains(document, "operationId: "+name+"\n") {
			t.Errorf("the API has no %s", name)
		}
	}
}
