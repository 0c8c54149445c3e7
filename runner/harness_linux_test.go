package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// The test binary is also the wrapper under test: a process of its own, so that
// it can be killed, and sent signals, like `berth run`.
const (
	wrapperVariable = "RUNNER_TEST_WRAPPER" // a wrapperOrder as JSON
	shellVariable   = "RUNNER_TEST_SHELL"   // see terminal_linux_test.go
	markVariable    = "RUNNER_TEST_TREE"    // in the environment of the tree alone
	relayingSuffix  = ".relaying"           // of a file that appears when signals are relayed
)

func TestMain(m *testing.M) {
	if os.Getenv(shellVariable) != "" {
		os.Exit(shellMain())
	}
	if order := os.Getenv(wrapperVariable); order != "" {
		os.Exit(wrapperMain(order))
	}
	// Tests that run in the background of a script inherit ignored signals; what
	// they start must not. A caught signal is back to normal after exec.
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	os.Exit(m.Run())
}

type wrapperOrder struct {
	Argv   []string
	Dir    string
	Mark   string
	Grace  time.Duration
	Result string // file for the outcome
}

// outcome is what the wrapper learned from Wait.
type outcome struct {
	Exit      Exit
	Err       string
	Unproven  bool
	StartCode int
}

func wrapperMain(raw string) int {
	var order wrapperOrder
	if err := json.Unmarshal([]byte(raw), &order); err != nil {
		panic(err)
	}
	signals := CatchSignals()
	tree, err := StartTree(context.Background(), Command{
		Path: order.Argv[0], Args: order.Argv[1:], Dir: order.Dir,
		Env:   []string{"PATH=" + os.Getenv("PATH"), markVariable + "=" + order.Mark, "HOME=" + order.Dir},
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Grace: order.Grace,
	})
	var out outcome
	if err != nil {
		var refused *StartError
		if errors.As(err, &refused) {
			out.StartCode = refused.Code
		}
		out.Err = err.Error()
		out.Exit.Code = 1
	} else {
		stop := tree.RelaySignals(signals)
		if err := os.WriteFile(order.Result+relayingSuffix, nil, 0o600); err != nil {
			panic(err)
		}
		out.Exit, err = tree.Wait()
		stop()
		if err != nil {
			out.Err, out.Unproven = err.Error(), errors.Is(err, ErrUnproven)
		}
	}
	encoded, _ := json.Marshal(out)
	if err := os.WriteFile(order.Result, encoded, 0o600); err != nil {
		panic(err)
	}
	return out.Exit.Code
}

// wrapper is a started one, as the test sees it.
type wrapper struct {
	t      *testing.T
	cmd    *exec.Cmd
	order  wrapperOrder
	stdout bytes.Buffer
	stderr bytes.Buffer
}

func newWrapper(t *testing.T, argv ...string) *wrapper {
	t.Helper()
	w := &wrapper{t: t, order: wrapperOrder{
		Argv: argv, Dir: t.TempDir(), Mark: uuid.NewString(), Grace: 10 * time.Second,
		Result: filepath.Join(t.TempDir(), "outcome"),
	}}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	w.cmd = exec.CommandContext(ctx, self)
	// Without the terminal of whoever runs the tests.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	w.cmd.Stdout, w.cmd.Stderr = &w.stdout, &w.stderr
	// A pipe that a survivor keeps open must not keep the test waiting.
	w.cmd.WaitDelay = 5 * time.Second
	// Whatever the test finds out, nothing of it may outlive it.
	t.Cleanup(func() {
		for _, pid := range w.marked() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return w
}

func shell(t *testing.T, script string) *wrapper {
	t.Helper()
	return newWrapper(t, "sh", "-c", script)
}

func (w *wrapper) environment() []string {
	encoded, err := json.Marshal(w.order)
	if err != nil {
		w.t.Fatal(err)
	}
	return append(os.Environ(), wrapperVariable+"="+string(encoded))
}

func (w *wrapper) start() *wrapper {
	w.t.Helper()
	w.cmd.Env = w.environment()
	if err := w.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.cmd.Process.Kill() })
	return w
}

