package snapshot

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// unpacker builds a tree from a tar stream. It holds open the directories from the root to where it is, and nothing
// else: a member must belong to the innermost of them, or to one further out, which closes those within for good.
type unpacker struct {
	ctx      context.Context
	limits   Limits
	stream   *boundedStream
	tar      *tar.Reader
	expected spool // the manifest as it should be, from what was unpacked
	open     []openDirectory
	buffer   []byte
	entries  int64
	files    int64
	skipped  []Skipped
}

// openDirectory is a directory that this archive made and that still takes members. It keeps mode 0700 until it is closed,
// so that a directory without write permission can be filled by anyone.
type openDirectory struct {
	entry
	root *os.Root // to create below it
	self *os.File // to set times and flush below it
	last string   // the name created last
}

func newUnpacker(ctx context.Context, stream *boundedStream, staging string, limits Limits) (*unpacker, error) {
	root, err := os.OpenRoot(staging)
	if err != nil {
		return nil, err
	}
	self, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &unpacker{
		ctx: ctx, limits: limits, stream: stream, tar: tar.NewReader(stream),
		expected: spool{directory: filepath.Dir(staging)},
		open:     []openDirectory{{root: root, self: self}},
		buffer:   make([]byte, copyBufferSize),
	}, nil
}

func (u *unpacker) close() {
	u.expected.close()
	for _, directory := range u.open {
		directory.self.Close() //nolint:errcheck // opened for reading only
		directory.root.Close() //nolint:errcheck // likewise
	}
}

func (u *unpacker) unpack() error {
	if err := u.expected.add(manifestLine{Schema: manifestSchema}); err != nil {
		return err
	}
	for {
		if err := u.ctx.Err(); err != nil {
			return err
		}
		header, err := u.next()
		if err != nil {
			return err
		}
		if header.Name == manifestName {
			break
		}
		if err := u.member(header); err != nil {
			return err
		}
	}
	if err := u.closeOutside("."); err != nil {
		return err
	}
	if err := u.checkManifest(); err != nil {
		return err
	}
	if err := u.checkEnd(); err != nil {
		return err
	}
	if err := syncTree(u.open[0].self); err != nil {
		return fmt.Errorf("flush the restored files: %w", err)
	}
	return nil
}

func (u *unpacker) next() (*tar.Header, error) {
	header, err := u.tar.Next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, &ArchiveError{Problem: "it ends without a manifest"}
	case err != nil:
		return nil, streamError("", err)
	case header.Name == manifestName && header.Typeflag != tar.TypeReg:
		return nil, &ArchiveError{Path: header.Name, Problem: "the manifest is not a file"}
	}
	return header, checkRecords(header)
}

// member puts one member of the archive in its place.
func (u *unpacker) member(header *tar.Header) error {
	e, err := parseHeader(header)
	if err != nil {
		return err
	}
	u.entries++
	if err := u.limits.check(e.path, e.target, strings.Count(e.path, "/")+1, u.entries); err != nil {
		return err
	}
	parent, err := u.enter(e.path, header.Name)
	if err != nil {
		return err
	}
	switch e.kind {
	case KindDirectory:
		return u.directory(parent, e)
	case KindSymlink:
		err = u.symlink(parent, e)
	default:
		err = u.file(parent, &e)
	}
	if err != nil {
		return err
	}
	u.files++
	return u.expected.add(e.line())
}

// enter closes the directories that lie beside the path and returns the one it goes into.
func (u *unpacker) enter(memberPath, memberName string) (*openDirectory, error) {
	directory, name := path.Dir(memberPath), path.Base(memberPath)
	if err := u.closeOutside(directory); err != nil {
		return nil, err
	}
	parent := &u.open[len(u.open)-1]
	if directory != "." && parent.path != directory {
		return nil, &ArchiveError{Path: memberName, Problem: "its directory was not opened just before: it is missing, is a link, or was left already"}
	}
	if name <= parent.last {
		return nil, &ArchiveError{Path: memberName, Problem: fmt.Sprintf("it comes twice or out of order, after %q", parent.last)}
	}
	parent.last = name
	return parent, nil
}

