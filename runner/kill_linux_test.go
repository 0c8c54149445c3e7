package runner

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"berth/provider"
)

// wholeTree is a command that ignores signals, with a background process and a
// daemon that do so too.
const wholeTree = `echo $$ > command.pid; ` + daemon + `(` + stubborn + `) & ` +
	`until [ -s beat ] && [ -s daemon ]; do sleep 0.01; done; echo x > all; ` + stubborn

// afterDeath is the promise for a wrapper that is killed.
const afterDeath = 2 * time.Second

func kill(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatalf("kill %d: %v", pid, err)
		}
	}
}

func TestKillingTheWrapperEndsTheTreeWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	w := shell(t, wholeTree).start()
	w.awaitFile("all")
	kill(t, w.cmd.Process.Pid)
	w.requireGoneWithin(afterDeath)
}

func TestKillingTheWrapperAtAnyMomentOfItsStartLeavesNothing(t *testing.T) {
	t.Parallel()
	for i := range 12 {
		w := shell(t, wholeTree).start()
		moment := time.NewTimer(time.Duration(i) * 15 * time.Millisecond)
		<-moment.C
		kill(t, w.cmd.Process.Pid)
		w.requireGoneWithin(afterDeath)
	}
}

func TestKillingTheWrappersGroupEndsTheTreeWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	w := shell(t, wholeTree).start()
	w.awaitFile("all")
	kill(t, -w.cmd.Process.Pid)
	w.requireGoneWithin(afterDeath)
}

func TestKillingTheInnerSupervisorEndsTheTreeAndIsReported(t *testing.T) {
	t.Parallel()
	w := shell(t, wholeTree)
	w.order.Grace = 300 * time.Millisecond
	w.start()
	w.awaitFile("all")
	_, inner := w.supervisors()
	kill(t, inner)
	out, code := w.wait()
	w.requireNothingLeft()
	if out.Err != "" || code != 137 || !out.Exit.SupervisorLost {
		t.Fatalf("got %+v, wrapper exit %d; want 137 and a lost supervisor", out, code)
	}
}

func TestKillingTheOuterSupervisorEndsTheTreeAndIsReported(t *testing.T) {
	t.Parallel()
	w := shell(t, wholeTree)
	w.order.Grace = 300 * time.Millisecond
	w.start()
	w.awaitFile("all")
	outer, _ := w.supervisors()
	kill(t, outer)
	out, code := w.wait()
	w.requireNothingLeft()
	if out.Err != "" || code != 137 || !out.Exit.SupervisorLost {
		t.Fatalf("got %+v, wrapper exit %d; want 137 and a lost supervisor", out, code)
	}
}

func TestKillingTheWrapperAndASupervisorTogetherEndsTheTree(t *testing.T) {
	t.Parallel()
	for _, which := range []string{"outer", "inner"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			w := shell(t, wholeTree).start()
			w.awaitFile("all")
			outer, inner := w.supervisors()
			if which == "outer" {
				kill(t, w.cmd.Process.Pid, outer)
			} else {
				kill(t, inner, w.cmd.Process.Pid)
			}
			w.requireGoneWithin(afterDeath)
		})
	}
}

func TestAStoppedInnerSupervisorDoesNotKeepTheTreeAlive(t *testing.T) {
	t.Parallel()
	w := shell(t, wholeTree).start()
	w.awaitFile("all")
	_, inner := w.supervisors()
	if err := syscall.Kill(inner, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	kill(t, w.cmd.Process.Pid)
	w.requireGoneWithin(afterDeath)
}

// The kernel kills the command with its parent; what the command started has
// nobody left to end it, and the wrapper must not claim otherwise.
func TestKillingBothSupervisorsIsReportedAsUnproven(t *testing.T) {
	t.Parallel()
	w := shell(t, wholeTree)
	w.cmd.Stdout, w.cmd.Stderr = nil, nil // or what survives keeps the pipes open
	w.start()
	command := w.awaitPID("command.pid")
	w.awaitFile("all")
	outer, inner := w.supervisors()
	kill(t, outer, inner)
	out, code := w.wait()
	if !out.Unproven || code != 137 {
		t.Fatalf("got %+v, wrapper exit %d; want it unproven", out, code)
	}
	eventually(t, 5*time.Second, "the command is gone", func() bool {
		p, err := readProcess(command)
		return err != nil || p.zombie()
	})
}

func TestKillingOnlyTheCommandEndsTheRest(t *testing.T) {
	t.Parallel()
	w := shell(t, wholeTree)
	w.order.Grace = 300 * time.Millisecond
	w.start()
	command := w.awaitPID("command.pid")
	w.awaitFile("all")
	kill(t, command)
	out, code := w.wait()
	w.requireNothingLeft()
	if out.Err != "" || code != 137 || out.Exit.Signal != syscall.SIGKILL || out.Exit.SupervisorLost {
		t.Fatalf("got %+v, wrapper exit %d", out, code)
	}
}

func TestASupervisorThatIsAskedToEndEndsTheTree(t *testing.T) {
	t.Parallel()
	w := shell(t, wholeTree)
	w.order.Grace = 300 * time.Millisecond
	w.start()
	w.awaitFile("all")
	_, inner := w.supervisors()
	if err := syscall.Kill(inner, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	out, code := w.wait()
	w.requireNothingLeft()
	if out.Err != "" || code != 137 || out.Exit.SupervisorLost {
		t.Fatalf("got %+v, wrapper exit %d", out, code)
	}
}

// Once the wrapper is killed only its host can prove that the tree is gone, and by then the command may have forgotten
// whose it is.
func TestATreeThatHidWhoseItIsIsNotProvenGone(t *testing.T) {
	t.Parallel()
	here, err := provider.OpenProcess()
	if err != nil {
		t.Fatal(err)
	}
	name, err := here.Tree(uuid.NewString())
	if err != nil {
		t.Fatal(err)
	}
	name.PID = 1 << 22 // a wrapper that is gone
	dir := t.TempDir()
	tree, err := StartTree(context.Background(), Command{
		Path: "sh", Args: []string{"-c", `exec env -i PATH="$PATH" sh -c "trap '' TERM; echo > ready; while :; do sleep 0.05; done"`},
		Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH"), provider.RunVariable + "=" + name.Run},
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the command runs", func() bool {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err == nil
	})
	if said, err := here.State(t.Context(), name.String()); err != nil || said.State != provider.StateRunning {
		t.Errorf("the provider says %+v, %v", said, err)
	}
	tree.End("enough", 100*time.Millisecond)
	if _, err := tree.Wait(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the tree is proven gone", func() bool {
		said, err := here.State(t.Context(), name.String())
		return err == nil && said.State == provider.StateDestroyed
	})
}
