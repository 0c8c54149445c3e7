package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/snapshot/storetest"
)

func TestServeKeepsSnapshotsInS3AndWaitsForItWhenItIsGone(t *testing.T) {
	t.Parallel()
	store := storetest.NewS3(t)
	s := start(t, openTempDir(t), storetest.Environment(), "--snapshot-url", store.URL("berth"))
	s.must(t, "create", "company", "Acme")
	s.must(t, "create", "agent", "coder")
	s.must(t, "create", "issue", "Parent")
	s.must(t, "create", "workspace", "--issue", "ACME-1")
	s.must(t, "create", "issue", "Child", "--parent", "ACME-1")
	run := func(dir, script string) result {
		t.Helper()
		return s.berth(t, "run", "--issue", "ACME-2", "--dir", filepath.Join(t.TempDir(), dir), "--", "sh", "-c", script)
	}
	// More than goes to the store in one part, of what cannot be compressed.
	if r := run("first", "head -c 20000000 /dev/urandom > big; sha256sum big > sum"); r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	if left, err := os.ReadDir(filepath.Join(s.dir, ".berth", snapshotsDir)); err == nil {
		t.Errorf("the data directory has snapshots, too: %v", left)
	}
	ready := func(status int) func() bool {
		return func() bool {
			got, _ := get(t, http.DefaultClient, s.url+"/api/ready")
			return got == status
		}
	}
	eventually(t, "the service is ready", ready(http.StatusOK))

	store.Wire.Cut()
	eventually(t, "the service is not ready", ready(http.StatusServiceUnavailable))
	wants(t, s.log.String(), "not ready", "the snapshot store is out of reach")

	// Who restores or saves meanwhile tries again, and ends well once the store is back.
	dir := filepath.Join(t.TempDir(), "later")
	script := "sha256sum -c sum && touch restored && until [ -e go ]; do sleep 0.1; done; head -c 20000000 /dev/urandom > big; sha256sum big > sum"
	later := s.begin(t, "run", "--issue", "ACME-2", "--dir", dir, "--", "sh", "-c", script)
	eventually(t, "the restore meets the store that is gone", func() bool {
		return strings.Contains(s.log.String(), `doing="open a snapshot"`)
	})
	store.Wire.Mend()
	eventually(t, "the service is ready again", ready(http.StatusOK))
	eventually(t, "the restore succeeds", func() bool {
		_, err := os.Stat(filepath.Join(dir, "restored"))
		return err == nil
	})
	store.Wire.Cut()
	write(t, dir, "go", "")
	eventually(t, "the save meets the store that is gone", func() bool {
		return strings.Contains(s.log.String(), `doing="store a snapshot"`)
	})
	store.Wire.Mend()
	if err := later.Wait(); err != nil {
		t.Errorf("%v: %s", err, later.Stderr)
	}
	if r := run("second", "sha256sum -c sum"); r.code != 0 || r.stdout != "big: OK\n" {
		t.Errorf("exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
}

func TestServeOnS3RefusesAnotherInstallationsBucketAndMissingKeys(t *testing.T) {
	t.Parallel()
	store := storetest.NewS3(t)
	first := start(t, openTempDir(t), storetest.Environment(), "--snapshot-url", store.URL(""))
	first.must(t, "create", "company", "Acme")
	dir := openTempDir(t)
	giveDatabase(t, dir)
	serve := []string{"serve", "--addr", "127.0.0.1:0", "--snapshot-url", store.URL("")}
	refused(t, invoke(t, dir, storetest.Environment(), serve...), exitFailed, "another installation", "BERTH_SNAPSHOT_URL")
	refused(t, invoke(t, dir, []string{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY="}, serve...), exitFailed, "BERTH_S3_ACCESS_KEY_ID")
}
