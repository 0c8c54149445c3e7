package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// orphan starts berth run for the task, kills the wrapper when the command has written, and returns the directory once
// nothing of the tree is left.
func (s *service) orphan(t *testing.T, issue, script string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "files")
	wrapper := s.begin(t, "run", "--issue", issue, "--dir", dir, "--", "sh", "-c", script+"; echo $$ > pid; exec sleep 600")
	var pid int
	eventually(t, "the command has written", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "pid"))
		pid = atoi(strings.TrimSpace(string(text)))
		return pid != 0
	})
	if err := wrapper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = wrapper.Wait()
	eventually(t, "the tree is gone", func() bool { return !running(pid) })
	return dir
}

// begin starts a command line and leaves it running.
func (s *service) begin(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(program, args...)
	command.Dir, command.Env = s.dir, clean("BERTH_URL="+s.url)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Stderr = &bytes.Buffer{}
	command.WaitDelay = time.Second
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill() })
	return command
}

func atoi(text string) (n int) {
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0
		}
		n = 10*n + int(c-'0')
	}
	return n
}

func TestWhatAKilledRunLeftIsRecoveredAndTheNextRunHasIt(t *testing.T) {
	t.Parallel()
	s := task(t, "LOST")
	dir := s.orphan(t, "LOST-2", "echo precious > a.txt")

	refused(t, s.berth(t, "run", "--issue", "LOST-3", "--dir", t.TempDir()+"/next", "--", "true"), exitRefused, "unfinished writer")
	said := s.berth(t, "recover", "--dir", dir, "--reason", "its wrapper was killed")
	if said.code != 0 {
		t.Fatalf("recover: %d %s", said.code, said.stderr)
	}
	wants(t, said.stdout, "saved 2 files", "epoch 1", "goes to the next run")
	again := s.must(t, "recover", "--dir", dir)
	wants(t, again, "nothing of run", "unsaved")

	next := s.berth(t, "run", "--issue", "LOST-3", "--dir", filepath.Join(t.TempDir(), "next"), "--", "cat", "a.txt")
	if next.code != 0 || next.stdout != "precious\n" {
		t.Errorf("the next run: %d %q %s", next.code, next.stdout, next.stderr)
	}
	wants(t, next.stderr, "at epoch 2", "by proof")
	wants(t, s.must(t, "list", "runs", "-c", "LOST", "--issue", "LOST-2"), "interrupted")
	refused(t, s.berth(t, "recover", "--dir", dir), exitFailed, "no longer holds the workspace", "handover")
}

func TestARunThatLivesIsNotRecovered(t *testing.T) {
	t.Parallel()
	s := task(t, "LIVE")
	dir := filepath.Join(t.TempDir(), "files")
	wrapper := s.begin(t, "run", "--issue", "LIVE-2", "--dir", dir, "--", "sh", "-c", "echo x > here; exec sleep 600")
	eventually(t, "the command runs", func() bool { _, err := os.Stat(filepath.Join(dir, "here")); return err == nil })
	refused(t, s.berth(t, "recover", "--dir", dir), exitFailed, "another berth run on this host", "is using it")
	if err := wrapper.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = wrapper.Wait()
	wants(t, s.must(t, "show", "workspace", "LIVE-1"), "false")
	refused(t, s.berth(t, "recover", "--dir", t.TempDir()), exitFailed, "no files of a workspace")
}

func TestATakeoverComesBeforeARecoveryThatIsLate(t *testing.T) {
	t.Parallel()
	s := task(t, "LATE")
	dir := s.orphan(t, "LATE-2", "echo precious > a.txt")
	s.must(t, "takeover", "LATE-1", "--reason", "nobody waited", "--accept-risk")
	r := s.berth(t, "recover", "--dir", dir)
	refused(t, r, exitUnsaved, "not saved", "takeover", "nobody waited", dir)
	if text, err := os.ReadFile(filepath.Join(dir, "a.txt")); err != nil || string(text) != "precious\n" {
		t.Errorf("the directory has %q (%v)", text, err)
	}
}

func TestARecoveryThatIsKilledIsMadeAgain(t *testing.T) {
	t.Parallel()
	s := task(t, "AGAIN")
	dir := s.orphan(t, "AGAIN-2", "seq 1 200000 > a.txt")
	for delay := 5 * time.Millisecond; delay < 80*time.Millisecond; delay += 15 * time.Millisecond {
		half := s.begin(t, "recover", "--dir", dir)
		ended := make(chan struct{})
		go func() { _ = half.Wait(); close(ended) }()
		select {
		case <-time.After(delay):
			_ = half.Process.Kill()
			<-ended
		case <-ended:
		}
	}
	if r := s.berth(t, "recover", "--dir", dir); r.code != 0 {
		t.Fatalf("recover: %d %s", r.code, r.stderr)
	}
	next := s.berth(t, "run", "--issue", "AGAIN-3", "--dir", filepath.Join(t.TempDir(), "next"), "--", "sh", "-c", "wc -l < a.txt")
	if next.code != 0 || strings.TrimSpace(next.stdout) != "200000" {
		t.Errorf("the next run: %d %q %s", next.code, next.stdout, next.stderr)
	}
}

func TestThoseWhoWaitAreListedInTheirOrder(t *testing.T) {
	t.Parallel()
	s := task(t, "LINE")
	reserve(t, s, "LINE-2")
	waiter := s.begin(t, "run", "--issue", "LINE-3", "--dir", filepath.Join(t.TempDir(), "files"), "--wait", "10m", "--", "true")
	eventually(t, "the run waits", func() bool { return strings.Contains(s.must(t, "list", "queue", "LINE-3"), "\n1 ") })
	if err := waiter.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = waiter.Wait()
	if code := waiter.ProcessState.ExitCode(); code != 130 {
		t.Errorf("an interrupted wait exits with %d", code)
	}
	if left := s.must(t, "list", "queue", "LINE-3"); strings.Contains(left, "\n1 ") {
		t.Errorf("the line is %s", left)
	}
}

func TestTwoRecoveriesAtOnceSaveOnce(t *testing.T) {
	t.Parallel()
	s := task(t, "TWICE")
	dir := s.orphan(t, "TWICE-2", "echo precious > a.txt")
	first, second := s.begin(t, "recover", "--dir", dir), s.begin(t, "recover", "--dir", dir)
	_, _ = first.Process.Wait()
	_, _ = second.Process.Wait()
	if r := s.berth(t, "recover", "--dir", dir); r.code != 0 || !strings.Contains(r.stdout, "nothing of run") {
		t.Errorf("afterwards: %d %s%s", r.code, r.stdout, r.stderr)
	}
	if n := strings.Count(s.must(t, "list", "snapshots", "-c", "TWICE", "TWICE-1"), "committed"); n != 2 {
		t.Errorf("%d snapshots are committed, want the empty one and the recovered", n)
	}
}
