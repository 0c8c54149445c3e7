package snapshot_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/snapshot"

	"github.com/klauspost/compress/zstd"
)

// member is one part of an archive made by hand.
type member struct {
	tar.Header
	content string
}

func directory(name string) member {
	return member{Header: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}}
}

func file(name, content string) member {
	return member{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}, content: content}
}

func link(name, target string) member {
	return member{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}}
}

func special(kind byte, name string) member {
	return member{Header: tar.Header{Typeflag: kind, Name: name, Linkname: "files/a", Mode: 0o644}}
}

func (m member) withMode(mode int64) member {
	m.Mode = mode
	return m
}

func (m member) withRecord(name, value string) member {
	m.PAXRecords = map[string]string{name: value}
	return m
}

const schemaLine = `{"schema":"berth.snapshot.v1"}` + "\n"

func manifest(lines ...string) member {
	return file("manifest.jsonl", schemaLine+strings.Join(lines, ""))
}

// lineFor is the manifest line of a file made by file().
func lineFor(name, content, mode string) string {
	return fmt.Sprintf(`{"path":%q,"kind":"file","mode":%q,"mtime":"0.000000000","size":%d,"sha256":%q}`+"\n",
		name, mode, len(content), digestOf([]byte(content)).SHA256)
}

func rawTar(tb testing.TB, members ...member) []byte {
	tb.Helper()
	var raw bytes.Buffer
	writer := tar.NewWriter(&raw)
	for _, m := range members {
		m.Format, m.ModTime = tar.FormatPAX, time.Unix(0, 0)
		must(tb, writer.WriteHeader(&m.Header))
		_, err := writer.Write([]byte(m.content))
		must(tb, err)
	}
	must(tb, writer.Close())
	return raw.Bytes()
}

func compress(tb testing.TB, raw []byte) []byte {
	tb.Helper()
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	must(tb, err)
	defer encoder.Close()
	return encoder.EncodeAll(raw, nil)
}

// hostile lists archives that must be refused, and a word of the reason: without it, a check that is gone would go
// unnoticed behind a later one.
var hostile = map[string]struct {
	members []member
	problem string
}{
	"absolute path":               {[]member{file("/etc/evil", "x")}, "does not lie below files/"},
	"absolute path below files":   {[]member{file("files//etc/evil", "x")}, "absolute"},
	"path beside files":           {[]member{file("evil", "x")}, "does not lie below files/"},
	"path that begins like files": {[]member{file("filesystem", "x")}, "does not lie below files/"},
	"climbing path":               {[]member{file("files/../evil", "x")}, `component ".."`},
	"climbing path behind a name": {[]member{directory("files/a/"), file("files/a/../../evil", "x")}, `component ".."`},
	"path to the parent itself":   {[]member{directory("files/../")}, `component ".."`},
	"path to the root itself":     {[]member{directory("files/")}, "empty"},
	"path with a dot":             {[]member{file("files/./a", "x")}, `component "."`},
	"empty component":             {[]member{directory("files/a/"), file("files/a//b", "x")}, "empty component"},
	"marker of Berth":             {[]member{file("files/"+snapshot.MarkerName, "{}")}, "reserved"},
	"temporary name of Berth":     {[]member{file("files/"+snapshot.TemporaryPrefix+"x", "x")}, "reserved"},

	"link to an absolute path":  {[]member{link("files/a", "/etc/passwd")}, "absolute path"},
	"link out of the root":      {[]member{link("files/a", "../evil")}, "leaves the root"},
	"link out from below":       {[]member{directory("files/d/"), link("files/d/a", "../../evil")}, "leaves the root"},
	"link out through a link":   {[]member{link("files/a", "b/../../evil")}, "goes up again"},
	"link without target":       {[]member{link("files/a", "")}, "without a usable target"},
	"file behind a link":        {[]member{directory("files/d/"), link("files/l", "d"), file("files/l/x", "x")}, "is a link"},
	"directory behind a link":   {[]member{directory("files/d/"), link("files/l", "d"), directory("files/l/x/")}, "is a link"},
	"link turned directory":     {[]member{link("files/l", "d"), directory("files/l/")}, "comes twice"},
	"hard link":                 {[]member{file("files/a", "x"), special(tar.TypeLink, "files/b")}, "hard links"},
	"hard link to the system":   {[]member{special(tar.TypeLink, "files/b")}, "hard links"},
	"character device":          {[]member{special(tar.TypeChar, "files/a")}, "devices"},
	"block device":              {[]member{special(tar.TypeBlock, "files/a")}, "devices"},
	"fifo":                      {[]member{special(tar.TypeFifo, "files/a")}, "devices"},
	"contiguous file":           {[]member{special(tar.TypeCont, "files/a")}, "type"},
	"setuid bit":                {[]member{file("files/a", "x").withMode(0o4755)}, "permission bits"},
	"unknown record":            {[]member{file("files/a", "x").withRecord("BERTH.unknown", "1")}, "not known"},
	"file without a directory":  {[]member{file("files/a/b", "x")}, "its directory"},
	"file as a directory":       {[]member{file("files/a", "x"), file("files/a/b", "x")}, "its directory"},
	"directory left and again":  {[]member{directory("files/a/"), directory("files/b/"), file("files/a/x", "x")}, "its directory"},
	"path twice":                {[]member{file("files/a", "x"), file("files/a", "y")}, "comes twice"},
	"directory twice":           {[]member{directory("files/a/"), directory("files/a/")}, "comes twice"},
	"paths out of order":        {[]member{file("files/b", "x"), file("files/a", "y")}, "out of order"},
	"no manifest":               {[]member{file("files/a", "x")}, "without a manifest"},
	"nothing at all":            {nil, "without a manifest"},
	"manifest as a directory":   {[]member{special(tar.TypeSymlink, "manifest.jsonl")}, "not a file"},
	"manifest with a record":    {[]member{manifest().withRecord("BERTH.unknown", "1")}, "not known"},
	"manifest without schema":   {[]member{file("manifest.jsonl", "")}, "ends early"},
	"manifest of another kind":  {[]member{file("manifest.jsonl", `{"schema":"berth.snapshot.v2"}`+"\n")}, "schema"},
	"manifest that is no JSON":  {[]member{file("manifest.jsonl", "hello\n")}, "not understood"},
	"manifest without an end":   {[]member{manifest(`{"path":"a"}`)}, "not complete"},
	"manifest with a long line": {[]member{manifest(strings.Repeat("x", 1<<17) + "\n")}, "too long"},
	"manifest lacks a file":     {[]member{file("files/a", "x"), manifest()}, "ends early"},
	"manifest has one more":     {[]member{manifest(lineFor("a", "x", "0644"))}, "does not hold"},
	"manifest, other hash":      {[]member{file("files/a", "x"), manifest(lineFor("a", "y", "0644"))}, "sha256 is"},
	"manifest, other size":      {[]member{file("files/a", "x"), manifest(lineFor("a", "xx", "0644"))}, "size is"},
	"manifest, other mode":      {[]member{file("files/a", "x"), manifest(lineFor("a", "x", "0755"))}, "mode is"},
	"manifest, other path":      {[]member{file("files/a", "x"), manifest(lineFor("b", "x", "0644"))}, "path is"},
	"member after the manifest": {[]member{manifest(), file("files/a", "x")}, "after the manifest"},
	"second manifest":           {[]member{manifest(), manifest()}, "after the manifest"},
}

