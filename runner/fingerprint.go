package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"berth/snapshot"
)

// Fingerprint sums up what the file system says of every file in a directory:
// name, type and mode, size, inode, and the times of the last change of content
// and of inode. It reads no content, so it costs little; and since no program
// can set the last of these times, equal fingerprints mean that nothing was
// written meanwhile, deleted or put back. The directory's own times and its
// marker do not count.
//
// Take it while nothing writes, and before the save that it is to stand for.
func Fingerprint(ctx context.Context, dir string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		switch {
		case err != nil || name == ".":
			return err
		case name == snapshot.MarkerName && entry.IsDir():
			return fs.SkipDir
		case name == snapshot.MarkerName:
			return nil
		}
		var s unix.Stat_t
		if err := unix.Lstat(path, &s); err != nil {
			return &fs.PathError{Op: "lstat", Path: path, Err: err}
		}
		_, err = fmt.Fprintf(sum, "%q %d %o %d %d %d\n", name, s.Ino, s.Mode, s.Size, s.Mtim.Nano(), s.Ctim.Nano())
		return err
	})
	if err != nil {
		return "", fmt.Errorf("take the fingerprint of %s: %w", dir, err)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}
