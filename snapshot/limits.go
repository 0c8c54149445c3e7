package snapshot

import (
	"errors"
	"fmt"
	"io"
)

// Limits bound what an archive may unpack to. They hold for Pack as well as for Restore, so that nothing can be saved
// that could not be restored afterwards. A field of zero means the default.
type Limits struct {
	// MaxBytes bounds the uncompressed archive: contents, about 1.5 KiB a member, and the manifest. It is checked while
	// the stream flows, so a small archive that inflates without end is cut off there. Default 64 GiB.
	MaxBytes int64
	// MaxEntries bounds files, directories, links and skipped paths taken together. Default 4,000,000.
	MaxEntries int64
	// MaxPathBytes bounds a path, measured from the root, and the target of a link. Default 4096, the longest path that
	// a Linux program can name.
	MaxPathBytes int
	// MaxDepth bounds how many components a path has. Two file descriptors are held open for each. Default 256.
	MaxDepth int
}

const (
	defaultMaxBytes     = 64 << 30
	defaultMaxEntries   = 4_000_000
	defaultMaxPathBytes = 4096
	defaultMaxDepth     = 256
)

func (l Limits) orDefault() Limits {
	if l.MaxBytes == 0 {
		l.MaxBytes = defaultMaxBytes
	}
	if l.MaxEntries == 0 {
		l.MaxEntries = defaultMaxEntries
	}
	if l.MaxPathBytes == 0 {
		l.MaxPathBytes = defaultMaxPathBytes
	}
	if l.MaxDepth == 0 {
		l.MaxDepth = defaultMaxDepth
	}
	return l
}

// ErrLimit is what every LimitError is.
var ErrLimit = errors.New("snapshot limit exceeded")

// LimitError says which field of Limits was exceeded, and at which path when one path is to blame.
type LimitError struct {
	Limit string // the name of the field, such as MaxBytes
	Max   int64
	Path  string // may be empty
}

func (e *LimitError) Error() string {
	at := ""
	if e.Path != "" {
		at = fmt.Sprintf(" at %q", e.Path)
	}
	return fmt.Sprintf("%v%s: %s is %d", ErrLimit, at, e.Limit, e.Max)
}

func (e *LimitError) Is(target error) bool { return target == ErrLimit }

// check refuses the path that would be the given number of entries, or is itself too long or too deep.
func (l Limits) check(path, target string, depth int, entries int64) error {
	switch {
	case entries > l.MaxEntries:
		return &LimitError{Limit: "MaxEntries", Max: l.MaxEntries, Path: path}
	case len(path) > l.MaxPathBytes || len(target) > l.MaxPathBytes:
		return &LimitError{Limit: "MaxPathBytes", Max: int64(l.MaxPathBytes), Path: path}
	case depth > l.MaxDepth:
		return &LimitError{Limit: "MaxDepth", Max: int64(l.MaxDepth), Path: path}
	}
	return nil
}

// boundedStream counts the uncompressed bytes of an archive in either direction and fails once they exceed max.
type boundedStream struct {
	reader io.Reader
	writer io.Writer
	count  int64
	max    int64
}

func (b *boundedStream) Read(p []byte) (int, error) {
	n, err := b.reader.Read(p)
	b.count += int64(n)
	if b.count > b.max {
		return 0, &LimitError{Limit: "MaxBytes", Max: b.max}
	}
	return n, err
}

func (b *boundedStream) Write(p []byte) (int, error) {
	if b.count+int64(len(p)) > b.max {
		return 0, &LimitError{Limit: "MaxBytes", Max: b.max}
	}
	n, err := b.writer.Write(p)
	b.count += int64(n)
	return n, err
}

// room refuses a file whose content alone would exceed what is left, before any of it is moved.
func (b *boundedStream) room(path string, size int64) error {
	if size > b.max-b.count {
		return &LimitError{Limit: "MaxBytes", Max: b.max, Path: path}
	}
	return nil
}
