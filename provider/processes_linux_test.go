package provider

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

const headlessVariable = "PROVIDER_TEST_HEADLESS"

// init ends the first thread of a process that is started so; the others go on for as long as its input is open.
func init() {
	if os.Getenv(headlessVariable) == "" {
		return
	}
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	runtime.LockOSThread()
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// ofNobody is the name of a tree that begins now, and whose wrapper is gone already.
func ofNobody(t *testing.T, p *Process) ProcessTree {
	t.Helper()
	tree, err := p.Tree(uuid.NewString())
	if err != nil {
		t.Fatal(err)
	}
	tree.PID = 1 << 22 // above every process id
	return tree
}

func TestAProcessWhoseFirstThreadEndedStillRuns(t *testing.T) {
	t.Parallel()
	p := here(t)
	gone := ofNobody(t, p)
	headless := exec.Command(os.Args[0])
	headless.Env = []string{headlessVariable + "=yes", RunVariable + "=" + gone.Run}
	input, err := headless.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := headless.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		s, err := readStat(headless.Process.Pid)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("its first thread goes on: %+v %v", s, err)
		}
		if s.headless {
			break
		}
	}
	state(t, p, gone.String(), StateRunning)
	_ = input.Close()
	_ = headless.Wait()
	state(t, p, gone.String(), StateDestroyed)
}

// Each process of the tree starts the next one and ends: whoever lists processes and then reads them finds none there.
func TestATreeThatRunsAwayFromChildToChildIsNotGone(t *testing.T) {
	t.Parallel()
	p := here(t)
	gone := ofNobody(t, p)
	dir := t.TempDir()
	script, stop, ended := filepath.Join(dir, "next"), filepath.Join(dir, "stop"), filepath.Join(dir, "ended")
	next := fmt.Sprintf("#!/bin/sh\n[ -e %q ] && exec touch %q\n%q &\n", stop, ended, script)
	if err := os.WriteFile(script, []byte(next), 0o700); err != nil {
		t.Fatal(err)
	}
	first := exec.Command(script)
	first.Env = []string{"PATH=" + os.Getenv("PATH"), RunVariable + "=" + gone.Run}
	if err := first.Run(); err != nil {
		t.Fatal(err)
	}
	for round := range 60 {
		if answer, err := p.State(t.Context(), gone.String()); err != nil || answer.State == StateDestroyed {
			t.Errorf("round %d: %+v %v", round, answer, err)
			break
		}
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, p, gone.String(), StateDestroyed)
	if _, err := os.Stat(ended); err != nil {
		t.Error("the tree is gone before it ended")
	}
}

// What no longer carries the run's id is known by who watches over it, and so must be killed before that one.
func TestDestroyKillsWhoeverIsWatchedBeforeTheSupervisor(t *testing.T) {
	t.Parallel()
	p := here(t)
	id, wrapper := tree(t, p, `env "$1" sh -c 'printf tree-supervisor > /proc/self/comm
		env -i PATH="$PATH" sh -c "sleep 300 & echo ready; wait" & wait; exec sleep 300' & wait`)
	var before remains
	for deadline := time.Now().Add(10 * time.Second); len(before.rest) != 3; { // supervisor, shell, sleep
		var err error
		if before, _, err = p.look(id); err != nil || time.Now().After(deadline) {
			t.Fatalf("what is left is %+v, %v", before, err)
		}
	}
	var order []int
	q := *p
	q.signal = func(s seen, kill bool) error {
		order = append(order, s.pid)
		return p.signal(s, kill)
	}
	ended := make(chan error, 1)
	go func() { ended <- wrapper.Wait() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if answer, err := q.Destroy(ctx, id); err != nil || answer.State != StateDestroyed {
		t.Errorf("destroy: %+v %v", answer, err)
	}
	if err := <-ended; err == nil {
		t.Error("the wrapper ended well")
	}
	supervisor := before.rest[0]
	if !supervisor.supervisor {
		t.Errorf("the supervisor is not recognised: %+v", supervisor)
	}
	for _, s := range before.rest[1:] {
		if first := slices.Index(order, s.pid); first < 0 || first > slices.Index(order, supervisor.pid) {
			t.Errorf("killed in the order %v, the supervisor %d before the watched %d", order, supervisor.pid, s.pid)
		}
	}
	for _, s := range before.rest {
		if now, err := readStat(s.pid); err == nil && now.start == s.start && !now.ended {
			t.Errorf("process %d is left", s.pid)
		}
	}
}

func TestAProcThatHidesProcessesIsRecognised(t *testing.T) {
	t.Parallel()
	const before = "21 28 0:20 / /sys rw,nosuid - sysfs sysfs rw\n22 28 0:21 / /proc rw,nosuid,nodev shared:12 - proc proc "
	for options, want := range map[string]bool{
		"rw": false, "rw,hidepid=0": false, "rw,hidepid=off": false, "rw,gid=4,hidepid=off": false,
		"rw,hidepid=2": true, "rw,hidepid=1": true, "rw,hidepid=invisible,subset=pid": true, "rw,gid=4,hidepid=ptraceable": true,
	} {
		if got := hidesProcesses(before + options + "\n23 22 0:22 / /proc/sys rw - proc proc rw\n"); got != want {
			t.Errorf("%s: %t", options, got)
		}
	}
	for rights, want := range map[string]bool{
		"000001fffeffffff": true, "0000000000080000": true, "00000000a80425fb": false, "0000000000000000": false, "": false,
	} {
		if got := maySeeAll("CapPrm:\tffffffffffffffff\nCapEff:\t" + rights + "\nCapBnd:\tffffffffffffffff\n"); got != want {
			t.Errorf("%s: %t", rights, got)
		}
	}
}
