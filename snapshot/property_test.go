package snapshot_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/snapshot"

	"pgregory.net/rapid"
)

// anyName draws what a file system takes for a name: any bytes but zero and slash, also such as end a tar field, sort
// around the slash, or are no UTF-8.
func anyName() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		raw := rapid.OneOf(
			rapid.SliceOfN(rapid.ByteRange(1, 255), 1, 40),
			rapid.SliceOfN(rapid.SampledFrom([]byte("ab.-/ \n\"")), 1, 4),
			rapid.SliceOfN(rapid.ByteRange('a', 'c'), 200, 255),
		).Draw(t, "name")
		name := string(bytes.ReplaceAll(raw, []byte("/"), []byte("_")))
		if name == "." || name == ".." || name == snapshot.MarkerName || strings.HasPrefix(name, snapshot.TemporaryPrefix) {
			return "dot"
		}
		return name
	})
}

// growTree fills a directory with a random tree. Modes leave the owner able to read, so that the test runs as anyone.
func growTree(t *rapid.T, directory string, depth int) {
	names := rapid.SliceOfNDistinct(anyName(), 0, 5, rapid.ID[string]).Draw(t, "names")
	for _, name := range names {
		path := filepath.Join(directory, name)
		switch kind := rapid.SampledFrom([]string{"file", "file", "directory", "link"}).Draw(t, "kind"); {
		case kind == "directory" && depth < 4:
			must(t, os.Mkdir(path, 0o700))
			growTree(t, path, depth+1)
			must(t, os.Chmod(path, 0o500|os.FileMode(rapid.IntRange(0, 0o777).Draw(t, "mode"))))
		case kind == "link":
			up := strings.Repeat("../", rapid.IntRange(0, depth).Draw(t, "up"))
			must(t, os.Symlink(up+anyName().Draw(t, "target"), path))
		default:
			content := rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "content")
			repeat := rapid.SampledFrom([]int{1, 1, 1, 400}).Draw(t, "repeat")
			must(t, os.WriteFile(path, bytes.Repeat(content, repeat), 0o600))
			must(t, os.Chmod(path, 0o400|os.FileMode(rapid.IntRange(0, 0o777).Draw(t, "mode"))))
		}
		setTime(t, path, rapid.Int64Range(-1<<31, 1<<33).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos"))
	}
}

func TestRoundTripOfAnyTree(t *testing.T) {
	t.Parallel()
	base := memoryDirectory(t)
	rapid.Check(t, func(t *rapid.T) {
		directory, err := os.MkdirTemp(base, "case")
		must(t, err)
		defer openAndRemove(t, directory)
		source, target, path := filepath.Join(directory, "source"), filepath.Join(directory, "target"), filepath.Join(directory, "archive")
		must(t, os.Mkdir(source, 0o700))
		growTree(t, source, 0)
		want := readTree(t, source)

		archive, saved := pack(t, source)
		must(t, os.WriteFile(path, archive, 0o600))
		restored, err := snapshot.Restore(t.Context(), path, target, saved.Digest(), snapshot.Limits{})
		must(t, err)
		requireSameTree(t, want, readTree(t, target))
		if len(saved.Skipped) != 0 || restored.FileCount != saved.FileCount {
			t.Fatalf("saved %+v, restored %+v", saved, restored)
		}
		if again, _ := pack(t, target); !bytes.Equal(again, archive) {
			t.Fatal("the restored tree does not give the archive it came from")
		}
		requireNames(t, directory, "archive", "source", "target")
	})
}

// memoryDirectory is a directory in memory where the system has one: a hundred flushes of a busy disk take long.
func memoryDirectory(t *testing.T) string {
	directory, err := os.MkdirTemp("/dev/shm", "berth-snapshot-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { must(t, os.RemoveAll(directory)) })
	return directory
}

func openAndRemove(t *rapid.T, directory string) {
	filepath.WalkDir(directory, func(path string, item os.DirEntry, err error) error { //nolint:errcheck // RemoveAll tells
		if item != nil && item.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return nil
	})
	must(t, os.RemoveAll(directory))
}
