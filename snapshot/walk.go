package snapshot

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// directory adds everything in the directory that root is open on; path is its path from the workspace's root. Each
// level works through an os.Root of its own: no name it opens can lead anywhere else, however the tree changes meanwhile.
func (p *packer) directory(root *os.Root, path string, depth int) error {
	names, err := readNames(root)
	if err != nil {
		return fmt.Errorf("list %q: %w", path, err)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if path == "" && name == MarkerName {
			continue
		}
		if err := p.item(root, path, name, depth); err != nil {
			return err
		}
	}
	return nil
}

func readNames(root *os.Root) ([]string, error) {
	self, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer self.Close()
	return self.Readdirnames(-1)
}

func (p *packer) item(root *os.Root, parent, name string, depth int) error {
	path := name
	if parent != "" {
		path = parent + "/" + name
	}
	info, err := root.Lstat(name)
	if err != nil {
		return readError(path, err)
	}
	e := entry{path: path, kind: kindOf(info.Mode()), mode: info.Mode().Perm(), mtime: info.ModTime()}
	if e.kind == KindSymlink {
		if e.target, err = root.Readlink(name); err != nil {
			return readError(path, err)
		}
	}
	p.entries++
	if err := p.limits.check(path, e.target, depth, p.entries); err != nil {
		return err
	}
	if reason := skipReason(e, name); reason != "" {
		p.skipped = append(p.skipped, Skipped{Path: path, Kind: e.kind, Reason: reason, Target: e.target})
		return nil
	}
	switch e.kind {
	case KindDirectory:
		return p.subdirectory(root, name, e, info, depth)
	case KindSymlink:
		return p.symlink(e)
	default:
		return p.file(root, name, e, info)
	}
}

// skipReason says why an entry is left out of the archive, or "" when it is saved.
func skipReason(e entry, name string) string {
	switch {
	case strings.HasPrefix(name, TemporaryPrefix):
		return "a temporary file of Berth"
	case e.kind == KindSymlink:
		return linkProblem(e.path, e.target)
	case e.kind == KindFile || e.kind == KindDirectory:
		return ""
	default:
		return "a " + string(e.kind) + " has no content to save"
	}
}

func (p *packer) subdirectory(parent *os.Root, name string, e entry, info fs.FileInfo, depth int) error {
	root, err := parent.OpenRoot(name)
	if err != nil {
		return readError(e.path, err)
	}
	defer root.Close()
	if opened, err := root.Stat("."); err != nil || !os.SameFile(info, opened) {
		return errors.Join(&ChangedError{Path: e.path, What: "it was replaced"}, err)
	}
	if err := p.header(e); err != nil {
		return err
	}
	if err := p.manifest.add(e.line()); err != nil {
		return err
	}
	return p.directory(root, e.path, depth+1)
}

func (p *packer) symlink(e entry) error {
	p.files++
	if err := p.header(e); err != nil {
		return err
	}
	return p.manifest.add(e.line())
}

func (p *packer) file(root *os.Root, name string, e entry, info fs.FileInfo) error {
	// O_NONBLOCK: should the name have become a fifo meanwhile, opening it must not wait for a writer.
	file, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return readError(e.path, err)
	}
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		return readError(e.path, err)
	}
	if !os.SameFile(info, before) {
		return &ChangedError{Path: e.path, What: "it was replaced"}
	}
	e.size, e.mode, e.mtime = before.Size(), before.Mode().Perm(), before.ModTime()
	if err := p.stream.room(e.path, e.size); err != nil {
		return err
	}
	if err := p.header(e); err != nil {
		return err
	}
	if e.sha256, err = p.content(file, e); err != nil {
		return err
	}
	after, err := file.Stat()
	if err != nil {
		return readError(e.path, err)
	}
	if after.Size() != e.size {
		return sizeChanged(e, after.Size())
	}
	if !after.ModTime().Equal(e.mtime) {
		return &ChangedError{Path: e.path, What: "it was written to"}
	}
	p.files++
	return p.manifest.add(e.line())
}

// content copies exactly the announced size into the archive and returns the hash of it.
func (p *packer) content(file *os.File, e entry) (string, error) {
	hash := sha256.New()
	from := io.LimitReader(contextReader{p.ctx, file}, e.size)
	for left := e.size; left > 0; {
		n, err := from.Read(p.buffer)
		hash.Write(p.buffer[:n])
		if _, err := p.tar.Write(p.buffer[:n]); err != nil {
			return "", fmt.Errorf("write %q to the archive: %w", e.path, err)
		}
		left -= int64(n)
		switch {
		case errors.Is(err, io.EOF) && left > 0:
			return "", sizeChanged(e, e.size-left)
		case err != nil && left > 0:
			return "", readError(e.path, err)
		}
	}
	return sumHex(hash), nil
}

func sizeChanged(e entry, now int64) error {
	return &ChangedError{Path: e.path, What: fmt.Sprintf("its size went from %d to %d bytes", e.size, now)}
}

// readError tells a path that vanished between being listed and being read from one that cannot be read.
func readError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &ChangedError{Path: path, What: "it was removed"}
	}
	return fmt.Errorf("read %q: %w", path, err)
}
