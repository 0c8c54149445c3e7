package snapshot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// Restore unpacks the archive at archivePath, which must have the digest want, so that its files become the directory
// target. target must not exist, or be an empty directory (which then gives its permissions); what was there before is the
// caller's to move aside. Its parent must exist.
//
// The whole file is hashed before anything is unpacked. The tree grows under a temporary name beside target, is flushed to
// disk, and takes its name in one step: target is either what it was or complete. On an error nothing is left beside it.
//
// An archive is input, whoever made it. Refused with an ArchiveError, in no case after anything was written outside the
// temporary directory: absolute paths, "..", members behind a link, links that could leave the root, hard links, devices,
// paths that come twice or out of order, a manifest that is missing, disagrees or is followed by more. Beyond limits it is
// a LimitError; bytes that do not have the digest are a MismatchError.
func Restore(ctx context.Context, archivePath, target string, want Digest, limits Limits) (Summary, error) {
	if err := want.Validate(); err != nil {
		return Summary{}, fmt.Errorf("restore %q: %w", archivePath, err)
	}
	archive, err := os.Open(archivePath)
	if err != nil {
		return Summary{}, fmt.Errorf("open the archive to restore: %w", err)
	}
	defer archive.Close()
	if err := copyDigest(ctx, archivePath, io.Discard, archive, want); err != nil {
		return Summary{}, fmt.Errorf("check the archive to restore: %w", err)
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return Summary{}, fmt.Errorf("rewind the archive to restore: %w", err)
	}
	summary, err := restoreTree(ctx, archive, filepath.Clean(target), limits.orDefault())
	if err != nil {
		return Summary{}, fmt.Errorf("restore %q to %q: %w", archivePath, target, err)
	}
	summary.Size, summary.SHA256 = want.Size, want.SHA256
	return summary, nil
}

func restoreTree(ctx context.Context, archive io.Reader, target string, limits Limits) (summary Summary, err error) {
	mode, exists, err := emptyTarget(target)
	if err != nil {
		return Summary{}, err
	}
	parent := filepath.Dir(target)
	staging := filepath.Join(parent, TemporaryPrefix+"restore-"+rand.Text())
	// 0777 less the process's umask, as any other program makes a directory; what is inside gets its mode from the archive.
	if err := os.Mkdir(staging, 0o777); err != nil {
		return Summary{}, fmt.Errorf("make a directory beside the target: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeTree(staging))
		}
	}()
	if summary, err = unpackInto(ctx, archive, staging, limits); err != nil {
		return Summary{}, err
	}
	if exists {
		if err := os.Chmod(staging, mode); err != nil {
			return Summary{}, fmt.Errorf("give the target its permissions: %w", err)
		}
	}
	if err := publish(staging, target); err != nil {
		return Summary{}, err
	}
	// The tree has its name now. Should this fail the files stay: they are complete, only a power cut could hide them.
	if syncErr := syncDirectory(parent); syncErr != nil {
		return Summary{}, fmt.Errorf("flush the directory of the target: %w", syncErr)
	}
	return summary, nil
}

// emptyTarget says whether the target exists as an empty directory, and its permissions; anything else but nothing is refused.
func emptyTarget(target string) (mode fs.FileMode, exists bool, err error) {
	info, err := os.Lstat(target)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("look at the target: %w", err)
	}
	if !info.IsDir() {
		return 0, false, fmt.Errorf("%w: it is a %s", ErrTargetInUse, kindOf(info.Mode()))
	}
	directory, err := os.Open(target)
	if err != nil {
		return 0, false, fmt.Errorf("look into the target: %w", err)
	}
	defer directory.Close()
	if names, err := directory.Readdirnames(1); len(names) > 0 {
		return 0, false, fmt.Errorf("%w: it contains %q", ErrTargetInUse, names[0])
	} else if !errors.Is(err, io.EOF) {
		return 0, false, fmt.Errorf("look into the target: %w", err)
	}
	return info.Mode().Perm(), true, nil
}

// publish gives the finished tree its name. The system call replaces an empty directory and refuses everything else, so
// whatever appeared at the target meanwhile is safe; os.Rename would refuse the empty directory too.
func publish(staging, target string) error {
	err := unix.Rename(staging, target)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EXDEV):
		return fmt.Errorf("the target is a mount point, which cannot be replaced: name a directory below it: %w", err)
	case errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%w: something appeared there meanwhile: %w", ErrTargetInUse, err)
	default:
		return fmt.Errorf("move the restored files to the target: %w", err)
	}
}

func unpackInto(ctx context.Context, archive io.Reader, staging string, limits Limits) (Summary, error) {
	// The window bound keeps a made-up frame header from claiming gigabytes; what the frames inflate to is bounded by limits.
	decompressed, err := zstd.NewReader(archive, zstd.WithDecoderConcurrency(zstdThreads),
		zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecoderMaxMemory(1<<62))
	if err != nil {
		return Summary{}, fmt.Errorf("set up decompression: %w", err)
	}
	defer decompressed.Close()
	u, err := newUnpacker(ctx, &boundedStream{reader: decompressed, max: limits.MaxBytes}, staging, limits)
	if err != nil {
		return Summary{}, err
	}
	defer u.close()
	if err := u.unpack(); err != nil {
		return Summary{}, err
	}
	return Summary{FileCount: u.files, Skipped: u.skipped}, nil
}

// removeTree removes a tree that Restore made, including directories that were given a mode without write permission.
func removeTree(path string) error {
	if err := os.RemoveAll(path); err == nil {
		return nil
	}
	err := filepath.WalkDir(path, func(path string, item fs.DirEntry, err error) error {
		if err == nil && item.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return nil
	})
	if err := errors.Join(err, os.RemoveAll(path)); err != nil {
		return fmt.Errorf("remove the unfinished %q: %w", path, err)
	}
	return nil
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
