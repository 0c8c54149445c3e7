package snapshot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Put implements Store: a temporary file in the same directory, flushed, renamed over the key, and the directories flushed.
func (s *FileStore) Put(ctx context.Context, key string, content io.Reader, want Digest) error {
	if err := want.Validate(); err != nil {
		return fmt.Errorf("put %q: %w", key, err)
	}
	root, err := s.openFor(ctx, key)
	if err != nil {
		return err
	}
	defer root.Close()
	err = placeFile(root, key, func(file *os.File) error {
		return copyDigest(ctx, key, file, content, want)
	}, root.Rename)
	if err != nil {
		return fmt.Errorf("put %q: %w", key, storeError(err))
	}
	return syncUpwards(root, path.Dir(key))
}

// placeFile lets fill write a temporary file beside name, flushes it and lets place give it its name. When anything
// fails the temporary file is gone, and so are directories that were made for it.
func placeFile(root *os.Root, name string, fill func(*os.File) error, place func(temporary, name string) error) (err error) {
	directory := path.Dir(name)
	file, temporary, err := createTemporary(root, directory)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			root.Remove(temporary) //nolint:errcheck // the first error counts; SweepTemporary removes what stays
			removeEmpty(root, directory)
		}
	}()
	if err = fill(file); err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return place(temporary, name)
}

// maxTries bounds how often a Delete may get in the way of one Put.
const maxTries = 100

// createTemporary makes the directory and a new file in it. A Delete may remove the directory as empty before the file is
// in it, or between two looks that MkdirAll takes at it, which then says "file exists" of nothing; then it starts again.
func createTemporary(root *os.Root, directory string) (*os.File, string, error) {
	temporary := path.Join(directory, TemporaryPrefix+rand.Text())
	for tries := 1; ; tries++ {
		var file *os.File
		err := root.MkdirAll(directory, 0o700)
		if err == nil {
			file, err = root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		}
		raced := errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist)
		if !raced || tries == maxTries {
			return file, temporary, err
		}
	}
}

// storeMarkerName begins with a dot, so no key can be the same.
const storeMarkerName = ".berth-store"

const maxMarkerBytes = 256

// Marker implements Store.
func (s *FileStore) Marker(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	root, err := s.open()
	if err != nil {
		return "", err
	}
	defer root.Close()
	return readMarker(root)
}

func readMarker(root *os.Root) (string, error) {
	text, err := root.ReadFile(storeMarkerName)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w (%s)", ErrNoMarker, root.Name())
	}
	if err != nil {
		return "", fmt.Errorf("read the marker of the snapshot store: %w", err)
	}
	return parseMarker(text, root.Name())
}

// parseMarker reads the content of a marker of the store that has the given name.
func parseMarker(text []byte, store string) (string, error) {
	id := strings.TrimSuffix(string(text), "\n")
	if err := checkMarker(id); err != nil {
		return "", fmt.Errorf("the marker of the snapshot store %s is damaged: %w", store, err)
	}
	return id, nil
}

func checkMarker(id string) error {
	if id == "" || len(id) > maxMarkerBytes || strings.ContainsAny(id, "\n\x00") {
		return fmt.Errorf("marker %q is not one line of 1 to %d bytes", id, maxMarkerBytes)
	}
	return nil
}

// WriteMarker implements Store. The finished file gets its name by a hard link, which fails when the name exists: of two
// installations that mark one store at once, one learns that it came second.
func (s *FileStore) WriteMarker(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkMarker(id); err != nil {
		return err
	}
	root, err := s.open()
	if err != nil {
		return err
	}
	defer root.Close()
	err = placeFile(root, storeMarkerName, func(file *os.File) error {
		_, err := file.WriteString(id + "\n")
		return err
	}, func(temporary, name string) error {
		return errors.Join(root.Link(temporary, name), root.Remove(temporary))
	})
	if errors.Is(err, fs.ErrExist) {
		err = sameMarker(root, id)
	}
	if err != nil {
		return fmt.Errorf("mark the snapshot store: %w", storeError(err))
	}
	return syncUpwards(root, ".")
}

func sameMarker(root *os.Root, id string) error {
	present, err := readMarker(root)
	if err != nil {
		return err
	}
	return compareMarkers(present, id)
}

func compareMarkers(present, id string) error {
	if present != id {
		return fmt.Errorf("%w: %q, not %q; point %s at the right store", ErrOtherMarker, present, id, StoreVariable)
	}
	return nil
}
