package runner

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminalSession is a wrapper started by a shell with job control, on a
// terminal that the test types into.
type terminalSession struct {
	*wrapper
	keyboard *os.File
	cmd      *exec.Cmd

	mu     sync.Mutex
	screen bytes.Buffer
}

// onTerminal starts a session whose shell runs the wrapper. With pipe set the
// wrapper's output goes into a pipeline, which leaves its input a terminal.
func onTerminal(t *testing.T, pipe bool, script string) *terminalSession {
	t.Helper()
	w := shell(t, script)
	keyboard, line := openPTY(t)
	s := &terminalSession{wrapper: w, keyboard: keyboard}
	s.cmd = exec.Command(w.cmd.Path)
	s.cmd.Env = append(w.environment(), shellVariable+"="+w.order.Dir)
	if pipe {
		s.cmd.Env = append(s.cmd.Env, shellPipeVariable+"=1")
	}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = line, line, line
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = line.Close()
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	go func() { _, _ = io.Copy(s, keyboard) }()
	return s
}

// Write takes in what the terminal shows.
func (s *terminalSession) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.Write(p)
}

func (s *terminalSession) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.String()
}

func (s *terminalSession) press(keys string) {
	s.t.Helper()
	if _, err := s.keyboard.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

func (s *terminalSession) awaitShown(text string) {
	s.t.Helper()
	eventually(s.t, 20*time.Second, fmt.Sprintf("the terminal shows %q", text), func() bool {
		return strings.Contains(s.shown(), text)
	})
}

// awaitForeground waits for a command that says "ready" once it could read a
// line. It has the terminal then: keys pressed earlier could go to the shell.
func (s *terminalSession) awaitForeground() {
	s.t.Helper()
	s.press("first\n")
	s.awaitShown("ready")
}

// awaitEnd gives the exit code of the shell, which is the wrapper's.
func (s *terminalSession) awaitEnd() int {
	s.t.Helper()
	ended := make(chan struct{})
	go func() {
		_ = s.cmd.Wait()
		close(ended)
	}()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	select {
	case <-ended:
	case <-deadline.C:
		s.t.Fatalf("the session does not end; the terminal shows %q", s.shown())
	}
	return s.cmd.ProcessState.ExitCode()
}

func openPTY(t *testing.T) (keyboard, line *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	t.Cleanup(func() { keyboard.Close() })
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	line, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return keyboard, line
}

const shellPipeVariable = "RUNNER_TEST_SHELL_PIPE"

// shellMain is the part of an interactive shell that job control needs: it runs
// the wrapper as its one job, takes the terminal when the job stops, continues
// it in the foreground once a file fg appears, and says in the end whether it
// found the terminal in the hands of the job's group.
func shellMain() int {
	signal.Ignore(syscall.SIGTTOU)
	dir := os.Getenv(shellVariable)
	_ = os.Unsetenv(shellVariable)
	output := os.Stdout
	if os.Getenv(shellPipeVariable) != "" {
		read, write, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		go func() { _, _ = io.Copy(os.Stdout, read) }()
		output = write
	}
	signal.Reset(syscall.SIGTTOU)
	self, _ := os.Executable()
	pid, err := syscall.ForkExec(self, []string{self}, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, output.Fd(), 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		panic(err)
	}
	signal.Ignore(syscall.SIGTTOU)
	foreground := func(group int) { _ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, group) }
	foreground(pid)
	for {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil); err != nil {
			continue
		}
		if !status.Stopped() {
			if group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP); err != nil || group != pid {
				fmt.Printf("the terminal is left to group %d\n", group)
				return 99
			}
			return status.ExitStatus()
		}
		foreground(os.Getpid())
		fmt.Println("[stopped]")
		for poll := time.NewTicker(5 * time.Millisecond); ; <-poll.C {
			if os.Remove(filepath.Join(dir, "fg")) == nil {
				break
			}
		}
		foreground(pid)
		_ = syscall.Kill(-pid, syscall.SIGCONT)
	}
}

func TestOnATerminalTheCommandIsInTheForeground(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, false, `read line; echo "got <$line>"; exit 5`)
	s.press("hello\n")
	s.awaitShown("got <hello>")
	if code := s.awaitEnd(); code != 5 {
		t.Fatalf("exit %d; the terminal shows %q", code, s.shown())
	}
	s.requireNothingLeft()
}

func TestCtrlCInterruptsTheCommandAndIsReported(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, false, `read line; echo ready; exec sleep 600`)
	s.awaitForeground()
	s.press("\x03")
	if code := s.awaitEnd(); code != 130 {
		t.Fatalf("exit %d; the terminal shows %q", code, s.shown())
	}
	s.requireNothingLeft()
}

func TestCtrlZStopsTheCommandAndGivesTheShellItsPrompt(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, false, `read line; echo ready; read line; echo "got <$line>"; exit 6`)
	s.awaitForeground()
	s.press("\x1a")
	s.awaitShown("[stopped]")
	if err := os.WriteFile(s.path("fg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.press("again\n")
	s.awaitShown("got <again>")
	if code := s.awaitEnd(); code != 6 {
		t.Fatalf("exit %d; the terminal shows %q", code, s.shown())
	}
}

func TestInAPipelineTheCommandGetsTheTerminalWhenItAsks(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, true, `ps -o pgid=,tpgid= -p $$ | { read g t; [ "$g" != "$t" ] && echo "kept back"; }
		read line </dev/tty; echo "got <$line>"; exit 7`)
	s.awaitShown("kept back")
	s.press("hello\n")
	s.awaitShown("got <hello>")
	if code := s.awaitEnd(); code != 7 {
		t.Fatalf("exit %d; the terminal shows %q", code, s.shown())
	}
}

func TestAKilledProgramLeavesTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, false, `stty raw -echo; echo $$ > pid; exec sleep 600`)
	kill(t, s.awaitPID("pid"))
	if code := s.awaitEnd(); code != 137 {
		t.Fatalf("exit %d; the terminal shows %q", code, s.shown())
	}
	modes, err := unix.IoctlGetTermios(int(s.keyboard.Fd()), unix.TCGETS)
	if err != nil || modes.Lflag&unix.ICANON == 0 || modes.Lflag&unix.ECHO == 0 {
		t.Fatalf("the terminal is still raw: %+v, %v", modes, err)
	}
}
