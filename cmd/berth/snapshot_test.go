package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestASavedStateIsNamedLookedAtGoneBackToAndBranchedOff(t *testing.T) {
	t.Parallel()
	s := task(t, "STATE")
	in := func(name string) string { return filepath.Join(t.TempDir(), name) }
	save := func(text string) {
		t.Helper()
		if r := s.berth(t, "run", "--issue", "STATE-2", "--dir", in("files"), "--", "sh", "-c", "echo "+text+" > a.txt"); r.code != 0 {
			t.Fatal(r.stderr)
		}
	}
	save("first")
	first := memberOf(t, s.must(t, "show", "workspace", "STATE-2", "-o", "json"), "authority", "snapshotId").(string)
	workspace := memberOf(t, s.must(t, "show", "workspace", "STATE-2", "-o", "json"), "id").(string)
	save("second")
	s.must(t, "name", "-c", "STATE", "STATE-2", first, "good")
	wants(t, s.must(t, "list", "snapshots", "-c", "STATE", "STATE-2"), "good")
	refused(t, s.berth(t, "name", "-c", "STATE", "STATE-2", "bad", "other"), exitFailed, `named "bad"`)

	copied := in("copy")
	wants(t, s.must(t, "restore", workspace, "--snapshot", "good", "--dir", copied), "copied snapshot "+first)
	if text, err := os.ReadFile(filepath.Join(copied, "a.txt")); err != nil || string(text) != "first\n" {
		t.Errorf("the copy has %q (%v)", text, err)
	}
	refused(t, s.berth(t, "restore", workspace, "--snapshot", "good", "--dir", copied), exitFailed, "it has files")

	wants(t, s.must(t, "rollback", "--issue", "STATE-2", "--snapshot", "good"), "rolled back to snapshot")
	got := s.berth(t, "run", "--issue", "STATE-3", "--dir", in("after"), "--", "cat", "a.txt")
	if got.code != 0 || got.stdout != "first\n" {
		t.Errorf("after the rollback: %d %q %s", got.code, got.stdout, got.stderr)
	}
	s.must(t, "create", "issue", "Branch", "-c", "STATE")
	s.must(t, "create", "workspace", "--issue", "STATE-4", "--from", workspace+"@good")
	got = s.berth(t, "run", "--issue", "STATE-4", "--dir", in("branch"), "--", "cat", "a.txt")
	if got.code != 0 || got.stdout != "first\n" || !strings.Contains(got.stderr, "at epoch 1") {
		t.Errorf("the branch: %d %q %s", got.code, got.stdout, got.stderr)
	}
	held := reserve(t, s, "STATE-2")
	refused(t, s.berth(t, "rollback", "--issue", "STATE-3", "--snapshot", "good"), exitRefused, "remote_workspace_writer_pending", strings.TrimPrefix(held[1], "BERTH_RUN_ID="))
}