func TestRestoreRefusesHostileArchives(t *testing.T) {
	t.Parallel()
	for name, test := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			_, err := restoreTo(t, compress(t, rawTar(t, test.members...)), filepath.Join(parent, "target"), snapshot.Limits{})
			if !errors.Is(err, snapshot.ErrInvalidArchive) || !strings.Contains(err.Error(), test.problem) {
				t.Errorf("error %v, want ErrInvalidArchive with %q", err, test.problem)
			}
			requireNames(t, parent)
		})
	}
}

func TestRestoreTakesAnArchiveMadeByHand(t *testing.T) {
	t.Parallel()
	// Another encoder may escape more than ours does; the manifest counts by what it says.
	escaped := strings.Replace(lineFor("a", "x", "0644"), `"a"`, `"\u0061"`, 1)
	target, _, err := restore(t, compress(t, rawTar(t, file("files/a", "x"), manifest(escaped))))
	must(t, err)
	requireNames(t, target, "a")
}

func TestRestoreRefusesWhatIsNoArchive(t *testing.T) {
	t.Parallel()
	good := rawTar(t, file("files/a", strings.Repeat("x", 5000)), manifest(lineFor("a", strings.Repeat("x", 5000), "0644")))
	packed := compress(t, good)
	flipped := bytes.Clone(packed)
	flipped[len(flipped)/2] ^= 1
	for name, archive := range map[string][]byte{
		"empty file":           {},
		"text":                 []byte("not an archive, not at all"),
		"tar alone":            good,
		"compressed text":      compress(t, bytes.Repeat([]byte("no tar "), 1000)),
		"cut off":              packed[:len(packed)-9],
		"one bit flipped":      flipped,
		"cut off inside":       compress(t, good[:3000]),
		"bytes after the tar":  compress(t, append(bytes.Clone(good), "more"...)),
		"a second tar after":   compress(t, append(bytes.Clone(good), good...)),
		"bytes after the zstd": append(bytes.Clone(packed), "more"...),
		"a huge window":        {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 0x01, 0x00, 0x00},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			_, err := restoreTo(t, archive, filepath.Join(parent, "target"), snapshot.Limits{})
			if !errors.Is(err, snapshot.ErrInvalidArchive) {
				t.Errorf("error %v, want ErrInvalidArchive", err)
			}
			requireNames(t, parent)
		})
	}
}

