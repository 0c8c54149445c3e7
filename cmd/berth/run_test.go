package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a run does in every case is tested in package runner; here, that the
// command line says the same.

func TestRunPassesTheExitCodeOnAndSaves(t *testing.T) {
	t.Parallel()
	s := task(t, "CODE")
	dir := filepath.Join(t.TempDir(), "files")
	r := s.berth(t, "run", "--issue", "CODE-2", "--dir", dir, "--", "sh", "-c", "echo made > a.txt; echo out; echo err >&2; exit 7")
	if r.code != 7 || r.stdout != "out\n" {
		t.Errorf("exit code %d and output %q: %s", r.code, r.stdout, r.stderr)
	}
	wants(t, r.stderr, "err\n", "saved")
	if strings.Contains(r.stderr, "Try:") {
		t.Errorf("the command's exit code is taken for a mistake: %s", r.stderr)
	}
	wants(t, s.must(t, "list", "runs", "-c", "CODE"), "failed")
	again := s.berth(t, "run", "--issue", "CODE-3", "--dir", dir, "--agent", "coder", "--", "cat", "a.txt")
	if again.code != 0 || again.stdout != "made\n" {
		t.Errorf("exit code %d and output %q: %s", again.code, again.stdout, again.stderr)
	}
}

func TestRunThatIsRefusedRunsNothing(t *testing.T) {
	t.Parallel()
	s := task(t, "BUSY")
	held := reserve(t, s, "BUSY-2")
	run := strings.TrimPrefix(held[1], "BERTH_RUN_ID=")
	dir := t.TempDir()
	r := s.berth(t, "run", "--issue", "BUSY-3", "--dir", filepath.Join(dir, "files"), "--", "touch", filepath.Join(dir, "ran"))
	refused(t, r, exitRefused, "remote_workspace_writer_pending", run, "Next: ")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v (%v)", left, err)
	}
}

func TestRunRefusesWhatItCannotDoBeforeAnythingExists(t *testing.T) {
	t.Parallel()
	s := task(t, "CANNOT")
	occupied := t.TempDir()
	write(t, occupied, "mine.txt", "not Berth's")
	refused(t, s.berth(t, "run", "--issue", "CANNOT-2", "--dir", occupied, "--", "true"), exitFailed, occupied, "--adopt", "--replace")
	refused(t, s.berth(t, "run", "--issue", "CANNOT-2", "--", "no-such-program"), 127, "no-such-program")
	refused(t, s.berth(t, "run", "--issue", "CANNOT-2"), exitUsage, "berth run --help")
	refused(t, s.berth(t, "run", "--issue", "CANNOT-2", "--adopt", "--replace", "--", "true"), exitUsage, "--adopt")
	refused(t, s.berth(t, "run", "--issue", "CANNOT-9", "--", "true"), exitFailed, "CANNOT-9")
	refused(t, s.berth(t, "run", "--issue", "CANNOT-2", "--agent", "nobody", "--", "true"), exitFailed, `no agent "nobody"`)
	wants(t, s.must(t, "list", "runs", "-c", "CANNOT", "-o", "json"), `"items": []`)
	if got := content(t, occupied, "mine.txt"); got != "not Berth's" {
		t.Errorf("the file is now %q", got)
	}
}
