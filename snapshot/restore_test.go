package snapshot_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/snapshot"
)

func smallArchive(tb testing.TB) []byte {
	tb.Helper()
	dir := tb.TempDir()
	writeFile(tb, filepath.Join(dir, "file"), "content", 0o644)
	archive, _ := pack(tb, dir)
	return archive
}

func TestRestoreTakesTheModeOfAnEmptyTarget(t *testing.T) {
	t.Parallel()
	target := filepath.Join(t.TempDir(), "workspace")
	must(t, os.Mkdir(target, 0o700))
	must(t, os.Chmod(target, 0o710))
	_, err := restoreTo(t, smallArchive(t), target, snapshot.Limits{})
	must(t, err)
	info, err := os.Stat(target)
	must(t, err)
	if info.Mode().Perm() != 0o710 {
		t.Errorf("the target has mode %v, the empty directory had 0710", info.Mode())
	}
	requireNames(t, target, "file")
	requireNames(t, filepath.Dir(target), "workspace")
}

func TestRestoreLeavesATargetInUseAlone(t *testing.T) {
	t.Parallel()
	archive := smallArchive(t)
	for name, make := range map[string]func(path string) error{
		"full directory": func(path string) error { return os.MkdirAll(filepath.Join(path, "work"), 0o755) },
		"file":           func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"link":           func(path string) error { return os.Symlink(t.TempDir(), path) },
		"dangling link":  func(path string) error { return os.Symlink("nowhere", path) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			target := filepath.Join(parent, "target")
			must(t, make(target))
			before := readTree(t, parent)
			if _, err := restoreTo(t, archive, target+"/", snapshot.Limits{}); !errors.Is(err, snapshot.ErrTargetInUse) {
				t.Errorf("error %v, want ErrTargetInUse", err)
			}
			requireSameTree(t, before, readTree(t, parent))
		})
	}
}

func TestRestoreNeedsTheParentOfItsTarget(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	if _, err := restoreTo(t, smallArchive(t), filepath.Join(parent, "missing/target"), snapshot.Limits{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want that the parent does not exist", err)
	}
	requireNames(t, parent)
}

// childRestore restores args[0] to args[1] without the rights of root, who may write to and remove everything.
const childRestore = "restore as an ordinary user"

func init() {
	childRoles[childRestore] = func(args []string) (string, error) {
		archive, err := os.ReadFile(args[0])
		if err := errors.Join(err, dropPrivileges()); err != nil {
			return "", err
		}
		if _, err := snapshot.Restore(context.Background(), args[0], args[1], digestOf(archive), snapshot.Limits{}); err != nil {
			return err.Error(), nil //nolint:nilerr // the refusal is what the parent asked for
		}
		return "restored", nil
	}
}

func TestRestoreRemovesHalfATreeThatHasSealedDirectories(t *testing.T) {
	t.Parallel()
	archive := compress(t, rawTar(t, directory("files/a/").withMode(0o555), file("files/a/x", "x"), file("files/b", "x")))
	path, parent := filepath.Join(t.TempDir(), "archive"), t.TempDir()
	must(t, os.WriteFile(path, archive, 0o644))
	openToOthers(t, filepath.Dir(path))
	openToOthers(t, parent)
	result := startChild(t, childRestore, path, filepath.Join(parent, "target")).result(t)
	if !strings.HasSuffix(result, "it ends without a manifest") {
		t.Errorf("the restore said %q", result)
	}
	requireNames(t, parent)
}

func TestRestoreFillsSealedDirectoriesForAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	dir, parent := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(dir, "sealed/inner/file"), "x", 0o444)
	must(t, os.Chmod(filepath.Join(dir, "sealed/inner"), 0o555))
	must(t, os.Chmod(filepath.Join(dir, "sealed"), 0o555))
	archive, _ := pack(t, dir)
	path := filepath.Join(t.TempDir(), "archive")
	must(t, os.WriteFile(path, archive, 0o644))
	openToOthers(t, filepath.Dir(path))
	openToOthers(t, parent)
	result := startChild(t, childRestore, path, filepath.Join(parent, "target")).result(t)
	if result != "restored" {
		t.Fatalf("the restore said %q", result)
	}
	requireSameTree(t, readTree(t, dir), readTree(t, filepath.Join(parent, "target")))
}

func TestRestoreKeepsTimesOfAnyCentury(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, seconds := range map[string]int64{"ancient": -8_000_000_000, "far": 9_500_000_000} {
		writeFile(t, filepath.Join(dir, name), name, 0o644)
		setTime(t, filepath.Join(dir, name), seconds, 999_999_999)
	}
	want := readTree(t, dir) // as far as this file system has them
	archive, _ := pack(t, dir)
	target, _, err := restore(t, archive)
	must(t, err)
	requireSameTree(t, want, readTree(t, target))
}
