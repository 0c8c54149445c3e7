package snapshot

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// allowedRecords are the PAX records that Pack writes. Others can change what a member means: a GNU.sparse record, for
// one, makes a few bytes expand to any size outside the counted stream.
var allowedRecords = map[string]bool{"path": true, "linkpath": true, "size": true, "mtime": true}

func checkRecords(header *tar.Header) error {
	for record := range header.PAXRecords {
		if !allowedRecords[record] {
			return &ArchiveError{Path: header.Name, Problem: fmt.Sprintf("header record %q is not known", record)}
		}
	}
	return nil
}

// parseHeader reads a member's header, whose records were checked, and refuses whatever Pack would not have written.
func parseHeader(header *tar.Header) (entry, error) {
	refuse := func(problem string) (entry, error) {
		return entry{}, &ArchiveError{Path: header.Name, Problem: problem}
	}
	e := entry{mtime: header.ModTime, size: header.Size, mode: fs.FileMode(header.Mode).Perm()} //nolint:gosec // Perm keeps nine bits
	switch header.Typeflag {
	case tar.TypeReg:
		e.kind = KindFile
	case tar.TypeDir:
		e.kind = KindDirectory
	case tar.TypeSymlink:
		e.kind, e.target = KindSymlink, header.Linkname
	case tar.TypeLink:
		return refuse("hard links are not allowed")
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return refuse("devices and fifos are not allowed")
	default:
		return refuse(fmt.Sprintf("type %q is not allowed", header.Typeflag))
	}
	if header.Mode&^0o777 != 0 {
		return refuse(fmt.Sprintf("mode %#o has more than permission bits", header.Mode))
	}
	if e.kind != KindFile && e.size != 0 {
		return refuse("only a file has content")
	}
	name, below := strings.CutPrefix(header.Name, filesPrefix)
	if !below {
		return refuse("it does not lie below " + filesPrefix)
	}
	if e.kind == KindDirectory {
		name = strings.TrimSuffix(name, "/")
	}
	e.path = name
	if problem := pathProblem(name); problem != "" {
		return refuse(problem)
	}
	if e.kind == KindSymlink {
		if problem := linkProblem(e.path, e.target); problem != "" {
			return refuse(fmt.Sprintf("%s: %q", problem, e.target))
		}
	}
	return e, nil
}

// pathProblem says why a path cannot be one that a directory walk yields, or "" when it can.
func pathProblem(path string) string {
	if strings.ContainsRune(path, 0) {
		return "the path contains a zero byte"
	}
	for component := range strings.SplitSeq(path, "/") {
		switch {
		case component == "":
			return "the path is absolute, empty, or has an empty component"
		case component == "." || component == "..":
			return fmt.Sprintf("the path has a component %q", component)
		case strings.HasPrefix(component, TemporaryPrefix):
			return "the name is reserved for temporary files of Berth"
		}
	}
	if path == MarkerName {
		return "the name is reserved for Berth's own marker"
	}
	return ""
}

// checkManifest compares the manifest, which is the current member, with what was unpacked, line by line, and takes over
// the list of what was skipped.
func (u *unpacker) checkManifest() error {
	reader, err := u.expected.reader()
	if err != nil {
		return err
	}
	expected := bufio.NewReader(reader)
	// The longest line: a path and a target of the greatest length, each byte of it escaped to six.
	manifest := bufio.NewReaderSize(contextReader{u.ctx, u.tar}, 16*u.limits.MaxPathBytes+4096)
	for {
		want, err := expected.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return u.readSkipped(manifest)
		}
		if err != nil {
			return fmt.Errorf("read the temporary manifest: %w", err)
		}
		got, err := readLine(manifest)
		if errors.Is(err, io.EOF) {
			return manifestError("it ends early", nil)
		}
		if err != nil {
			return err
		}
		if bytes.Equal(got, want) {
			continue
		}
		if err := compareLines(got, want); err != nil {
			return err
		}
	}
}

func compareLines(manifest, unpacked []byte) error {
	inManifest, err := parseLine(manifest)
	if err != nil {
		return err
	}
	inArchive, err := parseLine(unpacked)
	if err != nil {
		return err
	}
	if difference := inManifest.difference(inArchive); difference != "" {
		return manifestError(fmt.Sprintf("it does not agree on %q: %s", inArchive.path(), difference), nil)
	}
	return nil
}

func (u *unpacker) readSkipped(manifest *bufio.Reader) error {
	for {
		text, err := readLine(manifest)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line, err := parseLine(text)
		if err != nil {
			return err
		}
		if line.Skipped == "" {
			return manifestError(fmt.Sprintf("it names %q, which the archive does not hold", line.path()), nil)
		}
		u.entries++
		if err := u.limits.check(line.path(), "", 0, u.entries); err != nil {
			return err
		}
		u.skipped = append(u.skipped, line.skipped())
	}
}

// readLine returns the next line, valid until the next call, or io.EOF at the end of the manifest.
func readLine(manifest *bufio.Reader) ([]byte, error) {
	line, err := manifest.ReadSlice('\n')
	switch {
	case err == nil:
		return line, nil
	case errors.Is(err, io.EOF) && len(line) == 0:
		return nil, io.EOF
	case errors.Is(err, io.EOF):
		return nil, manifestError("its last line is not complete", nil)
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, manifestError("it has a line that is too long", nil)
	default:
		return nil, streamError(manifestName, err)
	}
}

func parseLine(text []byte) (manifestLine, error) {
	var line manifestLine
	if err := json.Unmarshal(text, &line); err != nil {
		return line, manifestError("a line of it is not understood", err)
	}
	return line, nil
}

func manifestError(problem string, err error) error {
	return &ArchiveError{Path: manifestName, Problem: problem, Err: err}
}

// checkEnd refuses anything that follows the manifest: further members, or bytes after the end of the tar stream.
func (u *unpacker) checkEnd() error {
	header, err := u.tar.Next()
	if err == nil {
		return &ArchiveError{Path: header.Name, Problem: "it comes after the manifest"}
	}
	if !errors.Is(err, io.EOF) {
		return streamError(manifestName, err)
	}
	n, err := io.CopyN(io.Discard, u.stream, 1)
	if n > 0 {
		return &ArchiveError{Problem: "there are bytes after its end"}
	}
	if !errors.Is(err, io.EOF) {
		return streamError("", err)
	}
	return nil
}
