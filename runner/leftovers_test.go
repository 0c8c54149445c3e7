package runner

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/snapshot"
)

func TestOnlyOldLeftoversOfBerthsAreRemoved(t *testing.T) {
	t.Parallel()
	beside, tokens := t.TempDir(), t.TempDir()
	old := time.Now().Add(-26 * time.Hour)
	make := func(path string, age time.Time) string {
		t.Helper()
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(path, "token")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{file, path} {
			if err := os.Chtimes(name, age, age); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	gone := []string{
		make(filepath.Join(beside, snapshot.TemporaryPrefix+"restore-a"), old),
		make(filepath.Join(tokens, tokenDirPrefix+"a"), old),
	}
	kept := []string{
		make(filepath.Join(beside, snapshot.TemporaryPrefix+"restore-b"), time.Now()),
		make(filepath.Join(beside, "files"), old),
		make(filepath.Join(tokens, tokenDirPrefix+"b"), time.Now()),
		make(filepath.Join(tokens, "other"), old),
	}
	renewed := make(filepath.Join(tokens, tokenDirPrefix+"c"), old)
	if err := os.Chtimes(filepath.Join(renewed, "token"), time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	removeLeftovers(beside, tokens)
	for _, path := range gone {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	for _, path := range append(kept, renewed) {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s is gone: %v", path, err)
		}
	}
	removeLeftovers(filepath.Join(beside, "nowhere"), "")
}
