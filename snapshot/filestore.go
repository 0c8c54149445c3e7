package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// FileStore is a Store in a directory, which may be shared between machines if it has atomic renames and hard links.
// Directories are made with mode 0700 and files with 0600: the archives hold whatever an agent's work holds.
//
// The directory is opened anew for each call. A store that was unmounted under a running server thus shows as an error, or
// as a missing marker, and is never quietly continued somewhere else.
type FileStore struct {
	directory string
}

var _ Store = (*FileStore)(nil)

// OpenFileStore opens the store in the directory, an absolute path, and makes it when it is missing.
func OpenFileStore(directory string) (*FileStore, error) {
	directory = filepath.Clean(directory)
	if err := makeDirectory(directory); err != nil {
		return nil, fmt.Errorf("open the snapshot store %q: %w", directory, storeError(err))
	}
	s := &FileStore{directory: directory}
	root, err := s.open()
	if err != nil {
		return nil, err
	}
	return s, root.Close()
}

// makeDirectory is os.MkdirAll that lasts: each directory it makes is flushed into the one above.
func makeDirectory(directory string) error {
	if info, err := os.Stat(directory); err == nil {
		if !info.IsDir() {
			return errors.New("it is not a directory")
		}
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(directory)
	if err := makeDirectory(parent); err != nil {
		return err
	}
	if err := os.Mkdir(directory, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDirectory(parent)
}

func (s *FileStore) open() (*os.Root, error) {
	root, err := os.OpenRoot(s.directory)
	if err != nil {
		return nil, fmt.Errorf("open the snapshot store: %w", err)
	}
	return root, nil
}

// Open implements Store.
func (s *FileStore) Open(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	root, err := s.openFor(ctx, key)
	if err != nil {
		return nil, 0, err
	}
	defer root.Close()
	file, err := root.Open(key)
	if err != nil {
		return nil, 0, keyError("open", key, err)
	}
	size, err := fileSize(file.Stat())
	if err != nil {
		return nil, 0, errors.Join(keyError("open", key, err), file.Close())
	}
	return file, size, nil
}

// Stat implements Store.
func (s *FileStore) Stat(ctx context.Context, key string) (int64, error) {
	root, err := s.openFor(ctx, key)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	size, err := fileSize(root.Stat(key))
	if err != nil {
		return 0, keyError("look up", key, err)
	}
	return size, nil
}

// fileSize turns what is not a file into "not found": a directory of the store is no object.
func fileSize(info fs.FileInfo, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fs.ErrNotExist
	}
	return info.Size(), nil
}

// Delete implements Store. Directories that become empty go too: each epoch has one, and they would pile up.
func (s *FileStore) Delete(ctx context.Context, key string) error {
	root, err := s.openFor(ctx, key)
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := fileSize(root.Lstat(key)); isMissing(err) {
		return nil
	} else if err != nil {
		return keyError("delete", key, err)
	}
	if err := root.Remove(key); err != nil && !isMissing(err) {
		return keyError("delete", key, err)
	}
	return syncUpwards(root, removeEmpty(root, path.Dir(key)))
}

// SweepTemporary implements Store.
func (s *FileStore) SweepTemporary(ctx context.Context, olderThan time.Duration) (int, error) {
	root, err := s.open()
	if err != nil {
		return 0, err
	}
	defer root.Close()
	limit, removed := time.Now().Add(-olderThan), 0
	err = fs.WalkDir(root.FS(), ".", func(name string, item fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isMissing(err):
			return nil // deleted while we walk
		case err != nil:
			return err
		case item.IsDir() || !strings.HasPrefix(path.Base(name), TemporaryPrefix):
			return nil
		}
		info, err := item.Info()
		if isMissing(err) || err == nil && info.ModTime().After(limit) {
			return nil
		}
		if err == nil {
			err = root.Remove(name)
		}
		if err != nil {
			return err
		}
		removed++
		removeEmpty(root, path.Dir(name))
		return nil
	})
	if err != nil {
		return removed, fmt.Errorf("sweep the snapshot store: %w", err)
	}
	return removed, nil
}

func (s *FileStore) openFor(ctx context.Context, key string) (*os.Root, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return s.open()
}

// removeEmpty removes the directory and those above it as far as they are empty, and returns the first that is left.
func removeEmpty(root *os.Root, directory string) string {
	for directory != "." && root.Remove(directory) == nil {
		directory = path.Dir(directory)
	}
	return directory
}

// syncUpwards flushes the directory and all above it. Those that exist already are flushed too: another Put may have made
// them a moment ago, and its flush may still be to come. One that was removed meanwhile needs none.
func syncUpwards(root *os.Root, directory string) error {
	for {
		opened, err := root.Open(directory)
		if err == nil {
			err = errors.Join(opened.Sync(), opened.Close())
		}
		if err != nil && !isMissing(err) {
			return fmt.Errorf("flush directory %q of the snapshot store: %w", directory, storeError(err))
		}
		if directory == "." {
			return nil
		}
		directory = path.Dir(directory)
	}
}

// isMissing also takes a key below another key for missing.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

func keyError(verb, key string, err error) error {
	if isMissing(err) {
		return fmt.Errorf("%w: %s", ErrNotFound, key)
	}
	return fmt.Errorf("%s %q in the snapshot store: %w", verb, key, storeError(err))
}

// storeError makes a full disk or an exhausted quota recognisable.
func storeError(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrStoreFull, err)
	}
	return err
}
