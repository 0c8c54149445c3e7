package dbtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"berth/db/postgres"
)

// memory is a file system in memory, on Linux. Creating and dropping databases
// is several times as fast there.
const memory = "/dev/shm"

// enoughMemory is what has to be free there, in bytes, for the servers of a few
// test programs at once.
const enoughMemory = 2 << 30

// newFolder is an empty folder for this program's server. It is removed when
// this program is gone.
func newFolder() (string, error) {
	base, err := chooseBase()
	if err != nil {
		return "", err
	}
	dir, err := claimFolder(base)
	if err != nil {
		return "", err
	}
	return dir, removeAtExit(dir)
}

// chooseBase is the first place that the server can live in: as root it runs as
// another user, who has to be able to get there.
func chooseBase() (string, error) {
	bases := []string{os.TempDir(), "/tmp", "/var/tmp"}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err == nil && fs.Bavail*uint64(fs.Bsize) > enoughMemory { //nolint:gosec // a block size is positive
		bases = append([]string{memory}, bases...)
	}
	var why error
	for _, base := range bases {
		err := postgres.CheckDir(filepath.Join(base, "any"))
		if err == nil {
			var probe *os.File
			if probe, err = os.CreateTemp(base, "berth-dbtest-probe-*"); err == nil {
				return base, errors.Join(probe.Close(), os.Remove(probe.Name()))
			}
		}
		why = errors.Join(why, err)
	}
	return "", fmt.Errorf("no place for a test server: %w", why)
}

// claimFolder makes a folder in base and locks it, and removes those that
// programs which ended have left: their locks are free. All of it happens under
// a lock of its own, so that a folder that is not locked yet is not taken for
// one that is not locked any more.
func claimFolder(base string) (string, error) {
	prefix := filepath.Join(base, fmt.Sprintf("berth-dbtest-%d", os.Geteuid()))
	whole, err := lockFile(prefix+".lock", syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer whole.Close() //nolint:errcheck // gives the lock back
	left, err := filepath.Glob(prefix + "-*")
	if err != nil {
		return "", err
	}
	for _, dir := range left {
		lock, err := lockFile(filepath.Join(dir, "lock"), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			continue // in use
		}
		// What cannot be removed now is left for the next program.
		_ = os.RemoveAll(dir)
		_ = lock.Close()
	}
	dir, err := os.MkdirTemp(base, filepath.Base(prefix)+"-*")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", err
	}
	lock, err := lockFile(filepath.Join(dir, "lock"), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		return "", err
	}
	hold(lock)
	return dir, nil
}

// lockFile locks a file, which it makes if need be, for as long as the result
// is open.
func lockFile(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), how)
		if !errors.Is(err, syscall.EINTR) { // the runtime interrupts long waits
			break
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return file, nil
}

// removeAtExit has a shell remove the folder when this program is gone, however
// it ends: Go has no hook for that which tests need not know of. The shell
// waits at a pipe whose other end only this program holds. It tries for ten
// seconds, since the server takes a moment to go.
func removeAtExit(dir string) error {
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	const script = `trap "" HUP INT TERM; read -r _
n=0; until rm -rf "$1" || [ $n -ge 100 ]; do n=$((n+1)); sleep 0.1; done`
	shell := exec.Command("/bin/sh", "-c", script, "sh", dir)
	shell.Dir, shell.Stdin = "/", reader
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := shell.Start(); err != nil {
		return errors.Join(err, reader.Close(), writer.Close())
	}
	hold(writer)
	return errors.Join(reader.Close(), shell.Process.Release())
}

// held are the files that stay open until this program ends: the collector
// closes a file that nothing refers to.
var held struct {
	sync.Mutex
	files []*os.File
}

func hold(file *os.File) {
	held.Lock()
	defer held.Unlock()
	held.files = append(held.files, file)
}
