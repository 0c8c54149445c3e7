package postgres

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// process is one run of the postgres program.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it ended and was waited for
	err    error         // how, valid after exited
}

// startProcess starts cmd so that it does not outlive this program.
//
// The thread that starts it stays locked to its goroutine until the process
// has ended: on Linux the signal that ends an orphan follows the *thread* that
// made it, and Go ends threads when it likes.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		release, err := startTied(cmd)
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		release()
		close(p.exited)
	}()
	return p, <-started
}

// signal is for a process that may have ended meanwhile.
func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// stop ends the server: politely, then without waiting for its children, then
// by force.
func (p *process) stop() {
	for _, step := range []struct {
		sig  syscall.Signal
		wait time.Duration
	}{
		{syscall.SIGINT, 10 * time.Second}, // "fast": disconnect clients, write a checkpoint
		{syscall.SIGQUIT, 5 * time.Second}, // "immediate": the next start replays the log
		{syscall.SIGKILL, 0},
	} {
		p.signal(step.sig)
		if step.wait == 0 {
			<-p.exited
			return
		}
		timer := time.NewTimer(step.wait)
		select {
		case <-p.exited:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// command is a Postgres program, set up to run as the account in a process
// group of its own: a Ctrl-C in the terminal is for this program, which then
// stops the server in order.
func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(s.binaries.path(program), args...)
	cmd.Dir, cmd.Env = s.dir, environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.account.apply(cmd)
	return cmd
}

// runToEnd runs a Postgres program that ends by itself, with input on its
// standard input, and returns what it said.
func (s *Server) runToEnd(ctx context.Context, input, program string, args ...string) (string, error) {
	cmd := s.command(program, args...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &out
	cmd.WaitDelay = time.Second // a grandchild may hold the output open
	p, err := startProcess(cmd)
	if err != nil {
		return "", err
	}
	select {
	case <-p.exited:
		return out.String(), p.err
	case <-ctx.Done():
		// The whole group: initdb has a postgres of its own at work.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-p.exited
		return out.String(), ctx.Err()
	}
}

// openLog opens the server's log for appending, and says how long it is, so
// that what this run writes can be told from what was there.
func (s *Server) openLog() (*os.File, int64, error) {
	const large = 8 << 20
	if info, err := os.Stat(s.logFile()); err == nil && info.Size() > large {
		if err := os.Rename(s.logFile(), s.logFile()+".1"); err != nil {
			return nil, 0, fmt.Errorf("private Postgres: %w", err)
		}
	}
	file, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("private Postgres: %w", err)
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		_ = file.Close()
		return nil, 0, fmt.Errorf("private Postgres: %w", err)
	}
	return file, size, nil
}

// logSince is what the log says from an offset on.
func (s *Server) logSince(offset int64) string {
	file, err := os.Open(s.logFile())
	if err != nil {
		return ""
	}
	defer file.Close() //nolint:errcheck // opened for reading
	content, _ := io.ReadAll(io.NewSectionReader(file, offset, 1<<20))
	return string(content)
}

// lastLines is the end of a program's output, for an error message.
func lastLines(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}
