package snapshot

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	// MarkerName is what Berth's note of what a directory holds is called in a workspace's root. It is not part of the
	// files: Pack leaves it out, with what may be below it, and Restore refuses an archive that contains it.
	MarkerName = ".berth-workspace"
	// TemporaryPrefix begins the name of everything that Berth makes for a moment: half-written objects of a store and
	// trees that are being restored. Pack skips such names, and names them, wherever they are.
	TemporaryPrefix = ".berth-tmp-"
)

const (
	// The window decides the memory of a save, about 30 MiB. The 8 MiB that zstd takes by itself would need 20 MiB more and
	// make an archive of source code one per cent smaller. The library's other way to use threads, whole sections of the
	// stream at once, is somewhat faster on text and needs more than twice the memory.
	zstdWindow  = 2 << 20
	zstdThreads = 2
)

// PackOptions are the choices a caller of Pack has.
type PackOptions struct {
	Limits Limits
}

// Pack writes the archive of the tree below dir to w and says what it wrote. It reads each file once and holds neither
// file nor list of files in memory. The same tree gives the same bytes.
//
// Sockets, fifos, devices, links that could lead out of dir and leftovers of Berth itself are skipped and named in
// Summary.Skipped; the workspace's marker is left out silently. A file that changes while it is read is a ChangedError,
// a tree that Restore would refuse is a LimitError. After an error what w received is not an archive.
//
// dir must be a directory and not a link to one: a link could be turned to other files between the check that allowed
// the save and the save. Links in the directories above dir are followed.
func Pack(ctx context.Context, dir string, w io.Writer, options PackOptions) (Summary, error) {
	root, err := openTree(dir)
	if err != nil {
		return Summary{}, err
	}
	defer root.Close()
	summary, err := writeArchive(ctx, w, options.Limits.orDefault(), func(p *packer) error {
		return p.directory(root, "", 1)
	})
	if err != nil {
		return Summary{}, fmt.Errorf("save %q: %w", dir, err)
	}
	return summary, nil
}

func openTree(dir string) (*os.Root, error) {
	dir = filepath.Clean(dir) // "link/" would follow the link
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("open the directory to save: %w", err)
	}
	if kind := kindOf(info.Mode()); kind != KindDirectory {
		return nil, fmt.Errorf("cannot save %q: it is a %s; name the directory itself", dir, kind)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the directory to save: %w", err)
	}
	if opened, err := root.Stat("."); err != nil || !os.SameFile(info, opened) {
		return nil, errors.Join(&ChangedError{Path: dir, What: "it was replaced"}, err, root.Close())
	}
	return root, nil
}

// writeArchive sets up the stream (tar, bound, zstd, digest, w), lets fill add the members and ends it with the manifest.
func writeArchive(ctx context.Context, w io.Writer, limits Limits, fill func(*packer) error) (Summary, error) {
	out := newDigestWriter(w)
	compressed, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithWindowSize(zstdWindow),
		zstd.WithEncoderConcurrency(zstdThreads))
	if err != nil {
		return Summary{}, fmt.Errorf("set up compression: %w", err)
	}
	bounded := &boundedStream{writer: compressed, max: limits.MaxBytes}
	p := &packer{ctx: ctx, limits: limits, stream: bounded, tar: tar.NewWriter(bounded), buffer: make([]byte, copyBufferSize)}
	defer p.manifest.close()

	err = p.manifest.add(manifestLine{Schema: manifestSchema})
	if err == nil {
		err = fill(p)
	}
	if err == nil {
		err = p.finish()
	}
	// Close in every case: it ends the encoder's goroutines.
	if closeErr := compressed.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return Summary{}, err
	}
	digest := out.digest()
	return Summary{Size: digest.Size, SHA256: digest.SHA256, FileCount: p.files, Skipped: p.skipped}, nil
}

// packer writes members to an archive and keeps account of them.
type packer struct {
	ctx      context.Context
	limits   Limits
	stream   *boundedStream
	tar      *tar.Writer
	manifest spool
	buffer   []byte
	entries  int64
	files    int64
	skipped  []Skipped
}

// header begins one member, without its content.
func (p *packer) header(e entry) error {
	header := &tar.Header{
		Format: tar.FormatPAX, Name: filesPrefix + e.path, Linkname: e.target,
		Size: e.size, Mode: int64(e.mode.Perm()), ModTime: e.mtime,
	}
	switch e.kind {
	case KindFile:
		header.Typeflag = tar.TypeReg
	case KindDirectory:
		header.Typeflag = tar.TypeDir
		header.Name += "/"
	case KindSymlink:
		header.Typeflag = tar.TypeSymlink
	default:
		return fmt.Errorf("%q: a %s has no place in an archive", e.path, e.kind)
	}
	if err := p.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("write %q to the archive: %w", e.path, err)
	}
	return nil
}

// finish writes the manifest and the end of the tar stream. The manifest has no time of its own, so that the bytes of the
// archive depend on nothing but the tree.
func (p *packer) finish() error {
	for _, skipped := range p.skipped {
		if err := p.manifest.add(skipped.line()); err != nil {
			return err
		}
	}
	content, err := p.manifest.reader()
	if err != nil {
		return err
	}
	header := &tar.Header{
		Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: manifestName,
		Size: p.manifest.size, Mode: 0o600, ModTime: time.Unix(0, 0),
	}
	if err := p.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	if _, err := io.CopyBuffer(writerOnly{p.tar}, content, p.buffer); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	if err := p.tar.Close(); err != nil {
		return fmt.Errorf("end the archive: %w", err)
	}
	return nil
}
