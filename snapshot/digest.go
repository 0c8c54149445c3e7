package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
)

// Digest identifies the bytes of one archive.
type Digest struct {
	Size   int64  // in bytes
	SHA256 string // 64 lower-case hexadecimal digits
}

// Validate refuses a digest that no archive can have.
func (d Digest) Validate() error {
	if d.Size < 0 {
		return fmt.Errorf("size %d is negative", d.Size)
	}
	raw, err := hex.DecodeString(d.SHA256)
	if err != nil || len(raw) != sha256.Size || hex.EncodeToString(raw) != d.SHA256 {
		return fmt.Errorf("sha256 %q is not 64 lower-case hexadecimal digits", d.SHA256)
	}
	return nil
}

// Summary describes one archive.
type Summary struct {
	Size   int64  // bytes of the archive
	SHA256 string // of the archive, lower-case hexadecimal
	// FileCount counts files and symbolic links; directories are not counted.
	FileCount int64
	// Skipped names everything in the tree that the archive does not hold, in the order of the walk.
	Skipped []Skipped
}

// Digest returns the part of the summary that identifies the archive.
func (s Summary) Digest() Digest { return Digest{Size: s.Size, SHA256: s.SHA256} }

// Skipped names one path that was not saved. Path and Target are raw bytes and need not be UTF-8.
type Skipped struct {
	Path   string
	Kind   Kind
	Reason string
	Target string // of a symbolic link, else empty
}

// digestWriter hashes and counts what passes through it.
type digestWriter struct {
	to   io.Writer
	hash hash.Hash
	size int64
}

func newDigestWriter(to io.Writer) *digestWriter { return &digestWriter{to: to, hash: sha256.New()} }

func (d *digestWriter) Write(p []byte) (int, error) {
	n, err := d.to.Write(p)
	d.hash.Write(p[:n])
	d.size += int64(n)
	return n, err
}

func (d *digestWriter) digest() Digest { return Digest{Size: d.size, SHA256: sumHex(d.hash)} }

// match compares what passed through with what was announced. The writer of more than that stopped one byte later.
func (d *digestWriter) match(name string, want Digest) error {
	got := d.digest()
	if got.Size > want.Size {
		got.SHA256 = ""
	}
	if got != want {
		return &MismatchError{Name: name, Want: want, Got: got}
	}
	return nil
}

func sumHex(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// copyBufferSize is the unit in which content moves, and so how often a cancelled context is noticed.
const copyBufferSize = 256 << 10

// contextReader fails once its context is done, so that a long copy can be given up between two reads.
type contextReader struct {
	ctx  context.Context
	from io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.from.Read(p)
}

// writerOnly hides ReadFrom, which would make io.CopyBuffer ignore the buffer it is given.
type writerOnly struct{ io.Writer }

// copyDigest copies content to w and returns its digest. It reads at most one byte more than want announces.
func copyDigest(ctx context.Context, name string, w io.Writer, content io.Reader, want Digest) error {
	out := newDigestWriter(w)
	from := io.LimitReader(contextReader{ctx, content}, want.Size+1)
	if _, err := io.CopyBuffer(writerOnly{out}, from, make([]byte, copyBufferSize)); err != nil {
		return err
	}
	return out.match(name, want)
}
