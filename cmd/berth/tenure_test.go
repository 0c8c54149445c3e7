package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// task makes a company with an agent, a parent that has a workspace, and two
// children that inherit it: PREFIX-2 and PREFIX-3.
func task(t testing.TB, prefix string) *service {
	t.Helper()
	s := company(t, prefix)
	s.must(t, "create", "agent", "coder", "-c", prefix)
	s.must(t, "create", "issue", "Parent", "-c", prefix)
	s.must(t, "create", "workspace", "--issue", prefix+"-1")
	s.must(t, "create", "issue", "First", "--parent", prefix+"-1")
	s.must(t, "create", "issue", "Second", "--parent", prefix+"-1")
	return s
}

// reserve reserves for a task, and returns what a script would export.
func reserve(t testing.TB, s *service, issue string) []string {
	t.Helper()
	return strings.Fields(s.must(t, "reserve", "--issue", issue))
}

func TestAScriptKeepsATenureStepByStep(t *testing.T) {
	t.Parallel()
	s := task(t, "STEP")
	dir := filepath.Join(t.TempDir(), "files")
	held := reserve(t, s, "STEP-2")
	step := func(args ...string) string {
		t.Helper()
		r := s.berthAs(t, held, args...)
		if r.code != 0 {
			t.Fatalf("berth %s: exit code %d: %s", strings.Join(args, " "), r.code, r.stderr)
		}
		return r.stdout
	}
	step("restore", "--dir", dir)
	write(t, dir, "first.txt", "saved")
	wants(t, step("renew"), "renewed at")
	refused(t, s.berthAs(t, held, "release"), exitFailed, "workspace_dirty", "berth save")
	wants(t, step("save", "--dir", dir, "--more"), "saved snapshot")
	refused(t, s.berthAs(t, held, "release"), exitFailed, "workspace_dirty")
	write(t, dir, "second.txt", "saved, too")
	saved := memberOf(t, step("save", "--dir", dir, "-o", "json"), "id")
	wants(t, step("release", "--finish", "succeeded"), "is succeeded", "is free")
	refused(t, s.berthAs(t, held, "renew"), exitFailed, "tenure_ended", "by finish of run:")
	refused(t, s.berthAs(t, held, "save", "--dir", dir), exitUnsaved, "tenure_ended")

	// The directory tells by itself whose it is.
	next := reserve(t, s, "STEP-3")
	other := filepath.Join(t.TempDir(), "other")
	if r := s.berthAs(t, next, "restore", "--dir", other); r.code != 0 {
		t.Fatal(r.stderr)
	}
	if got := content(t, other, "first.txt") + content(t, other, "second.txt"); got != "savedsaved, too" {
		t.Errorf("restored %q", got)
	}
	token := []string{next[len(next)-1]}
	if r := s.berthAs(t, token, "release", "--dir", other, "--discard"); r.code != 0 {
		t.Errorf("release by the directory's marker: %s", r.stderr)
	}
	wants(t, s.must(t, "list", "snapshots", "STEP-1"), saved.(string))
	refused(t, s.berth(t, "save", "--dir", t.TempDir()), exitFailed, "no marker")
	refused(t, s.berth(t, "renew"), exitUsage, "whose tenure", "BERTH_EPOCH")
	refused(t, s.berth(t, "renew", "x", "--run", "y", "--epoch", "1"), exitUsage, "ids")
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func content(t testing.TB, dir, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestARefusedReservationExitsWith73AndNamesTheHolder(t *testing.T) {
	t.Parallel()
	s := task(t, "HOLD")
	held := reserve(t, s, "HOLD-2")
	run := strings.TrimPrefix(held[1], "BERTH_RUN_ID=")
	r := s.berth(t, "reserve", "--issue", "HOLD-3")
	refused(t, r, exitRefused, "remote_workspace_writer_pending", "held by run "+run, "epoch 1", "Next: berth explain")
	if r.stdout != "" {
		t.Errorf("a refused reservation printed %q", r.stdout)
	}
	// The run that was made for it is not left behind.
	wants(t, s.must(t, "list", "runs", "-c", "HOLD", "--issue", "HOLD-3"), "cancelled")
	refused(t, s.berth(t, "reserve", "--issue", "HOLD-2", "--expected-epoch", "7", "--workspace", "HOLD-1"), exitRefused, "stale_epoch")
}

func TestExplainTellsTheVerdictTheHolderAndTheWayOut(t *testing.T) {
	t.Parallel()
	s := task(t, "WHY")
	refused(t, s.berth(t, "explain"), exitUsage, "name a workspace or a task")
	wants(t, s.must(t, "explain", "--issue", "WHY-2"), "yes: ")
	held := reserve(t, s, "WHY-2")
	run := strings.TrimPrefix(held[1], "BERTH_RUN_ID=")
	wants(t, s.must(t, "explain", "--issue", "WHY-2"), "yes: The run is the writer")
	// A run of the sibling's that waits: made by a reservation of another workspace.
	s.must(t, "create", "issue", "Elsewhere", "-c", "WHY")
	other := reserve(t, s, "WHY-4")
	otherRun := strings.TrimPrefix(other[1], "BERTH_RUN_ID=")
	wants(t, s.must(t, "explain", "--issue", "WHY-3", "--run", otherRun), "no: ", "(run_identity_mismatch)")
	wants(t, s.must(t, "explain", "--issue", "WHY-3", "--run", otherRun, "-o", "json"), `"reservable": false`)

	again := s.must(t, "reserve", "--issue", "WHY-2", "--run", run)
	if strings.Contains(again, "TOKEN") || !strings.Contains(again, "BERTH_EPOCH=1") {
		t.Errorf("reserving again printed %q", again)
	}
}

// Somebody comes to a workspace that a cancelled job left locked, and knows no more of it than its name.
func TestThreeCommandsFreeALockByItsName(t *testing.T) {
	t.Parallel()
	s := task(t, "LOCK")
	held := reserve(t, s, "LOCK-2")
	run := strings.TrimPrefix(held[1], "BERTH_RUN_ID=")
	lines := strings.Split(strings.TrimSpace(s.must(t, "list", "workspaces", "-c", "LOCK")), "\n")
	if len(lines) != 2 || !strings.Contains(lines[1], run) {
		t.Fatalf("the writer is not listed:\n%s", strings.Join(lines, "\n"))
	}
	name := strings.Fields(lines[1])[1]
	for _, known := range []string{name, "LOCK-3", strings.Fields(lines[1])[0]} {
		wants(t, s.must(t, "explain", known, "-c", "LOCK"), "no: ", "held by run "+run, "next: an operator takes over: berth takeover")
	}
	s.must(t, "takeover", name, "-c", "LOCK", "--reason", "the job was cancelled", "--accept-risk")
	wants(t, s.must(t, "explain", name, "-c", "LOCK"), "yes: Nobody is the writer.")
}

func TestTakeoverNeedsProofOrTheWordOfAnOperator(t *testing.T) {
	t.Parallel()
	s := task(t, "TAKE")
	held := reserve(t, s, "TAKE-2")
	refused(t, s.berth(t, "takeover", "TAKE-1"), exitUsage, "--reason")
	refused(t, s.berth(t, "takeover", "TAKE-1", "--reason", "its machine burnt"), exitFailed, "takeover_needs_proof", "--accept-risk")
	wants(t, s.must(t, "takeover", "TAKE-1", "--reason", "its machine burnt", "--accept-risk"), "free, at epoch 2")
	refused(t, s.berthAs(t, held, "renew"), exitFailed, "tenure_ended", "takeover", "its machine burnt")
	next := s.berth(t, "reserve", "--issue", "TAKE-3", "-o", "json")
	wants(t, next.stderr, "follows run", "an operator ended", "nobody has proven that it stopped")
	if kind := memberOf(t, next.stdout, "reservation", "handover", "kind"); kind != "takeover" {
		t.Errorf("the handover is by %v", kind)
	}
}

func TestHistoryTellsWhatHappenedInOrder(t *testing.T) {
	t.Parallel()
	s := task(t, "PAST")
	held := reserve(t, s, "PAST-2")
	s.berth(t, "reserve", "--issue", "PAST-3")
	if r := s.berthAs(t, held, "release"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	reserve(t, s, "PAST-3")
	s.must(t, "takeover", "PAST-1", "--reason", "a test", "--accept-risk")
	told := s.must(t, "history", "PAST-1")
	last := -1
	for _, part := range []string{
		"the workspace was made by token:", "of task PAST-2 became the writer", "of task PAST-3 was refused the workspace: remote_workspace_writer_pending",
		"of task PAST-2 is no longer the writer: released by run:", "of task PAST-3 became the writer",
		"of task PAST-3 is no longer the writer: taken over by token:", "a test; not proven stopped",
	} {
		at := strings.Index(told, part)
		if at <= last {
			t.Errorf("%q is at %d, after %d, in:\n%s", part, at, last, told)
		}
		last = at
	}
	if lines := strings.Split(s.must(t, "history", "PAST-1", "--limit", "1"), "\n"); len(lines) != 2 || !strings.Contains(lines[1], "took the workspace over") {
		t.Errorf("the newest event is %q", lines)
	}
	story := s.must(t, "history", "PAST-1", "-o", "json")
	if tenures := memberOf(t, story, "tenures").([]any); len(tenures) != 2 {
		t.Errorf("%d tenures", len(tenures))
	}
	if events := memberOf(t, story, "events").([]any); len(events) < 7 {
		t.Errorf("%d events", len(events))
	}
}
