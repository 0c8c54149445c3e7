package authority

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"
)

// asked is one call on a workspace, as the judge of a history sees it.
type asked struct {
	workspace int
	verb      string // reserve, release, takeover, read
	run       uuid.UUID
	epoch     int64 // that a release claims
}

// answered is what it was answered: a refusal's code, or the epoch and the writer afterwards.
type answered struct {
	code   Code
	epoch  int64
	writer uuid.UUID // uuid.Nil for nobody
}

// heldAt is the state of one workspace to the judge.
type heldAt struct {
	epoch  int64
	writer uuid.UUID
}

// oneWriter is the sequential model: what each call may answer in each state, and what is then so.
var oneWriter = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byWorkspace := map[int][]porcupine.Operation{}
		for _, o := range history {
			in, _ := o.Input.(asked)
			byWorkspace[in.workspace] = append(byWorkspace[in.workspace], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range byWorkspace {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return heldAt{epoch: 3} },
	Step: func(state, input, output any) (bool, any) {
		is, _ := state.(heldAt)
		in, _ := input.(asked)
		out, _ := output.(answered)
		next, code := is.after(in)
		if code != "" {
			return out.code == code, is
		}
		return out == answered{epoch: next.epoch, writer: next.writer}, next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
}

// after is the state that a call leaves, or the code with which it is refused.
func (is heldAt) after(in asked) (heldAt, Code) {
	switch free := is.writer == uuid.Nil; {
	case in.verb == "read":
		return is, ""
	case in.verb == "reserve" && free:
		return heldAt{is.epoch + 1, in.run}, ""
	case in.verb == "reserve" && is.writer == in.run:
		return is, ""
	case in.verb == "reserve":
		return is, ErrWriterPending.Code
	case in.verb == "release" && is.writer == in.run && is.epoch == in.epoch:
		return heldAt{epoch: is.epoch}, ""
	case in.verb == "release":
		return is, ErrTenureEnded.Code
	case free: // a takeover
		return is, ErrNoWriter.Code
	}
	return heldAt{epoch: is.epoch + 1}, ""
}

// client is one of several that call at once. It has a run for each workspace, and remembers at which
// epoch that reserved.
type client struct {
	*scene
	runs   []worker
	epochs []int64
}

// call makes one call and says what was answered.
func (c *client) call(workspaces []uuid.UUID) (asked, answered) {
	i := rand.IntN(len(workspaces))
	in := asked{workspace: i, verb: "reserve", run: c.runs[i].RunID}
	var got Workspace
	var err error
	switch pick := rand.IntN(10); {
	case pick < 2:
		in.verb = "read"
		got, err = c.GetWorkspace(c.t.Context(), c.operator, workspaces[i])
	case pick < 3:
		in.verb = "takeover"
		got, err = c.Takeover(c.t.Context(), c.operator, workspaces[i], acceptingRisk)
	case c.epochs[i] != 0 && pick < 7:
		in.verb, in.epoch = "release", c.epochs[i]
		fence := Fence{WorkspaceID: workspaces[i], RunID: in.run, Epoch: in.epoch}
		got, err = c.Release(c.t.Context(), c.runs[i].Principal, fence, false)
	default:
		var r Reservation
		r, err = c.reserve(c.runs[i])
		if got = r.Workspace; err == nil {
			c.epochs[i] = got.Authority.Epoch
		}
	}
	if refused := (*Refusal)(nil); errors.As(err, &refused) {
		return in, answered{code: refused.Code}
	}
	if err != nil {
		c.t.Errorf("%s: %v, which is no answer", in.verb, err)
		return in, answered{code: "fault"}
	}
	out := answered{epoch: got.Authority.Epoch}
	if got.Authority.WriterRunID != nil {
		out.writer = *got.Authority.WriterRunID
	}
	return in, out
}

func TestTheHistoryOfClientsAtOnceIsLinearizable(t *testing.T) {
	t.Parallel()
	const clients, calls = 8, 60
	s := newCrowd(t, clients)
	for range 4 {
		workspaces := []uuid.UUID{s.free(), s.free(), s.free()}
		crowd := make([]*client, clients)
		for i := range crowd {
			crowd[i] = &client{scene: s, epochs: make([]int64, len(workspaces))}
			for _, workspace := range workspaces {
				crowd[i].runs = append(crowd[i].runs, s.worker(s.boundTask(workspace)))
			}
		}
		began := time.Now()
		var history []porcupine.Operation
		for _, r := range race(t, clients, func(i int) ([]porcupine.Operation, error) {
			own := make([]porcupine.Operation, calls)
			for n := range own {
				call := time.Since(began).Nanoseconds()
				in, out := crowd[i].call(workspaces)
				own[n] = porcupine.Operation{ClientId: i, Input: in, Output: out, Call: call, Return: time.Since(began).Nanoseconds()}
			}
			return own, nil
		}) {
			history = append(history, r.answer...)
		}
		if got := porcupine.CheckOperationsTimeout(oneWriter, history, time.Minute); got != porcupine.Ok {
			t.Errorf("a history of %d calls is %s", len(history), got)
		}
	}
	s.wantSoundHistory()
}

// A judge that finds everything right proves nothing.
func TestTheJudgeOfHistoriesFindsAFault(t *testing.T) {
	t.Parallel()
	one, two := uuid.New(), uuid.New()
	won := func(run uuid.UUID, epoch int64) porcupine.Operation {
		return porcupine.Operation{Input: asked{verb: "reserve", run: run}, Output: answered{epoch: epoch, writer: run}, Call: 1, Return: 2}
	}
	pending := porcupine.Operation{Input: asked{verb: "reserve", run: two}, Output: answered{code: ErrWriterPending.Code}, Call: 1, Return: 2}
	late := porcupine.Operation{
		Input: asked{verb: "read"}, Output: answered{epoch: 3}, Call: 3, Return: 4,
	}
	for name, c := range map[string]struct {
		history []porcupine.Operation
		sound   bool
	}{
		"one winner":          {[]porcupine.Operation{won(one, 4), pending}, true},
		"two winners":         {[]porcupine.Operation{won(one, 4), won(two, 4)}, false},
		"two winners in turn": {[]porcupine.Operation{won(one, 4), won(two, 5)}, false},
		"a skipped epoch":     {[]porcupine.Operation{won(one, 5)}, false},
		"a refusal by nobody": {[]porcupine.Operation{pending}, false},
		"an old reading":      {[]porcupine.Operation{won(one, 4), late}, false},
	} {
		if got := porcupine.CheckOperations(oneWriter, slices.Clone(c.history)); got != c.sound {
			t.Errorf("%s is judged %t", name, got)
		}
	}
}
