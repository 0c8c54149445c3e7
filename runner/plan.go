package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"berth/snapshot"
)

// Mode is what may be done with files that are in the directory already.
type Mode int

const (
	// ModeRefuse uses an empty directory, or one in which Berth's marker names
	// this workspace, its current snapshot and no unsaved work.
	ModeRefuse Mode = iota
	// ModeAdopt takes the files as the first content of a workspace that has
	// none saved.
	ModeAdopt
	// ModeReplace moves the directory aside.
	ModeReplace
)

// Expected is what the workspace should find in the directory.
type Expected struct {
	WorkspaceID uuid.UUID
	// SnapshotID is the current snapshot, nil when there is none.
	SnapshotID *uuid.UUID
	// Saved tells whether any run has saved files for the workspace yet. The
	// empty snapshot that a workspace begins with does not count.
	Saved bool
}

// Action is what has to be done before a command can run in the directory.
type Action int

const (
	// ActionRestore: it is empty. Restore the snapshot into it.
	ActionRestore Action = iota + 1
	// ActionKeep: it has the snapshot's files already, unchanged since.
	ActionKeep
	// ActionAdopt: its files are the workspace's first content; nothing has them
	// saved.
	ActionAdopt
	// ActionReplace: move it aside, then restore the snapshot.
	ActionReplace
)

// Plan is what Check found out, for Prepare to carry out.
type Plan struct {
	Action Action
	// Changed: the marker promised the snapshot's files, but somebody has
	// changed them since without a run. They are moved aside, not run on: they
	// are neither the snapshot nor work that anybody wants to have saved as such.
	Changed bool
}

// Check says what is to be done with the directory for the workspace, or refuses
// with a *DirError. It changes nothing.
func (d *Dir) Check(ctx context.Context, want Expected, mode Mode) (Plan, error) {
	empty, err := d.empty()
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Action: ActionRestore}
	if !empty {
		if plan, err = d.checkFiles(ctx, want, mode); err != nil {
			return Plan{}, err
		}
	}
	switch plan.Action {
	case ActionReplace:
		if err := d.refusePrecious(); err != nil {
			return Plan{}, err
		}
		fallthrough
	case ActionRestore:
		// A restore grows beside the directory and takes its name.
		if err := d.refuseReadOnly(filepath.Dir(d.path)); err != nil {
			return Plan{}, err
		}
	}
	return plan, nil
}

// checkFiles is Check for a directory with files in it.
func (d *Dir) checkFiles(ctx context.Context, want Expected, mode Mode) (Plan, error) {
	if mode == ModeReplace {
		return Plan{Action: ActionReplace}, nil
	}
	refuse := func(wayOut, reason string, args ...any) (Plan, error) {
		return Plan{}, &DirError{Dir: d.path, Reason: fmt.Sprintf(reason, args...), WayOut: wayOut}
	}
	const orReplace = "name another directory, or move it aside with --replace"

	marker, err := ReadMarker(d.path)
	unmarked := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !unmarked:
		return Plan{}, &DirError{Dir: d.path, Reason: "it is not clear whose files it has", WayOut: orReplace, Err: err}
	case !unmarked && marker.WorkspaceID != want.WorkspaceID:
		return refuse(orReplace, "it has files of workspace %s", marker.WorkspaceID)
	case mode == ModeAdopt && want.Saved:
		return refuse("leave --adopt out", "--adopt takes files as the first content of a workspace, and this one has files saved")
	case mode == ModeAdopt:
		return d.checkAdoption()
	case unmarked && !want.Saved:
		return refuse("name another directory, take them as the workspace's first content with --adopt, or move them aside with --replace",
			"it has files that Berth did not put there")
	case unmarked:
		return refuse(orReplace, "it has files that Berth did not put there")
	case marker.Unsaved:
		return refuse(fmt.Sprintf("save it with that run's token and berth save --dir %s, or move it aside with --replace", shellQuote(d.path)),
			"it has work of run %s (epoch %d) that was not saved", marker.RunID, marker.Epoch)
	case !sameSnapshot(marker.SnapshotID, want.SnapshotID):
		return refuse(orReplace, "its files are not of the workspace's current snapshot")
	}
	now, err := Fingerprint(ctx, d.path)
	if err != nil {
		return Plan{}, err
	}
	if marker.Fingerprint == "" || now != marker.Fingerprint {
		return Plan{Action: ActionReplace, Changed: true}, nil
	}
	return Plan{Action: ActionKeep}, nil
}

