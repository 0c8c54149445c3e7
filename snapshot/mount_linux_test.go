package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/snapshot"
)

// Roles that mount a file system of their own, in a mount namespace that ends with the child.
const (
	childRestoreOntoMount = "restore onto a mount point"
	childFillStore        = "fill a store"
	childRestoreFull      = "restore onto a full disk"
)

func init() {
	childRoles[childRestoreOntoMount] = restoreOntoMount
	childRoles[childFillStore] = fillStore
	childRoles[childRestoreFull] = restoreFull
}

// mountChild runs a role with a directory in which it may mount, or skips the test where the system does not allow it.
func mountChild(t *testing.T, role string) string {
	t.Helper()
	attributes := &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		attributes = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
	}
	child, err := tryChild(t, role, attributes, t.TempDir())
	if err != nil {
		t.Skipf("no mount namespace for a child process: %v", err)
	}
	result := child.result(t)
	if reason, skip := strings.CutPrefix(result, "skip: "); skip {
		t.Skip(reason)
	}
	return result
}

func mountSmall(directory string) error {
	return errors.Join(os.Mkdir(directory, 0o700), syscall.Mount("tmpfs", directory, "tmpfs", 0, "size=256k"))
}

func restoreOntoMount(args []string) (string, error) {
	target := filepath.Join(args[0], "target")
	if err := mountSmall(target); err != nil {
		return fmt.Sprintf("skip: cannot mount: %v", err), nil
	}
	archive, summary := snapshot.Empty()
	path := filepath.Join(args[0], "archive")
	if err := os.WriteFile(path, archive, 0o600); err != nil {
		return "", err
	}
	_, err := snapshot.Restore(context.Background(), path, target, summary.Digest(), snapshot.Limits{})
	return report(err, args[0])
}

// report prints an error and what the directory contains after it.
func report(err error, directory string) (string, error) {
	items, readErr := os.ReadDir(directory)
	names := []string{}
	for _, item := range items {
		names = append(names, item.Name())
	}
	return fmt.Sprintf("%v; %v", err, names), readErr
}

func TestRestoreNamesAMountPointAsTheProblem(t *testing.T) {
	t.Parallel()
	result := mountChild(t, childRestoreOntoMount)
	if !strings.Contains(result, "is a mount point") || !strings.HasSuffix(result, "; [archive target]") {
		t.Errorf("the restore said %q", result)
	}
}

func restoreFull(args []string) (string, error) {
	small := filepath.Join(args[0], "small")
	if err := mountSmall(small); err != nil {
		return fmt.Sprintf("skip: cannot mount: %v", err), nil
	}
	tree := filepath.Join(args[0], "tree")
	path := filepath.Join(args[0], "archive")
	err := errors.Join(os.Mkdir(tree, 0o700), os.WriteFile(filepath.Join(tree, "large"), make([]byte, 1<<20), 0o600))
	var archive bytes.Buffer
	summary, packErr := snapshot.Pack(context.Background(), tree, &archive, snapshot.PackOptions{})
	if err := errors.Join(err, packErr, os.WriteFile(path, archive.Bytes(), 0o600)); err != nil {
		return "", err
	}
	_, err = snapshot.Restore(context.Background(), path, filepath.Join(small, "target"), summary.Digest(), snapshot.Limits{})
	if errors.Is(err, snapshot.ErrInvalidArchive) {
		return "the archive was blamed", nil
	}
	return report(err, small)
}

func TestRestoreToAFullDiskFailsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	result := mountChild(t, childRestoreFull)
	if !strings.Contains(result, "no space left on device") || !strings.HasSuffix(result, "; []") {
		t.Errorf("the restore said %q", result)
	}
}

func fillStore(args []string) (string, error) {
	directory := filepath.Join(args[0], "store")
	if err := mountSmall(directory); err != nil {
		return fmt.Sprintf("skip: cannot mount: %v", err), nil
	}
	store, err := snapshot.OpenStore("file://"+directory, os.Getenv)
	if err != nil {
		return "", err
	}
	ctx, content := context.Background(), make([]byte, 1<<20)
	small := content[:1<<10]
	err = store.Put(ctx, "a/large", bytes.NewReader(content), digestOf(content))
	if !errors.Is(err, snapshot.ErrStoreFull) {
		return fmt.Sprintf("the large object: %v", err), nil
	}
	// The room of the failed object is free again, without any sweep.
	if err := store.Put(ctx, "small", bytes.NewReader(small), digestOf(small)); err != nil {
		return fmt.Sprintf("the small object: %v", err), nil
	}
	return report(nil, directory)
}

func TestPutIntoAFullStoreSaysSoAndLeavesNothing(t *testing.T) {
	t.Parallel()
	if result := mountChild(t, childFillStore); result != "<nil>; [small]" {
		t.Errorf("the child said %q", result)
	}
}