// closeOutside closes every open directory that is neither the given one nor above it, and gives each its final mode and
// time, which adding members would have changed.
func (u *unpacker) closeOutside(directory string) error {
	for len(u.open) > 1 {
		top := u.open[len(u.open)-1]
		if directory == top.path || strings.HasPrefix(directory, top.path+"/") {
			return nil
		}
		parent := u.open[len(u.open)-2]
		name := path.Base(top.path)
		if err := errors.Join(syncOne(top.self), top.self.Close(), top.root.Close()); err != nil {
			return fmt.Errorf("close directory %q: %w", top.path, err)
		}
		u.open = u.open[:len(u.open)-1]
		if err := parent.root.Chmod(name, top.mode); err != nil {
			return fmt.Errorf("set the mode of %q: %w", top.path, err)
		}
		if err := setTime(parent.self, name, top.entry); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) directory(parent *openDirectory, e entry) error {
	name := path.Base(e.path)
	if err := parent.root.Mkdir(name, 0o700); err != nil {
		return placeError(e, err)
	}
	root, err := parent.root.OpenRoot(name)
	if err != nil {
		return placeError(e, err)
	}
	self, err := root.Open(".")
	if err != nil {
		return errors.Join(placeError(e, err), root.Close())
	}
	u.open = append(u.open, openDirectory{entry: e, root: root, self: self})
	return u.expected.add(e.line())
}

func (u *unpacker) symlink(parent *openDirectory, e entry) error {
	name := path.Base(e.path)
	if err := parent.root.Symlink(e.target, name); err != nil {
		return placeError(e, err)
	}
	return setTime(parent.self, name, e)
}

// file writes the content of e and fills in its hash.
func (u *unpacker) file(parent *openDirectory, e *entry) error {
	if err := u.stream.room(e.path, e.size); err != nil {
		return err
	}
	name := path.Base(e.path)
	file, err := parent.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return placeError(*e, err)
	}
	hash := sha256.New()
	_, err = io.CopyBuffer(io.MultiWriter(contentWriter{file}, hash), contextReader{u.ctx, u.tar}, u.buffer)
	if err == nil {
		err = errors.Join(file.Chmod(e.mode), syncOne(file))
	}
	if err := errors.Join(streamError(e.path, err), file.Close()); err != nil {
		return err
	}
	e.sha256 = sumHex(hash)
	return setTime(parent.self, name, *e)
}

// contentWriter marks the errors of writing, so that a full disk is not taken for a damaged archive.
type contentWriter struct{ file *os.File }

type writeError struct{ error }

func (e writeError) Unwrap() error { return e.error }

func (w contentWriter) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	if err != nil {
		err = writeError{err}
	}
	return n, err
}

// streamError says whose fault an error is that came out of reading a member: the archive's, or not.
func streamError(member string, err error) error {
	var limit *LimitError
	var write writeError
	var system *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &limit):
		return &LimitError{Limit: limit.Limit, Max: limit.Max, Path: member}
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &write) || errors.As(err, &system):
		return fmt.Errorf("write %q: %w", member, err)
	default:
		return &ArchiveError{Path: member, Problem: "it is damaged", Err: err}
	}
}

// placeError explains why a member could not be created. A name that exists although the archive names it once means a
// file system that takes two names for the same, as those that ignore case do.
func placeError(e entry, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return &ArchiveError{Path: e.path, Problem: "this file system takes it for a name that exists already", Err: err}
	}
	return fmt.Errorf("make %s %q: %w", e.kind, e.path, err)
}

// setTime goes below os.Chtimes, which cannot express years after 2262 and follows links. The access time, which an
// archive does not hold, becomes the same.
func setTime(directory *os.File, name string, e entry) error {
	modified, err := unix.TimeToTimespec(e.mtime)
	if err == nil {
		times := []unix.Timespec{modified, modified}
		err = unix.UtimesNanoAt(int(directory.Fd()), name, times, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return fmt.Errorf("set the time of %q: %w", e.path, err)
	}
	return nil
}
