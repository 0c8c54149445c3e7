package snapshot_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/snapshot"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// tester is what *testing.T, *testing.B, *testing.F and *rapid.T have in common, as far as it is needed here.
type tester interface {
	Helper()
	Context() context.Context
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// node is one path of a tree, as the tests compare trees. They read them with plain os calls, not with the package's walk.
type node struct {
	Mode    fs.FileMode // with type bits
	MTime   string
	Content string
	Target  string
}

// readTree lists everything below root by path. It runs as root or as the owner of every file.
func readTree(tb tester, root string) map[string]node {
	tb.Helper()
	tree := map[string]node{}
	err := filepath.WalkDir(root, func(path string, item fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := item.Info()
		if err != nil {
			return err
		}
		n := node{Mode: info.Mode(), MTime: info.ModTime().UTC().Format(time.RFC3339Nano)}
		switch info.Mode().Type() {
		case fs.ModeSymlink:
			n.Target, err = os.Readlink(path)
		case 0:
			var content []byte
			content, err = os.ReadFile(path)
			n.Content = shorten(content)
		}
		relative, _ := filepath.Rel(root, path)
		tree[relative] = n
		return err
	})
	if err != nil {
		tb.Fatalf("read the tree %q: %v", root, err)
	}
	return tree
}

func shorten(content []byte) string {
	if len(content) <= 64 {
		return string(content)
	}
	sum := sha256.Sum256(content)
	return fmt.Sprintf("%d bytes, sha256 %x", len(content), sum)
}

func requireSameTree(tb tester, want, got map[string]node) {
	tb.Helper()
	if difference := cmp.Diff(want, got); difference != "" {
		tb.Fatalf("the restored tree is not the saved one (-saved +restored):\n%s", difference)
	}
}

func writeFile(tb testing.TB, path, content string, mode fs.FileMode) {
	tb.Helper()
	must(tb, os.MkdirAll(filepath.Dir(path), 0o755))
	must(tb, os.WriteFile(path, []byte(content), 0o600))
	must(tb, os.Chmod(path, mode))
}

func setTime(tb tester, path string, seconds, nanos int64) {
	tb.Helper()
	times := []unix.Timespec{{Sec: seconds, Nsec: nanos}, {Sec: seconds, Nsec: nanos}}
	must(tb, unix.UtimesNanoAt(unix.AT_FDCWD, path, times, unix.AT_SYMLINK_NOFOLLOW))
}

func must(tb tester, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// pack saves dir into memory and fails the test on an error.
func pack(tb tester, dir string) ([]byte, snapshot.Summary) {
	tb.Helper()
	var archive bytes.Buffer
	summary, err := snapshot.Pack(tb.Context(), dir, &archive, snapshot.PackOptions{})
	must(tb, err)
	if want := digestOf(archive.Bytes()); summary.Digest() != want {
		tb.Fatalf("Pack says it wrote %v, it wrote %v", summary.Digest(), want)
	}
	return archive.Bytes(), summary
}

// restore writes the archive beside a target, restores it, and returns the target.
func restore(tb testing.TB, archive []byte) (string, snapshot.Summary, error) {
	tb.Helper()
	target := filepath.Join(tb.TempDir(), "workspace")
	summary, err := restoreTo(tb, archive, target, snapshot.Limits{})
	return target, summary, err
}

func restoreTo(tb testing.TB, archive []byte, target string, limits snapshot.Limits) (snapshot.Summary, error) {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "archive.tar.zst")
	must(tb, os.WriteFile(path, archive, 0o600))
	return snapshot.Restore(tb.Context(), path, target, digestOf(archive), limits)
}

func digestOf(content []byte) snapshot.Digest {
	sum := sha256.Sum256(content)
	return snapshot.Digest{Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
}

// requireNames fails unless the directory contains exactly these names.
func requireNames(tb tester, directory string, want ...string) {
	tb.Helper()
	items, err := os.ReadDir(directory)
	must(tb, err)
	got := []string{}
	for _, item := range items {
		got = append(got, item.Name())
	}
	if difference := cmp.Diff(append([]string{}, want...), got); difference != "" {
		tb.Fatalf("content of %s (-want +got):\n%s", directory, difference)
	}
}