func TestRestoreCutsOffADecompressionBomb(t *testing.T) {
	t.Parallel()
	const gigabyte = 1 << 30
	zeros := make([]byte, 1<<20)
	var bomb bytes.Buffer
	encoder, err := zstd.NewWriter(&bomb, zstd.WithEncoderLevel(zstd.SpeedFastest))
	must(t, err)
	writer := tar.NewWriter(encoder)
	header := tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: "files/a", Mode: 0o644, Size: gigabyte}
	must(t, writer.WriteHeader(&header))
	for range gigabyte / len(zeros) / 16 {
		_, err := writer.Write(zeros)
		must(t, err)
	}
	must(t, encoder.Close())
	parent := t.TempDir()
	_, err = restoreTo(t, bomb.Bytes(), filepath.Join(parent, "target"), snapshot.Limits{MaxBytes: 32 << 20})
	var limit *snapshot.LimitError
	if !errors.As(err, &limit) || limit.Limit != "MaxBytes" || limit.Path != "a" {
		t.Errorf("error %v, want a LimitError for MaxBytes at a", err)
	}
	requireNames(t, parent)

	// The manifest is not unpacked, but it is a member that can go on for ever too.
	skipped := strings.Repeat(`{"path":"p","kind":"fifo","skipped":"why"}`+"\n", 50_000)
	archive := compress(t, rawTar(t, manifest(skipped)))
	for want, limits := range map[string]snapshot.Limits{"MaxBytes": {MaxBytes: 1 << 20}, "MaxEntries": {MaxEntries: 40_000}} {
		_, err := restoreTo(t, archive, filepath.Join(parent, "target"), limits)
		if !errors.As(err, &limit) || limit.Limit != want {
			t.Errorf("error %v, want a LimitError for %s", err, want)
		}
		requireNames(t, parent)
	}
}

func TestRestoreRefusesTheSparseFormats(t *testing.T) {
	t.Parallel()
	// A sparse header of one kilobyte may announce a file of any size, which would flow past the counted stream. The
	// writer of archive/tar does not make them, hence by hand: a PAX header with the records of GNU sparse 1.0.
	records := ""
	for _, record := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=files/a", "GNU.sparse.realsize=1099511627776"} {
		records += fmt.Sprintf("%d %s\n", len(record)+len("00 \n"), record)
	}
	raw := rawTar(t, member{Header: tar.Header{Typeflag: tar.TypeReg, Name: "x", Mode: 0o644, Size: int64(len(records))}, content: records})
	raw[156] = tar.TypeXHeader
	fixChecksum(raw[:512])
	content := rawTar(t, file("files/a", "1\n0\n512\n"+strings.Repeat("\x00", 504)+strings.Repeat("x", 512)))
	archive := compress(t, append(raw[:1024], content...))
	_, _, err := restore(t, archive)
	if !errors.Is(err, snapshot.ErrInvalidArchive) || !strings.Contains(err.Error(), "GNU.sparse") {
		t.Errorf("error %v, want one about GNU.sparse", err)
	}
}

// fixChecksum makes a header valid again after its type was changed.
func fixChecksum(header []byte) {
	copy(header[148:156], "        ")
	sum := 0
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

func TestRestoreChecksTheHashBeforeItUnpacks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "file"), "x", 0o644)
	archive, summary := pack(t, dir)
	path := filepath.Join(t.TempDir(), "archive")
	must(t, os.WriteFile(path, archive, 0o600))
	parent := t.TempDir()
	for name, want := range map[string]snapshot.Digest{
		"larger":       {Size: summary.Size + 1, SHA256: summary.SHA256},
		"smaller":      {Size: summary.Size - 1, SHA256: summary.SHA256},
		"another hash": {Size: summary.Size, SHA256: strings.Repeat("0", 64)},
	} {
		var mismatch *snapshot.MismatchError
		_, err := snapshot.Restore(t.Context(), path, filepath.Join(parent, "target"), want, snapshot.Limits{})
		if !errors.As(err, &mismatch) || mismatch.Want != want {
			t.Errorf("%s: error %v, want a MismatchError", name, err)
		}
	}
	for _, want := range []snapshot.Digest{{}, {Size: 1, SHA256: "abc"}, {Size: -1, SHA256: summary.SHA256}, {Size: summary.Size, SHA256: strings.ToUpper(summary.SHA256)}} {
		if _, err := snapshot.Restore(t.Context(), path, filepath.Join(parent, "target"), want, snapshot.Limits{}); err == nil {
			t.Errorf("digest %v was accepted", want)
		}
	}
	requireNames(t, parent)
}
