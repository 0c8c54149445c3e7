package snapshot_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/snapshot"

	"github.com/google/go-cmp/cmp"
)

// FuzzRestoreNeverWritesOutside unpacks any tar stream. The compression around it is made here, since no mutation would get
// past its checksum. Whatever the stream says: beside the target nothing is new or changed, an error leaves no target
// either, and a tree that was restored has nothing in it that leads out or that has more than permission bits.
func FuzzRestoreNeverWritesOutside(f *testing.F) {
	for _, test := range hostile {
		f.Add(rawTar(f, test.members...))
	}
	f.Add(rawTar(f, directory("files/d/"), file("files/d/a", "x"), link("files/d/l", "../d/a"), manifest()))
	f.Add(rawTar(f, file("files/a", "x"), manifest(lineFor("a", "x", "0644"))))
	f.Add(rawTar(f, manifest(`{"path":"p","kind":"fifo","skipped":"why"}`+"\n")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		base := t.TempDir()
		writeFile(t, filepath.Join(base, "evil"), "untouched", 0o644)
		writeFile(t, filepath.Join(base, "parent/evil"), "untouched", 0o644)
		before := readTree(t, base)
		setAside := before["parent"] // its time changes with the names in it
		target := filepath.Join(base, "parent/target")
		limits := snapshot.Limits{MaxBytes: 1 << 20, MaxEntries: 1000}
		_, err := restoreTo(t, compress(t, raw), target, limits)
		if err == nil {
			requireContained(t, target)
			must(t, os.RemoveAll(target))
		} else if !errors.Is(err, snapshot.ErrInvalidArchive) && !errors.Is(err, snapshot.ErrLimit) && !isNameTooLong(err) {
			t.Errorf("an archive may not cause this: %v", err)
		}
		after := readTree(t, base)
		after["parent"] = setAside
		if difference := cmp.Diff(before, after); difference != "" {
			t.Fatalf("the restore (error %v) changed what is beside its target:\n%s", err, difference)
		}
	})
}

// isNameTooLong allows the one thing that only the file system can know.
func isNameTooLong(err error) bool { return strings.Contains(err.Error(), "file name too long") }

func requireContained(t *testing.T, root string) {
	t.Helper()
	must(t, filepath.WalkDir(root, func(path string, item fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := item.Info()
		if err != nil {
			return err
		}
		switch info.Mode().Type() {
		case fs.ModeSymlink:
			if resolved, err := filepath.EvalSymlinks(path); err == nil && resolved != root && !strings.HasPrefix(resolved, root+"/") {
				t.Errorf("%q leads to %q", path, resolved)
			}
		case 0, fs.ModeDir:
			if info.Mode()&^(fs.ModeDir|fs.ModePerm) != 0 {
				t.Errorf("%q has mode %v", path, info.Mode())
			}
		default:
			t.Errorf("%q is a %v", path, info.Mode())
		}
		return nil
	}))
}
