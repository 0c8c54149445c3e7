package snapshot_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// Archives outlive the program that wrote them: this pins what other programs, and later versions, read.
func TestTheArchiveHasTheDocumentedFormat(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	writeFile(t, at("sub/run.sh"), "echo <&>\n", 0o754)
	must(t, os.Symlink("run.sh", at("sub/to")))
	writeFile(t, at("\xff"), "", 0o600)
	must(t, unix.Mkfifo(at("pipe"), 0o600))
	must(t, os.Symlink("/usr/bin/python3", at("python")))
	setTime(t, at("\xff"), -5, 500_000_000)
	setTime(t, at("sub/run.sh"), 1_700_000_000, 12_345_678)
	setTime(t, at("sub/to"), 0, 0)
	setTime(t, at("sub"), -5, 0)

	archive, _ := pack(t, dir)
	decoder, err := zstd.NewReader(bytes.NewReader(archive))
	must(t, err)
	defer decoder.Close()
	reader := tar.NewReader(decoder)
	names, manifest := []string{}, ""
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		names = append(names, header.Name)
		content, err := io.ReadAll(reader)
		must(t, err)
		manifest = string(content) // the last member's in the end
	}
	if difference := cmp.Diff([]string{"files/sub/", "files/sub/run.sh", "files/sub/to", "files/\xff", "manifest.jsonl"}, names); difference != "" {
		t.Errorf("members (-want +got):\n%s", difference)
	}
	want := []string{
		`{"schema":"berth.snapshot.v1"}`,
		`{"path":"sub","kind":"directory","mode":"0755","mtime":"-5.000000000"}`,
		`{"path":"sub/run.sh","kind":"file","mode":"0754","mtime":"1700000000.012345678","size":9,"sha256":"` + digestOf([]byte("echo <&>\n")).SHA256 + `"}`,
		`{"path":"sub/to","kind":"symlink","mtime":"0.000000000","target":"run.sh"}`,
		`{"pathBase64":"/w==","kind":"file","mode":"0600","mtime":"-4.500000000","size":0,"sha256":"` + digestOf(nil).SHA256 + `"}`,
		`{"path":"pipe","kind":"fifo","skipped":"a fifo has no content to save"}`,
		`{"path":"python","kind":"symlink","target":"/usr/bin/python3","skipped":"link to an absolute path"}`,
		"",
	}
	if difference := cmp.Diff(want, strings.Split(manifest, "\n")); difference != "" {
		t.Errorf("manifest (-want +got):\n%s", difference)
	}
}