// wait waits for the wrapper to end by itself and says what it learned.
func (w *wrapper) wait() (outcome, int) {
	w.t.Helper()
	_ = w.cmd.Wait()
	raw, err := os.ReadFile(w.order.Result)
	if err != nil {
		w.t.Fatalf("the wrapper left no outcome: %v\nstderr: %s", err, w.stderr.String())
	}
	var out outcome
	if err := json.Unmarshal(raw, &out); err != nil {
		w.t.Fatal(err)
	}
	return out, w.cmd.ProcessState.ExitCode()
}

// path of a file in the command's directory.
func (w *wrapper) path(name string) string { return filepath.Join(w.order.Dir, name) }

// awaitFile waits until the command has written something into a file, and
// returns it.
func (w *wrapper) awaitFile(name string) string {
	w.t.Helper()
	var content []byte
	eventually(w.t, 20*time.Second, "the command writes "+name, func() bool {
		content, _ = os.ReadFile(w.path(name))
		return bytes.HasSuffix(content, []byte("\n"))
	})
	return strings.TrimSpace(string(content))
}

// awaitRelay waits until the wrapper passes signals on.
func (w *wrapper) awaitRelay() {
	w.t.Helper()
	eventually(w.t, 20*time.Second, "the wrapper relays signals", func() bool {
		_, err := os.Stat(w.order.Result + relayingSuffix)
		return err == nil
	})
}

// awaitPID reads a process id that the command wrote.
func (w *wrapper) awaitPID(name string) int {
	w.t.Helper()
	pid, err := strconv.Atoi(w.awaitFile(name))
	if err != nil {
		w.t.Fatal(err)
	}
	return pid
}

// supervisors finds the two processes between the wrapper and the command.
func (w *wrapper) supervisors() (outer, inner int) {
	w.t.Helper()
	eventually(w.t, 10*time.Second, "both supervisors run", func() bool {
		below, err := descendants(w.cmd.Process.Pid)
		if err != nil {
			w.t.Fatal(err)
		}
		outer, inner = 0, 0
		for _, p := range below {
			switch {
			case p.name != "tree-supervisor":
			case p.parent == w.cmd.Process.Pid:
				outer = p.pid
			case p.parent == outer:
				inner = p.pid
			}
		}
		return outer != 0 && inner != 0
	})
	return outer, inner
}

// marked lists the live processes of the tree, by the environment that they
// started with.
func (w *wrapper) marked() []int {
	w.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		w.t.Fatal(err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err == nil && bytes.Contains(environ, []byte(markVariable+"="+w.order.Mark)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// supervisorsLeft lists the supervisors that stayed in the wrapper's session.
func (w *wrapper) supervisorsLeft() []int {
	w.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		w.t.Fatal(err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		session, err := unix.Getsid(pid)
		if err != nil || session != w.cmd.Process.Pid || pid == session {
			continue
		}
		if p, err := readProcess(pid); err == nil && !p.zombie() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// requireNothingLeft fails unless the tree is gone at this very moment and what
// it wrote stays as it is.
func (w *wrapper) requireNothingLeft() {
	w.t.Helper()
	if pids := w.marked(); len(pids) > 0 {
		w.t.Fatalf("processes of the command are left: %s", describe(pids))
	}
	w.requireQuiet()
}

// requireGoneWithin fails unless the tree is gone in time.
func (w *wrapper) requireGoneWithin(limit time.Duration) {
	w.t.Helper()
	// The supervisors first: one that lives could still be starting the command.
	eventually(w.t, limit, "the tree and its supervisors are gone", func() bool {
		return len(w.supervisorsLeft()) == 0 && len(w.marked()) == 0
	})
	w.requireQuiet()
}

// requireQuiet fails when one of the command's files still grows.
func (w *wrapper) requireQuiet() {
	w.t.Helper()
	before := w.sizes()
	window := time.NewTimer(200 * time.Millisecond)
	defer window.Stop()
	<-window.C
	if after := w.sizes(); after != before {
		w.t.Fatalf("files still change after the end:\n%s\n%s", before, after)
	}
}

func (w *wrapper) sizes() string {
	entries, err := os.ReadDir(w.order.Dir)
	if err != nil {
		w.t.Fatal(err)
	}
	var list strings.Builder
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			fmt.Fprintf(&list, "%s=%d ", entry.Name(), info.Size())
		}
	}
	return list.String()
}

func describe(pids []int) string {
	var list []string
	for _, pid := range pids {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		list = append(list, fmt.Sprintf("%d %q", pid, line))
	}
	return strings.Join(list, ", ")
}
