package provider

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func here(t *testing.T) *Process {
	t.Helper()
	p, err := OpenProcess()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// tree starts a shell script as a wrapper whose children carry the run, and returns its id once the script said that
// it is ready.
func tree(t *testing.T, p *Process, script string) (id string, wrapper *exec.Cmd) {
	t.Helper()
	run := uuid.NewString()
	wrapper = exec.Command("sh", "-c", script, "sh", RunVariable+"="+run)
	out, err := wrapper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := wrapper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, _ = p.Destroy(ctx, id)
		_ = wrapper.Wait()
	})
	own, err := readStat(wrapper.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	id = ProcessTree{Host: p.host, Boot: p.boot, Space: p.space, User: p.user, PID: own.pid, Start: own.start, Run: run}.String()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the script said %q: %v", line, err)
	}
	return id, wrapper
}

func state(t *testing.T, p *Process, id string, want State) Answer {
	t.Helper()
	answer, err := p.State(t.Context(), id)
	if err != nil || answer.State != want || answer.ID != id {
		t.Errorf("state is %+v (%v), want %s", answer, err, want)
	}
	return answer
}

// eventually polls until the tree has the state.
func eventually(t *testing.T, p *Process, id string, want State) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for answer := (Answer{}); answer.State != want; {
		var err error
		if answer, err = p.State(t.Context(), id); err != nil || time.Now().After(deadline) {
			t.Fatalf("state is %+v (%v), and never %s", answer, err, want)
		}
	}
}

func TestATreeRunsAsLongAsAnyOfItsProcesses(t *testing.T) {
	t.Parallel()
	p := here(t)
	// A child in a session of its own, whose parent ends, is the kind that is lost from sight.
	id, wrapper := tree(t, p, `env "$1" setsid sh -c 'sleep 300 & echo ready'; exec sleep 300`)
	state(t, p, id, StateRunning)
	if err := wrapper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = wrapper.Wait()
	state(t, p, id, StateRunning)
	if answer, err := p.Destroy(t.Context(), id); err != nil || answer.State != StateDestroyed {
		t.Errorf("destroy: %+v %v", answer, err)
	}
	state(t, p, id, StateDestroyed)
}

func TestATreeRunsAsLongAsItsWrapper(t *testing.T) {
	t.Parallel()
	p := here(t)
	id, wrapper := tree(t, p, `env "$1" true; echo ready; exec sleep 300`)
	state(t, p, id, StateRunning)
	if answer, err := p.Stop(t.Context(), id); err != nil || answer.State != StateRunning {
		t.Errorf("stop answers %+v %v: it asks, and does not wait", answer, err)
	}
	_ = wrapper.Wait()
	eventually(t, p, id, StateDestroyed)
}

func TestStopLetsTheWrapperEndItsTree(t *testing.T) {
	t.Parallel()
	p := here(t)
	dir := t.TempDir()
	// The wrapper must be the one that is asked: a command that is killed under it cannot be told to save.
	script := `env "$1" sh -c 'trap "echo child >>` + dir + `/log; exit" TERM; while :; do sleep 0.05; done' & child=$!
		trap 'echo wrapper >>` + dir + `/log; kill $child; wait $child; exit' TERM; echo ready; wait $child`
	id, wrapper := tree(t, p, script)
	if _, err := p.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	_ = wrapper.Wait()
	eventually(t, p, id, StateDestroyed)
	log, err := os.ReadFile(dir + "/log")
	if err != nil || !strings.HasPrefix(string(log), "wrapper\n") {
		t.Errorf("asked first: %q %v", log, err)
	}
}

func TestDestroyEndsWhatIgnoresToBeStopped(t *testing.T) {
	t.Parallel()
	p := here(t)
	id, wrapper := tree(t, p, `trap '' TERM; env "$1" sh -c 'trap "" TERM; while :; do sleep 1; done' & echo ready; while :; do sleep 1; done`)
	if _, err := p.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	state(t, p, id, StateRunning)
	ended := make(chan error, 1)
	go func() { ended <- wrapper.Wait() }()
	if answer, err := p.Destroy(t.Context(), id); err != nil || answer.State != StateDestroyed {
		t.Errorf("destroy: %+v %v", answer, err)
	}
	if err := <-ended; err == nil {
		t.Error("the wrapper ended well")
	}
}

func TestDestroyGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	p := here(t)
	id, _ := tree(t, p, `echo ready; exec sleep 300`)
	p.signal = func(seen, bool) error { return nil } // what no signal reaches, as in a broken kernel
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if answer, err := p.Destroy(ctx, id); err != nil || answer.State != StateRunning {
		t.Errorf("destroy: %+v %v", answer, err)
	}
	p.signal = signalProcess
}

func TestAnotherProcessWithTheWrappersIDIsNotTheTree(t *testing.T) {
	t.Parallel()
	p := here(t)
	own, err := p.Tree(uuid.NewString())
	if err != nil {
		t.Fatal(err)
	}
	own.Start-- // it began in the same tick as no process of this id
	state(t, p, own.String(), StateDestroyed)
	if answer, err := p.Destroy(t.Context(), own.String()); err != nil || answer.State != StateDestroyed {
		t.Errorf("destroy: %+v %v", answer, err) // and this test lives on
	}
}

