package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/snapshot"
)

func openFileStore(tb testing.TB) snapshot.Store {
	tb.Helper()
	return openFileStoreIn(tb, filepath.Join(tb.TempDir(), "made/by/open"))
}

func openFileStoreIn(tb testing.TB, directory string) snapshot.Store {
	tb.Helper()
	store, err := snapshot.OpenStore("file://"+directory, os.Getenv)
	must(tb, err)
	return store
}

func TestFileStore(t *testing.T) {
	t.Parallel()
	storePromises(t, func(t *testing.T) snapshot.Store { return openFileStore(t) })
}

func TestFileStoreKeepsOthersOut(t *testing.T) {
	t.Parallel()
	directory := filepath.Join(t.TempDir(), "store")
	store := openFileStoreIn(t, directory)
	put(t, store, someKey, "secret")
	must(t, store.WriteMarker(t.Context(), "id"))
	must(t, filepath.WalkDir(directory, func(path string, item fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := item.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	}))
}

func TestFileStoreDoesNotFollowALinkOutOfItself(t *testing.T) {
	t.Parallel()
	directory, outside := filepath.Join(t.TempDir(), "store"), t.TempDir()
	store := openFileStoreIn(t, directory)
	must(t, os.Symlink(outside, filepath.Join(directory, "companies")))
	if err := store.Put(t.Context(), someKey, strings.NewReader("x"), digestOf([]byte("x"))); err == nil {
		t.Error("Put went through a link out of the store")
	}
	requireNames(t, outside)
}

func TestFileStoreWhoseDirectoryVanishedIsAnErrorAndIsNotMadeAnew(t *testing.T) {
	t.Parallel()
	directory := filepath.Join(t.TempDir(), "store")
	store := openFileStoreIn(t, directory)
	put(t, store, someKey, "x")
	must(t, os.Rename(directory, directory+"-unmounted"))
	_, _, err := store.Open(t.Context(), someKey)
	if err == nil || errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("Open: error %v, want one that is not ErrNotFound", err)
	}
	if _, err := store.Marker(t.Context()); err == nil || errors.Is(err, snapshot.ErrNoMarker) {
		t.Errorf("Marker: error %v, want one that is not ErrNoMarker", err)
	}
	if err := store.Put(t.Context(), someKey, strings.NewReader("x"), digestOf([]byte("x"))); err == nil {
		t.Error("Put made the directory anew")
	}
}

func TestDeleteRemovesTheDirectoriesOfADeadEpoch(t *testing.T) {
	t.Parallel()
	directory := filepath.Join(t.TempDir(), "store")
	store := openFileStoreIn(t, directory)
	put(t, store, "companies/c/1/a", "x")
	put(t, store, "companies/c/2/a", "x")
	must(t, store.Delete(t.Context(), "companies/c/1/a"))
	requireNames(t, filepath.Join(directory, "companies/c"), "2")
	must(t, store.Delete(t.Context(), "companies/c/2/a"))
	requireNames(t, directory)
}

// Roles that put objects and are killed at it.
const (
	childPutHalf    = "put half an object"
	childPutForever = "replace an object again and again"
)

func init() {
	childRoles[childPutHalf] = func(args []string) (string, error) {
		store, err := snapshot.OpenStore("file://"+args[0], os.Getenv)
		if err != nil {
			return "", err
		}
		stuck := readerFunc(func([]byte) (int, error) {
			fmt.Println("half") // copied in the order it is read, so the first half is in the file by now
			select {}
		})
		content := io.MultiReader(bytes.NewReader(generation(1)[:700_000]), stuck)
		return "", store.Put(context.Background(), someKey, content, digestOf(generation(1)))
	}
	childRoles[childPutForever] = func(args []string) (string, error) {
		store, err := snapshot.OpenStore("file://"+args[0], os.Getenv)
		for i := 0; err == nil; i++ {
			content := generation(i % 256)
			err = store.Put(context.Background(), someKey, bytes.NewReader(content), digestOf(content))
			fmt.Println(i)
		}
		return "", err
	}
}

// generation is a recognisable content of a million bytes.
func generation(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 1_000_000) }

func temporaries(tb testing.TB, directory string) (paths []string) {
	tb.Helper()
	must(tb, filepath.WalkDir(directory, func(path string, item fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(item.Name(), snapshot.TemporaryPrefix) {
			paths = append(paths, path)
		}
		return err
	}))
	return paths
}

func TestKillInTheMiddleOfAPutLeavesTheOldObject(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"with an object before": true, "with none before": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := filepath.Join(t.TempDir(), "store")
			store := openFileStoreIn(t, directory)
			if before {
				put(t, store, someKey, "old")
			}
			child := startChild(t, childPutHalf, directory)
			child.line(t)
			child.kill(t)

			if before {
				if got := read(t, store, someKey); got != "old" {
					t.Errorf("the old object is now %d bytes", len(got))
				}
			} else {
				requireMissing(t, store, someKey)
			}
			left := temporaries(t, directory)
			if len(left) != 1 {
				t.Fatalf("temporary files %q, want the one of the killed Put", left)
			}
			requireSwept(t, store, time.Hour, 0)
			must(t, os.Chtimes(left[0], time.Time{}, time.Now().Add(-2*time.Hour)))
			requireSwept(t, store, time.Hour, 1)
			if before {
				read(t, store, someKey)
			} else {
				requireNames(t, directory)
			}
			content := string(generation(1))
			put(t, store, someKey, content)
		})
	}
}

func requireSwept(tb testing.TB, store snapshot.Store, olderThan time.Duration, want int) {
	tb.Helper()
	if removed, err := store.SweepTemporary(tb.Context(), olderThan); err != nil || removed != want {
		tb.Errorf("SweepTemporary = %d, %v, want %d", removed, err, want)
	}
}

func TestKillAtAnyMomentNeverTearsAnObject(t *testing.T) {
	t.Parallel()
	directory := filepath.Join(t.TempDir(), "store")
	store := openFileStoreIn(t, directory)
	for kill := range 10 {
		child := startChild(t, childPutForever, directory)
		for range kill%3 + 1 { // then it is somewhere within the next
			child.line(t)
		}
		child.kill(t)
		content := []byte(read(t, store, someKey))
		if len(content) != 1_000_000 || !bytes.Equal(content, generation(int(content[0]))) {
			t.Fatalf("after kill %d the object is torn: %d bytes", kill, len(content))
		}
	}
	must(t, filepath.WalkDir(directory, func(path string, item fs.DirEntry, err error) error {
		if err == nil && !item.IsDir() && !strings.HasSuffix(path, someKey) && !strings.HasPrefix(item.Name(), snapshot.TemporaryPrefix) {
			t.Errorf("%s is left", path)
		}
		return err
	}))
}
