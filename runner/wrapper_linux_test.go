package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
)

// runVariable makes a process of the test binary a wrapper around Run; it has a runOrder as JSON.
const runVariable = "RUNNER_TEST_RUN"

type runOrder struct {
	URL, Token, Dir, Script string
	Issue                   uuid.UUID
}

func init() {
	raw := os.Getenv(runVariable)
	if raw == "" {
		return
	}
	var order runOrder
	if err := json.Unmarshal([]byte(raw), &order); err != nil {
		panic(err)
	}
	result, err := Run(context.Background(), Options{
		URL: order.URL, Token: order.Token, IssueID: order.Issue, Dir: order.Dir,
		Command: Command{Path: "sh", Args: []string{"-c", order.Script}, Stdout: os.Stdout, Stderr: os.Stderr, Grace: time.Second},
		Signals: CatchSignals(), Notices: os.Stderr, pace: quickPace,
	})
	var led interface{ NextStep() string }
	if errors.As(err, &led) {
		_, _ = os.Stderr.WriteString(err.Error() + "\n" + led.NextStep() + "\n")
	}
	os.Exit(result.ExitCode)
}

// ownProcess is Run in a process of its own, so that it can be killed.
type ownProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	dir    string
	mark   string
	stderr bytes.Buffer
}

func (s *stage) process(issue uuid.UUID, script string) *ownProcess {
	s.t.Helper()
	p := &ownProcess{t: s.t, dir: filepath.Join(s.t.TempDir(), "dir"), mark: uuid.NewString()}
	order, err := json.Marshal(runOrder{URL: s.URL, Token: s.OperatorToken, Dir: p.dir, Script: script, Issue: issue})
	if err != nil {
		s.t.Fatal(err)
	}
	p.cmd = exec.Command("/proc/self/exe")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal of whoever runs the tests
	p.cmd.Env = append(os.Environ(), "TMPDIR="+s.t.TempDir(), "XDG_RUNTIME_DIR=", runVariable+"="+string(order), markVariable+"="+p.mark)
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = 5 * time.Second
	s.t.Cleanup(func() {
		for _, pid := range p.tree() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		s.t.Logf("%s", p.stderr.String())
	})
	return p
}

func (p *ownProcess) start() *ownProcess {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	return p
}

