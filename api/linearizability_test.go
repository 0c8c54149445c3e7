package api_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// A history of concurrent clients is linearizable when each call can be given one instant between
// its beginning and its answer, so that all answers are those of one workspace that serves one
// call after the other.

// move is one call of a client about one workspace.
type move struct {
	workspace int
	call      string // reserve, release, takeover or read
	run       string
	epoch     float64 // that a release claims
}

// outcome is what the call was answered. Writer and epoch are what the answer says of the workspace.
type outcome struct {
	granted bool
	epoch   float64
	writer  string
}

// held is the model's whole state of a workspace.
type held struct {
	epoch  float64
	writer string // "" is nobody
}

var oneWriter = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byWorkspace := map[int][]porcupine.Operation{}
		for _, op := range history {
			workspace := op.Input.(move).workspace
			byWorkspace[workspace] = append(byWorkspace[workspace], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byWorkspace {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return held{epoch: 3} },
	Step: func(state, input, output any) (bool, any) {
		before, in, out := state.(held), input.(move), output.(outcome)
		after := before
		switch in.call {
		case "reserve":
			if before.writer != "" && before.writer != in.run {
				return !out.granted, before
			}
			if before.writer == "" {
				after = held{before.epoch + 1, in.run}
			}
		case "release":
			if before.writer != in.run || before.epoch != in.epoch {
				return !out.granted, before
			}
			after.writer = ""
		case "takeover":
			if before.writer == "" {
				return !out.granted, before
			}
			after = held{before.epoch + 1, ""}
		}
		return out == outcome{true, after.epoch, after.writer}, after
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
}

func TestConcurrentHistoriesAreLinearizable(t *testing.T) {
	t.Parallel()
	const clients, workspaces, calls = 6, 2, 60
	s := newScene(t)
	trees, tasks := make([]string, workspaces), make([][]string, workspaces)
	runs := make([][]writer, workspaces)
	for w := range workspaces {
		var parent string
		parent, trees[w] = s.parent(nil)
		for range clients {
			task := s.child(parent)
			tasks[w], runs[w] = append(tasks[w], task), append(runs[w], s.run(task))
		}
	}
	var (
		mu      sync.Mutex
		history []porcupine.Operation
		working sync.WaitGroup
		began   = time.Now()
	)
	for client := range clients {
		working.Go(func() {
			dice := rand.New(rand.NewPCG(uint64(client), 27))
			epochs := make([]float64, workspaces) // of the client's last reservations
			for range calls {
				w := dice.IntN(workspaces)
				in := move{workspace: w, call: pick(dice), run: runs[w][client].id, epoch: epochs[w]}
				start := time.Since(began).Nanoseconds()
				out := s.play(in, tasks[w][client], trees[w], runs[w][client])
				end := time.Since(began).Nanoseconds()
				if in.call == "reserve" && out.granted {
					epochs[w] = out.epoch
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: client, Input: in, Call: start, Output: out, Return: end})
				mu.Unlock()
			}
		})
	}
	working.Wait()
	granted := 0
	for _, op := range history {
		if in, out := op.Input.(move), op.Output.(outcome); in.call == "reserve" && out.granted {
			granted++
		}
	}
	if granted < 10 {
		t.Errorf("only %d of %d calls were granted reservations: the history says too little", granted, len(history))
	}
	if result := porcupine.CheckOperationsTimeout(oneWriter, history, time.Minute); result != porcupine.Ok {
		t.Errorf("the history is not linearizable: %s", result)
		for _, op := range history {
			t.Logf("%d %d %d %+v %+v", op.ClientId, op.Call, op.Return, op.Input, op.Output)
		}
	}
}

// pick takes the calls as often as keeps workspaces changing hands.
func pick(dice *rand.Rand) string {
	switch n := dice.IntN(10); {
	case n < 4:
		return "reserve"
	case n < 7:
		return "release"
	case n < 8:
		return "takeover"
	default:
		return "read"
	}
}

// play makes the call, and fails the test for an answer that the call can never have.
func (s *scene) play(in move, task, workspace string, by writer) outcome {
	s.t.Helper()
	path := "/api/execution-workspaces/" + workspace
	var status int
	var answer object
	refusals := map[string]bool{}
	switch in.call {
	case "reserve":
		status, answer = s.reserve(task, by, existing(workspace))
		refusals["remote_workspace_writer_pending"] = true
		if status == http.StatusOK {
			answer = answer["workspace"].(object)
		}
	case "release":
		status, answer = s.Do(http.MethodPost, path+"/release", by.token, object{"runId": by.id, "epoch": in.epoch})
		refusals["stale_epoch"], refusals["tenure_ended"] = true, true
	case "takeover":
		status, answer = s.Do(http.MethodPost, path+"/takeover", s.OperatorToken, object{"reason": "drill", "acceptRisk": true})
		refusals["no_writer"] = true
	default:
		status, answer = s.Do(http.MethodGet, path, by.token, nil)
	}
	if status != http.StatusOK {
		if code, _ := answer["code"].(string); !refusals[code] {
			s.t.Errorf("%+v: %d %v", in, status, answer)
		}
		return outcome{}
	}
	authority := answer["authority"].(object)
	out := outcome{granted: true, epoch: authority["epoch"].(float64)}
	out.writer, _ = authority["writerRunId"].(string)
	return out
}
