package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"berth/snapshot"
)

// DirError says why a directory is not used, and what to do about it. Nothing
// was changed.
type DirError struct {
	Dir    string
	Reason string // what is the matter with it
	WayOut string // what to do
	Err    error  // what the system said, when it said something
}

func (e *DirError) Error() string {
	text := fmt.Sprintf("cannot use %s: %s", e.Dir, e.Reason)
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return text + ": " + e.WayOut
}

func (e *DirError) Unwrap() error { return e.Err }

// Dir is a directory that this process holds for one run; no other run on this
// host gets it until Close, or the end of the process.
type Dir struct {
	path    string // absolute, and no component of it is a link
	lock    *os.File
	created bool
}

// LockDir takes a directory for a run, and makes it when it is not there. It
// refuses with a *DirError what no run can work in: a link, a file, a directory
// that cannot be written, one inside a directory that is marked itself, and one
// that another run on this host holds.
//
// The lock is on the directory itself. File systems without such locks (some
// network ones) go without; the marker still tells a second run of the first.
func LockDir(dir string) (*Dir, error) {
	path, err := realPath(dir)
	if err != nil {
		return nil, err
	}
	d := &Dir{path: path}
	if err := d.refuseNested(); err != nil {
		return nil, err
	}
	if err := d.ensure(); err != nil {
		return nil, err
	}
	if err := d.acquire(); err != nil {
		return nil, err
	}
	if err := d.refuseReadOnly(d.path); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Path is the absolute path of the directory.
func (d *Dir) Path() string { return d.path }

// Close gives the directory up. One that LockDir made and that is still empty is
// removed.
func (d *Dir) Close() error {
	if d.created {
		_ = os.Remove(d.path) // fails, as it should, when something is in it
	}
	return d.lock.Close()
}

// Relock moves the lock to the directory that has the name now. It is due after
// each call that puts another directory there, as snapshot.Restore does.
func (d *Dir) Relock() error {
	old := d.lock
	if err := d.acquire(); err != nil {
		d.lock = old
		return err
	}
	return old.Close()
}

// realPath resolves everything but the last component, which must not be a link:
// a link could be turned to other files between a check and a save.
func realPath(dir string) (string, error) {
	if dir == "" {
		return "", &DirError{Dir: `""`, Reason: "no directory is named", WayOut: "name one with --dir"}
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("resolve %s: %w", dir, err)
	}
	if base := filepath.Base(filepath.Clean(dir)); base == "." || base == ".." {
		// The name says a place, not a link, whatever path the shell has for it.
		if absolute, err = filepath.EvalSymlinks(absolute); err != nil {
			return "", fmt.Errorf("resolve %s: %w", dir, err)
		}
	}
	if absolute == "/" {
		return "", &DirError{Dir: absolute, Reason: "it is the root of the file system", WayOut: "name a directory below it"}
	}
	parent, err := resolveExisting(filepath.Dir(absolute))
	if err != nil {
		return "", &DirError{Dir: absolute, Reason: "its path cannot be followed", WayOut: "name a directory somewhere else", Err: err}
	}
	return filepath.Join(parent, filepath.Base(absolute)), nil
}

// resolveExisting follows the links in the part of a path that is there already.
func resolveExisting(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) || path == "/" {
		return resolved, err
	}
	above, err := resolveExisting(filepath.Dir(path))
	return filepath.Join(above, filepath.Base(path)), err
}

// ensure makes the directory with its parents, or looks at what is there.
func (d *Dir) ensure() error {
	cannot := func(err error) error {
		return &DirError{Dir: d.path, Reason: "it cannot be made", WayOut: "name a directory somewhere else", Err: err}
	}
	if err := os.MkdirAll(filepath.Dir(d.path), 0o777); err != nil {
		return cannot(err)
	}
	err := os.Mkdir(d.path, 0o777)
	if err == nil {
		d.created = true
		return nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return cannot(err)
	}
	info, err := os.Lstat(d.path)
	switch {
	case err != nil:
		return fmt.Errorf("look at %s: %w", d.path, err)
	case info.Mode()&fs.ModeSymlink != 0:
		return &DirError{Dir: d.path, Reason: "it is a symbolic link", WayOut: "name the directory that it leads to"}
	case !info.IsDir():
		return &DirError{Dir: d.path, Reason: "it is not a directory", WayOut: "name a directory, or one that does not exist yet"}
	}
	return nil
}

// acquire opens and locks what has the name.
func (d *Dir) acquire() error {
	lock, err := os.OpenFile(d.path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return &DirError{Dir: d.path, Reason: "it cannot be read", WayOut: "see to its permissions, or name another directory", Err: err}
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		_ = lock.Close()
		e := &DirError{Dir: d.path, Reason: "another berth run on this host is using it", WayOut: "wait for its end, or name another directory"}
		if m, err := ReadMarker(d.path); err == nil {
			e.Reason = fmt.Sprintf("another berth run on this host (run %s) is using it", m.RunID)
		}
		return e
	}
	// Any other error: the file system has no locks. See LockDir.

	// It may have been moved aside between the open and the lock.
	opened, openErr := lock.Stat()
	named, namedErr := os.Lstat(d.path)
	if openErr != nil || namedErr != nil || !os.SameFile(opened, named) {
		_ = lock.Close()
		return &DirError{Dir: d.path, Reason: "another berth run on this host has just replaced it", WayOut: "try again", Err: errors.Join(openErr, namedErr)}
	}
	d.lock = lock
	return nil
}

// refuseNested refuses a place inside somebody's workspace: its files would be
// saved with that one.
func (d *Dir) refuseNested() error {
	for above := filepath.Dir(d.path); ; above = filepath.Dir(above) {
		if _, err := os.Lstat(filepath.Join(above, snapshot.MarkerName)); err == nil {
			return &DirError{Dir: d.path, Reason: fmt.Sprintf("it is inside %s, which holds the files of a workspace", above), WayOut: "name a directory outside of it"}
		}
		if above == filepath.Dir(above) {
			return nil
		}
	}
}

// refuseReadOnly asks the system, which knows of read-only mounts too.
func (d *Dir) refuseReadOnly(path string) error {
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return &DirError{Dir: d.path, Reason: path + " cannot be written", WayOut: "see to its permissions, or name another directory", Err: err}
	}
	return nil
}