func TestOnlyWhoCanKnowAnswersForATree(t *testing.T) {
	t.Parallel()
	p := here(t)
	living, err := p.Tree(uuid.NewString())
	if err != nil {
		t.Fatal(err)
	}
	state(t, p, living.String(), StateRunning)
	change := func(change func(*ProcessTree)) string {
		other := living
		change(&other)
		return other.String()
	}
	reboot := change(func(o *ProcessTree) { o.Boot = uuid.NewString() })
	host := *p
	host.lasting = true
	if answer := state(t, &host, reboot, StateDestroyed); !strings.Contains(answer.Word, "anew") {
		t.Errorf("after a reboot the provider says %q", answer.Word)
	}
	container := *p
	container.lasting = false
	if answer, err := container.State(t.Context(), reboot); KindOf(err) != KindElsewhere || answer != (Answer{}) {
		t.Errorf("of another boot, in a container that may have moved: %+v %v", answer, err)
	}
	for name, id := range map[string]string{
		"another host":           change(func(o *ProcessTree) { o.Host = "0123456789abcdef" }),
		"another host, rebooted": change(func(o *ProcessTree) { o.Host, o.Boot = "0123456789abcdef", uuid.NewString() }),
		"another space":          change(func(o *ProcessTree) { o.Space = "1" }),
		"another space and boot": change(func(o *ProcessTree) { o.Space, o.Boot = "1", uuid.NewString() }),
	} {
		if answer, err := host.State(t.Context(), id); KindOf(err) != KindElsewhere || answer != (Answer{}) {
			t.Errorf("%s: %+v %v", name, answer, err)
		}
	}
	stranger := *p
	stranger.user = p.user + 1000
	if _, err := stranger.State(t.Context(), living.String()); KindOf(err) != KindUnauthorized {
		t.Errorf("another user: %v", err)
	}
}

func TestAHiddenProcessThatMayBeOfTheTreeLeavesTheStateOpen(t *testing.T) {
	t.Parallel()
	p := here(t)
	of := func(user int) ProcessTree {
		return ProcessTree{Host: p.host, Boot: p.boot, Space: p.space, User: user, PID: 1 << 21, Start: 100, Run: uuid.NewString()}
	}
	const user, other = 1000, 1001
	for name, c := range map[string]struct {
		tree    ProcessTree
		process seen
		want    State
	}{
		"of the user, later":         {of(user), seen{pid: 9, start: 200, users: []int{user}, hidden: true}, StateUnknown},
		"that the user started":      {of(user), seen{pid: 9, start: 200, users: []int{0, user}, hidden: true}, StateUnknown},
		"of the user, older":         {of(user), seen{pid: 9, start: 99, users: []int{user}, hidden: true}, StateDestroyed},
		"of another":                 {of(user), seen{pid: 9, start: 200, users: []int{other}, hidden: true}, StateDestroyed},
		"of root's, now of another":  {of(0), seen{pid: 9, start: 200, users: []int{other}, hidden: true}, StateUnknown},
		"not hidden, of another run": {of(user), seen{pid: 9, start: 200, users: []int{user}, runs: []string{"other"}}, StateDestroyed},
	} {
		q := *p
		q.user = 0
		q.see = func(sighting) (sighting, error) { return sighting{processes: []seen{c.process}, complete: true}, nil }
		if answer, err := q.State(t.Context(), c.tree.String()); err != nil || answer.State != c.want {
			t.Errorf("%s: %+v %v, want %s", name, answer, err, c.want)
		}
	}
	blind := *p
	blind.see = func(sighting) (sighting, error) { return sighting{}, errors.New("no /proc") }
	if answer, err := blind.State(t.Context(), of(p.user).String()); KindOf(err) != KindUnreachable || answer != (Answer{}) {
		t.Errorf("without /proc: %+v %v", answer, err)
	}
	restless := *p
	restless.see = func(sighting) (sighting, error) { return sighting{}, nil }
	if answer, err := restless.State(t.Context(), of(p.user).String()); err != nil || answer.State != StateUnknown {
		t.Errorf("with no look that is complete: %+v %v", answer, err)
	}
}

func TestWhatIsNoTreeIsNotFound(t *testing.T) {
	t.Parallel()
	p := here(t)
	for _, id := range []string{"", "sandbox-1", "berth1/a/b/c/d/e/f", "berth1/h/b/s/0/0.1/r", "berth1/h/b/s/0/x.1/r", "berth1//b/s/0/1.1/r", "berth2/h/b/s/0/1.1/r"} {
		if answer, err := p.State(t.Context(), id); KindOf(err) != KindNotFound || answer != (Answer{}) {
			t.Errorf("%q: %+v %v", id, answer, err)
		}
	}
	if _, err := p.Tree("a/b"); err == nil {
		t.Error("a run id with a slash is taken")
	}
}