// checkAdoption refuses files that are already somebody's further down.
func (d *Dir) checkAdoption() (Plan, error) {
	err := filepath.WalkDir(d.path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return &DirError{Dir: d.path, Reason: path + " cannot be read", WayOut: "see to its permissions", Err: err}
		}
		if inside := filepath.Dir(path); entry.Name() == snapshot.MarkerName && inside != d.path {
			return &DirError{Dir: d.path, Reason: fmt.Sprintf("%s in it holds the files of a workspace", inside), WayOut: "move that away before you use --adopt"}
		}
		return nil
	})
	if err != nil {
		return Plan{}, err
	}
	return Plan{Action: ActionAdopt}, nil
}

// Prepare carries a plan out as far as the directory goes: afterwards it is empty
// and locked for ActionRestore and ActionReplace, and as it was for the others.
// aside is where the old directory is now, when it was moved. Files are never
// deleted.
func (d *Dir) Prepare(plan Plan) (aside string, err error) {
	switch plan.Action {
	case ActionRestore:
		return "", d.clearMarker()
	case ActionReplace:
		return d.moveAside()
	default:
		return "", nil
	}
}

// empty tells whether nothing but Berth's own note is in the directory.
func (d *Dir) empty() (bool, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return false, fmt.Errorf("look into %s: %w", d.path, err)
	}
	for _, entry := range entries {
		if entry.Name() != snapshot.MarkerName {
			return false, nil
		}
	}
	// A workspace's files may have been none, or have all been deleted; whether
	// that was saved is for the marker to say.
	if marker, err := ReadMarker(d.path); err == nil && marker.Unsaved {
		return false, nil
	}
	return true, nil
}

// clearMarker makes a directory that has only Berth's note in it really empty.
func (d *Dir) clearMarker() error {
	if err := os.RemoveAll(filepath.Join(d.path, snapshot.MarkerName)); err != nil {
		return fmt.Errorf("clear %s: %w", d.path, err)
	}
	return nil
}

// moveAside gives the directory another name beside its own and puts an empty
// one in its place.
func (d *Dir) moveAside() (aside string, err error) {
	info, err := os.Lstat(d.path)
	if err != nil {
		return "", fmt.Errorf("move %s aside: %w", d.path, err)
	}
	base := d.path + ".berth-" + time.Now().UTC().Format("20060102T150405Z")
	aside = base
	for n := 2; ; n++ {
		// Rename would replace an empty directory of that name.
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			break
		}
		aside = fmt.Sprintf("%s-%d", base, n)
	}
	if err := os.Rename(d.path, aside); err != nil {
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EXDEV) {
			return "", &DirError{Dir: d.path, Reason: "it is a mount point, which cannot be moved aside", WayOut: "name a directory below it", Err: err}
		}
		return "", fmt.Errorf("move %s aside: %w", d.path, err)
	}
	if err := os.Mkdir(d.path, info.Mode().Perm()); err != nil {
		return aside, fmt.Errorf("make %s anew (its files are in %s): %w", d.path, aside, err)
	}
	d.created = true
	if err := d.Relock(); err != nil {
		return aside, err
	}
	return aside, syncDirectory(filepath.Dir(d.path))
}

// refusePrecious keeps a slip of the keyboard from moving a home directory.
func (d *Dir) refusePrecious() error {
	home, err := os.UserHomeDir()
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if err != nil {
		return nil //nolint:nilerr // without a home there is none to protect
	}
	for ; ; home = filepath.Dir(home) {
		if home == d.path {
			return &DirError{Dir: d.path, Reason: "it is, or contains, your home directory, which is not moved aside", WayOut: "name another directory"}
		}
		if home == filepath.Dir(home) {
			return nil
		}
	}
}

func sameSnapshot(a, b *uuid.UUID) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
