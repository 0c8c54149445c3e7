package authority

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/provider"
)

// process is a real process of the run on this host, leased as its machine. It runs the shell's script.
func (s *scene) process(t *testing.T, w worker, script string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", script)
	command.Env = append(os.Environ(), provider.RunVariable+"="+w.RunID.String())
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output, err := command.StdoutPipe()
	s.wantNoError("open a pipe", err)
	s.wantNoError("start", command.Start())
	t.Cleanup(func() { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) })
	if _, err := output.Read(make([]byte, 8)); err != nil { // the script says when it is ready
		t.Fatal(err)
	}
	here, err := provider.OpenProcess()
	s.wantNoError("open this host", err)
	tree, err := here.Tree(w.RunID.String())
	s.wantNoError("name a tree", err)
	tree.PID = command.Process.Pid
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(tree.PID) + "/stat")
	s.wantNoError("look at the process", err)
	_, fields, _ := strings.Cut(string(stat), ") ")
	tree.Start, err = strconv.ParseUint(strings.Fields(fields)[19], 10, 64)
	s.wantNoError("read when it started", err)
	s.lease(w, "provider", provider.ProcessName, "provider_lease_id", tree.String())
	WithProviders(provider.NewDirectory(os.Getenv))(s.Service)
	return command
}

func TestAProcessOnThisHostIsStoppedAtTheDeadlineAndProvenGone(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	s.dirty(w, fence)
	command := s.process(t, w, "echo ready; exec sleep 600")
	r := s.stopAt(workspace, -time.Second)
	s.enforce()
	_ = command.Wait() // which ends because it was asked to
	s.due()
	s.enforce()
	if s.runStatus(w) != "interrupted" || !strings.HasPrefix(s.stopState(r), "enforced") {
		t.Errorf("the run is %s, the request %s", s.runStatus(w), s.stopState(r))
	}
	by := s.recovery(fence)
	s.save(by, fence, "what was left", s.snapshotOf(workspace))
	if got, err := s.reserve(s.worker(s.boundTask(workspace))); err != nil || got.Handover == nil {
		t.Errorf("the next gets %+v, %v", got, err)
	}
}

func TestAProcessThatDoesNotListenKeepsItsWorkspace(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, _ := s.writer(workspace)
	s.process(t, w, "trap '' TERM; echo ready; sleep 600 & wait; wait")
	r := s.stopAt(workspace, -time.Second)
	for range stopAttemptsBeforeAlert {
		s.enforce()
		s.due()
	}
	if s.runStatus(w) != "running" || s.stopState(r) != "alert still_running" {
		t.Errorf("the run is %s, the request %s", s.runStatus(w), s.stopState(r))
	}
}

func TestTheSilenceOfAKilledProcessIsProven(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, _ := s.writer(workspace)
	command := s.process(t, w, "echo ready; exec sleep 600")
	s.silent()
	s.prove()
	if s.runStatus(w) != "running" {
		t.Fatalf("while its process lives the run is %s", s.runStatus(w))
	}
	s.wantNoError("kill", command.Process.Kill())
	_ = command.Wait()
	s.due()
	s.prove()
	if s.runStatus(w) != "interrupted" {
		t.Errorf("after kill -9 the run is %s", s.runStatus(w))
	}
}
