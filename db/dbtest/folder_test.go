package dbtest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestFoldersThatCrashedProgramsLeftAreRemoved(t *testing.T) {
	base := t.TempDir()
	crashed, err := claimFolder(base)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(crashed, "pg", "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range held.files { // what the system does when a program crashes
		if filepath.Dir(file.Name()) == crashed {
			_ = file.Close()
		}
	}
	inUse, err := claimFolder(base)
	if err != nil {
		t.Fatal(err)
	}
	third, err := claimFolder(base)
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{crashed: false, inUse: true, third: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: there %v, want %v", dir, err == nil, want)
		}
	}
	if _, err := lockFile(filepath.Join(inUse, "lock"), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		t.Error("the lock of a folder in use can be had")
	}
}