// tree lists the live processes of the command, without the wrapper.
func (p *ownProcess) tree() []int {
	w := wrapper{t: p.t, order: wrapperOrder{Mark: p.mark}}
	var pids []int
	for _, pid := range w.marked() {
		if p.cmd.Process == nil || pid != p.cmd.Process.Pid {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (p *ownProcess) awaitFile(name string) string {
	p.t.Helper()
	return (&play{t: p.t, Options: Options{Dir: p.dir}}).awaitFile(name)
}

func (p *ownProcess) requireGoneWithin(limit time.Duration) {
	p.t.Helper()
	eventually(p.t, limit, "the tree is gone", func() bool { return len(p.tree()) == 0 })
	requireStill(p.t, p.dir)
}

func TestKillingTheWrapperLeavesTheWorkspaceHeldAndTheWorkMarked(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.process(s.first, `echo "$BERTH_RUN_ID" > run; `+stubbornWork).start()
	p.awaitFile("beat")
	p.awaitFile("daemon")
	run := p.awaitFile("run")
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.requireGoneWithin(afterDeath)
	renewed := s.lastRenewed(t)

	if a := s.authority(); a["writerRunId"] != run || a["dirty"] != true {
		t.Errorf("the workspace is not held by the dead run: %v", a)
	}
	_, err := s.script(s.second, "true").run()
	if !refusedWith(err, codeWriterPending) || !strings.Contains(err.Error(), run) {
		t.Errorf("got %v, want a refusal that names the dead run", err)
	}
	requireUnsavedMarker(t, p.dir)
	if m, err := ReadMarker(p.dir); err != nil || m.RunID.String() != run {
		t.Errorf("the marker is %+v, %v", m, err)
	}
	if len(s.saved()) != 1 {
		t.Errorf("saved are %v, want only what the workspace began with", s.saved())
	}
	if now := s.Must(http.MethodGet, "/api/heartbeat-runs/"+run, nil)["lastRenewedAt"]; now != renewed {
		t.Errorf("somebody still renews: %v after %v", now, renewed)
	}
	// An operator frees it, and the next run is told.
	s.takeOver("its host is gone")
	next := s.script(s.second, "true")
	next.mustRun()
	for _, want := range []string{run, "takeover", "not proven stopped", "never saved"} {
		if !strings.Contains(next.notices.String(), want) {
			t.Errorf("the next run is not told %q: %s", want, next.notices)
		}
	}
}

func TestKillingTheWrapperWhileItRestoresOrSavesLeavesNothingHalf(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.script(s.first, `for i in $(seq 1 2000); do echo $i > $i; done`).mustRun()
	before := s.saved()
	restoring := s.process(s.first, "true").start()
	eventually(t, 20*time.Second, "it restores", func() bool {
		found, _ := filepath.Glob(filepath.Join(dirOf(restoring.dir), ".berth-tmp-*"))
		_, err := os.Stat(filepath.Join(restoring.dir, "1"))
		return len(found) > 0 || err == nil
	})
	_ = restoring.cmd.Process.Kill()
	_ = restoring.cmd.Wait()
	s.takeOver("killed while it restored")

	saving := s.process(s.second, `echo done > ../done; rm 1 2 3`).start()
	saving.awaitFile("../done")
	_ = saving.cmd.Process.Kill()
	_ = saving.cmd.Wait()
	if s.authority()["writerRunId"] != nil {
		s.takeOver("killed while it saved")
	}
	// Either it was all saved before the kill, or nothing of it.
	want := 2000
	if after := s.saved(); len(after) != len(before) {
		want -= 3
	}
	p := s.script(s.first, `ls | wc -l`)
	p.mustRun()
	if got := strings.TrimSpace(p.output()); got != itoa(want) {
		t.Errorf("the next run has %s files, want %d", got, want)
	}
}

// The kernel kills the command with its parents, what it left behind may live: nothing may be saved or given back.
func TestATreeWithoutAProvenEndIsNeitherSavedNorGivenBack(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.process(s.first, `echo "$BERTH_RUN_ID" > run; `+stubbornWork).start()
	p.awaitFile("beat")
	p.awaitFile("daemon")
	w := wrapper{t: t, cmd: p.cmd}
	outer, inner := w.supervisors()
	kill(t, outer, inner)
	if err := p.cmd.Wait(); err == nil || p.cmd.ProcessState.ExitCode() != ExitUnsaved {
		t.Errorf("got %v, exit code %d; want 75", err, p.cmd.ProcessState.ExitCode())
	}
	if a := s.authority(); a["writerRunId"] != p.awaitFile("run") || a["dirty"] != true {
		t.Errorf("the workspace was given back: %v", a)
	}
	if len(s.saved()) != 1 {
		t.Errorf("saved are %v, want only what the workspace began with", s.saved())
	}
	if text := p.stderr.String(); !strings.Contains(text, "may still be running") || !strings.Contains(text, "berth save") {
		t.Errorf("nobody says what is the matter: %s", text)
	}
	requireUnsavedMarker(t, p.dir)
}

func TestAReaderOfItsNoticesThatGoesAwayDoesNotEndARun(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.process(s.first, "echo done > did")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = read.Close()
	p.cmd.Stderr = write
	p.start()
	_ = write.Close()
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("got %v, want success", err)
	}
	s.requireFree()
	if len(s.saved()) != 2 {
		t.Errorf("saved are %v", s.saved())
	}
}

func TestASignalToTheProcessReachesTheCommand(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.process(s.first, endless).start()
	p.awaitFile("here")
	eventually(t, 10*time.Second, "the command runs", func() bool { return len(p.tree()) > 0 })
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	if code := p.cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	s.requireFree()
	if len(s.saved()) != 2 {
		t.Errorf("saved are %v", s.saved())
	}
}

// Ten rounds of reserve, write, save, end, by every way there is to end: each acknowledged save is there afterwards.
func TestEachAcknowledgedSaveIsThereAfterwards(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	line := func(i int) string { return `echo "` + itoa(i) + `" >> log; ` }
	var acknowledged []string
	round := func(i int, run func(*play) bool, script string) {
		t.Helper()
		issue := s.first
		if i%2 == 1 {
			issue = s.second
		}
		if run(s.script(issue, line(i)+script)) {
			acknowledged = append(acknowledged, itoa(i))
		}
		if s.authority()["writerRunId"] != nil {
			s.takeOver("round " + itoa(i))
		}
	}
	plainly := func(p *play) bool { result, _ := p.run(); return result.Saved != nil }
	by := func(act func(p *play)) func(*play) bool {
		return func(p *play) bool {
			out := p.begin()
			p.awaitFile("../started")
			act(p)
			return p.await(out).Saved != nil
		}
	}
	const waits = `echo x > ../started; exec sleep 600`
	round(0, plainly, "exit 0")
	round(1, plainly, "exit 7")
	round(2, plainly, "kill -KILL $$")
	round(3, by(func(p *play) { p.signal(syscall.SIGINT) }), waits)
	round(4, by(func(p *play) { p.signal(syscall.SIGTERM) }), waits)
	round(5, by(func(*play) { s.takeOver("not any more") }), waits) // not saved
	round(6, plainly, `(sleep 600 &) ; `+daemon)
	round(7, func(p *play) bool { // the answer of the end is lost for good
		p.pace.patience = 200 * time.Millisecond
		p.on(func(call string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil && call == "finish" {
				_ = response.Body.Close()
				return nil, io.ErrUnexpectedEOF
			}
			return response, err
		})
		return plainly(p)
	}, "exit 0")
	round(8, by(func(p *play) { // somebody else ends the run
		s.Must(http.MethodPatch, "/api/heartbeat-runs/"+s.authority()["writerRunId"].(string), object{"status": "failed"})
	}), waits) // not saved
	round(9, plainly, "exit 0")

	if want := "0 1 2 3 4 6 7 9"; strings.Join(acknowledged, " ") != want {
		t.Errorf("acknowledged are %v, want %s", acknowledged, want)
	}
	p := s.script(s.first, "cat log")
	p.mustRun()
	if got := strings.Join(strings.Fields(p.output()), " "); got != strings.Join(acknowledged, " ") {
		t.Errorf("the log has %q, acknowledged are %v", got, acknowledged)
	}
	s.requireFree()
}
