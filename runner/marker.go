package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"berth/snapshot"
)

// MarkerSchema names the form of a marker.
const MarkerSchema = "berth.workspace-directory.v1"

// maxMarkerBytes is far more than a marker needs; whatever is larger is none.
const maxMarkerBytes = 64 << 10

// A marker is a file in a directory of its own, for the sake of the file beside
// it: by that git takes no notice of either, and `git add --all` in a workspace
// adds what the command made and no note of Berth's.
const (
	markerFile = "marker.json"
	ignoreFile = ".gitignore"
	ignoreAll  = "# Berth keeps its own note of this workspace here.\n*\n"

	// temporaryFile is what either is called until it is complete. Only the run
	// that holds the directory writes them, so one name is enough, and a leftover
	// is written over by the next one.
	temporaryFile = "next"
)

// Marker is the note that Berth leaves in a directory: whose files are in it,
// and whether a snapshot has them.
type Marker struct {
	Schema      string    `json:"schema"`
	WorkspaceID uuid.UUID `json:"workspaceId"`
	// SnapshotID is the snapshot that the files came from or were saved as; null
	// when there was none yet.
	SnapshotID *uuid.UUID `json:"snapshotId"`
	Epoch      int64      `json:"epoch"`
	RunID      uuid.UUID  `json:"runId"`
	// Unsaved is true from before the command starts until a save has committed
	// everything that it did.
	Unsaved bool `json:"unsaved"`
	// Fingerprint is what Fingerprint said when the files were those of the
	// snapshot; empty when nobody asked. By it a later run knows whether someone
	// else has changed them.
	Fingerprint string `json:"fingerprint,omitempty"`
}

// ReadMarker reads the marker of a directory. Without one the error is
// fs.ErrNotExist.
func ReadMarker(dir string) (Marker, error) {
	path := filepath.Join(dir, snapshot.MarkerName)
	// Neither through a link nor waiting for a fifo: the command that ran here
	// could have left anything under the names.
	if info, err := os.Lstat(path); err != nil {
		return Marker{}, fmt.Errorf("read the marker of %s: %w", dir, err)
	} else if !info.IsDir() {
		return Marker{}, fmt.Errorf("read the marker of %s: %s is not a directory", dir, path)
	}
	path = filepath.Join(path, markerFile)
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) { // which would mean that there is no marker
			return Marker{}, fmt.Errorf("read the marker of %s: %s is missing", dir, path)
		}
		return Marker{}, fmt.Errorf("read the marker of %s: %w", dir, err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return Marker{}, errors.Join(fmt.Errorf("read the marker of %s: %s is not a regular file", dir, path), err)
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxMarkerBytes+1))
	if err != nil {
		return Marker{}, fmt.Errorf("read the marker of %s: %w", dir, err)
	}
	var m Marker
	switch err := json.Unmarshal(raw, &m); {
	case len(raw) > maxMarkerBytes:
		return Marker{}, fmt.Errorf("read the marker of %s: %s is too large to be one", dir, path)
	case err != nil:
		return Marker{}, fmt.Errorf("read the marker of %s: %s is damaged: %w", dir, path, err)
	case m.Schema != MarkerSchema:
		return Marker{}, fmt.Errorf("read the marker of %s: its schema is %q and this program knows %q", dir, m.Schema, MarkerSchema)
	case m.WorkspaceID == uuid.Nil:
		return Marker{}, fmt.Errorf("read the marker of %s: %s names no workspace", dir, path)
	}
	return m, nil
}

// WriteMarker replaces the marker of a directory in one step: after a crash the
// old one is there or the new one, and the new one stays there after a power cut
// once the call has returned. Schema is filled in.
func WriteMarker(dir string, m Marker) error {
	m.Schema = MarkerSchema
	raw, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = placeMarker(dir, append(raw, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the marker of %s: %w", dir, err)
	}
	return nil
}

func placeMarker(dir string, content []byte) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if info, err := root.Lstat(snapshot.MarkerName); err != nil || !info.IsDir() {
		return placeFirstMarker(dir, root, content)
	}
	return replaceFile(filepath.Join(dir, snapshot.MarkerName), markerFile, content)
}

// placeFirstMarker makes the marker's directory under another name first, so that
// a crash leaves none without a marker in it.
func placeFirstMarker(dir string, root *os.Root, content []byte) error {
	const temporary = snapshot.TemporaryPrefix + "marker"
	for _, name := range []string{temporary, snapshot.MarkerName} { // whatever a command left there
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	if err := root.Mkdir(temporary, 0o755); err != nil {
		return err
	}
	err := replaceFile(filepath.Join(dir, temporary), ignoreFile, []byte(ignoreAll))
	if err == nil {
		err = replaceFile(filepath.Join(dir, temporary), markerFile, content)
	}
	if err == nil {
		err = root.Rename(temporary, snapshot.MarkerName)
	}
	if err != nil {
		return errors.Join(err, root.RemoveAll(temporary))
	}
	return syncDirectory(dir)
}

// replaceFile gives a file other content in one step.
func replaceFile(dir, name string, content []byte) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.RemoveAll(temporaryFile); err != nil {
		return err
	}
	file, err := root.OpenFile(temporaryFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(temporaryFile)
		}
	}()
	_, err = file.Write(content)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := root.Rename(temporaryFile, name); err != nil {
		return err
	}
	return syncDirectory(dir)
}

func syncDirectory(dir string) error {
	directory, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
