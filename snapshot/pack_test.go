package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"berth/snapshot"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestRoundTripKeepsEverythingAWorkspaceHolds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	writeFile(t, at("run.sh"), "#!/bin/sh\n", 0o755)
	writeFile(t, at("sub/read-only"), "object", 0o444)
	writeFile(t, at("sub/empty"), "", 0o640)
	writeFile(t, at("sub-sorts-before-its-slash"), "x", 0o600)
	writeFile(t, at("not-utf8-\xff\xfe"), "bytes", 0o644)
	writeFile(t, at("line\nbreak \"quote\" \u2028"), "odd", 0o644)
	deep := strings.Repeat("a-rather-long-directory-name/", 12) + "file"
	writeFile(t, at(deep), "deep", 0o644)
	writeFile(t, at(strings.Repeat("n", 255)), "long name", 0o644)
	writeFile(t, at("manifest.jsonl"), "no collision", 0o644)
	writeFile(t, at("files/manifest.jsonl"), "no collision", 0o644)
	must(t, os.Mkdir(at("empty-directory"), 0o755))
	must(t, os.Symlink("sub/read-only", at("link")))
	must(t, os.Symlink("../run.sh", at("sub/up")))
	must(t, os.Symlink("nowhere\xff", at("dangling")))
	must(t, os.Symlink("..", at("sub/to-root")))
	must(t, os.Link(at("run.sh"), at("hard")))
	sparse, err := os.Create(at("sparse"))
	must(t, err)
	_, err = sparse.WriteAt([]byte("end"), 3<<20)
	must(t, errors.Join(err, sparse.Close()))
	setTime(t, at("run.sh"), 1_700_000_000, 123_456_789)
	setTime(t, at("sub/empty"), -5, 500_000_000)
	setTime(t, at("link"), 1_600_000_000, 1)
	writeFile(t, at("sealed/inside"), "x", 0o400)
	must(t, os.Chmod(at("sealed"), 0o555))
	setTime(t, at("sealed"), 1_500_000_000, 42)
	want := readTree(t, dir)

	archive, saved := pack(t, dir)
	target, restored, err := restore(t, archive)
	must(t, err)
	requireSameTree(t, want, readTree(t, target))
	if difference := cmp.Diff(saved, restored); difference != "" {
		t.Errorf("summaries of save and restore differ:\n%s", difference)
	}
	if files := int64(17); saved.FileCount != files {
		t.Errorf("FileCount = %d, want %d files and links", saved.FileCount, files)
	}
}

func TestRoundTripKeepsAGitRepositoryUsable(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	dir := t.TempDir()
	git := func(dir string, args ...string) string {
		t.Helper()
		command := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e", "-c", "safe.directory=*"}, args...)...)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, output)
		}
		return string(output)
	}
	git(dir, "init", "-q")
	writeFile(t, filepath.Join(dir, "a.txt"), "one", 0o644)
	git(dir, "add", ".")
	git(dir, "commit", "-qm", "first")
	writeFile(t, filepath.Join(dir, "untracked"), "two", 0o644)
	status := git(dir, "status", "--porcelain") // refreshes the index, so before the tree is read
	want := readTree(t, dir)

	archive, _ := pack(t, dir)
	target, _, err := restore(t, archive)
	must(t, err)
	requireSameTree(t, want, readTree(t, target))
	git(target, "fsck", "--strict")
	if got := git(target, "status", "--porcelain"); got != status {
		t.Errorf("git status after the restore is %q, was %q", got, status)
	}
}

func TestPackOfTheSameTreeGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "b"), strings.Repeat("0123456789", 1<<20), 0o644)
	writeFile(t, filepath.Join(dir, "a"), "a", 0o644)
	first, _ := pack(t, dir)
	second, _ := pack(t, dir)
	if !bytes.Equal(first, second) {
		t.Error("two saves of one tree differ")
	}
}

func TestPackSkipsAndNamesWhatCannotBeRestored(t *testing.T) {
	t.Parallel()
	// A short path: the address of a socket has about a hundred bytes.
	dir, err := os.MkdirTemp("", "berth")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	writeFile(t, at("kept"), "x", 0o644)
	writeFile(t, at(snapshot.MarkerName), "{}", 0o644)
	writeFile(t, at("sub/"+snapshot.MarkerName), "somebody's file", 0o644)
	writeFile(t, at("sub/"+snapshot.TemporaryPrefix+"restore-1/file"), "half", 0o644)
	must(t, unix.Mkfifo(at("pipe"), 0o600))
	listener, err := net.Listen("unix", at("sock"))
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	must(t, os.Symlink("/usr/bin/python3", at("python")))
	must(t, os.Symlink("../../outside", at("sub/outside")))
	must(t, os.Symlink("kept/../kept", at("winding")))

	archive, summary := pack(t, dir)
	want := []snapshot.Skipped{
		{Path: "pipe", Kind: snapshot.KindFIFO, Reason: "a fifo has no content to save"},
		{Path: "python", Kind: snapshot.KindSymlink, Reason: "link to an absolute path", Target: "/usr/bin/python3"},
		{Path: "sock", Kind: snapshot.KindSocket, Reason: "a socket has no content to save"},
		{Path: "sub/.berth-tmp-restore-1", Kind: snapshot.KindDirectory, Reason: "a temporary file of Berth"},
		{Path: "sub/outside", Kind: snapshot.KindSymlink, Reason: "link that leaves the root", Target: "../../outside"},
		{
			Path: "winding", Kind: snapshot.KindSymlink, Target: "kept/../kept",
			Reason: "link that goes up again after a name, and so could leave the root through another link",
		},
	}
	if difference := cmp.Diff(want, summary.Skipped); difference != "" {
		t.Fatalf("skipped (-want +got):\n%s", difference)
	}
	target, restored, err := restore(t, archive)
	must(t, err)
	if difference := cmp.Diff(want, restored.Skipped); difference != "" {
		t.Errorf("the restore does not name what was skipped (-want +got):\n%s", difference)
	}
	requireNames(t, target, "kept", "sub")
	requireNames(t, filepath.Join(target, "sub"), snapshot.MarkerName)
}

func TestPackSkipsDevices(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		t.Skipf("cannot make a device: %v", err)
	}
	_, summary := pack(t, dir)
	if len(summary.Skipped) != 1 || summary.Skipped[0].Kind != snapshot.KindDevice || summary.FileCount != 0 {
		t.Errorf("summary %+v, want one skipped device", summary)
	}
}

func TestPackRefusesARootThatIsNotADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "tree/file"), "x", 0o644)
	must(t, os.Symlink("tree", filepath.Join(dir, "link")))
	for _, name := range []string{"tree/file", "link", "link/", "missing"} {
		_, err := snapshot.Pack(t.Context(), filepath.Join(dir, name)+strings.Repeat("/", strings.Count(name, "k/")), io.Discard, snapshot.PackOptions{})
		if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(name, "/")) {
			t.Errorf("Pack of %q: error %v, want one that names it", name, err)
		}
	}
}

// onFirstWrite calls a function when the first bytes of an archive arrive: with a file that is much larger than what the
// compressor takes in at once, that is in the middle of reading it.
type onFirstWrite struct {
	once sync.Once
	call func()
}

func (w *onFirstWrite) Write(p []byte) (int, error) {
	w.once.Do(w.call)
	return len(p), nil
}

func TestPackFailsOnAFileThatChangesWhileItIsRead(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 12<<20)
	rand.NewChaCha8([32]byte{}).Read(noise)
	for what, change := range map[string]func(path string) error{
		"its size went from 12582912 to 12582916 bytes": func(path string) error { return writeTo(path, os.O_APPEND, "more") },
		"its size went from 12582912 to":                func(path string) error { return os.Truncate(path, 1000) },
		"it was written to":                             func(path string) error { return writeTo(path, 0, "same size") },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "busy.log")
			must(t, os.WriteFile(path, noise, 0o600))
			setTime(t, path, 1_000_000_000, 0)
			var changed error
			_, err := snapshot.Pack(t.Context(), dir, &onFirstWrite{call: func() { changed = change(path) }}, snapshot.PackOptions{})
			must(t, changed)
			if !errors.Is(err, snapshot.ErrChanged) || !strings.Contains(err.Error(), `"busy.log"`) || !strings.Contains(err.Error(), what) {
				t.Errorf("error %v, want one that names busy.log and says %q", err, what)
			}
		})
	}
}

func writeTo(path string, flag int, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|flag, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

func TestPackRefusesATreeThatRestoreWouldRefuse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "one/two/three"), strings.Repeat("x", 5000), 0o644)
	archive, _ := pack(t, dir)
	for _, limits := range []snapshot.Limits{{MaxBytes: 5000}, {MaxBytes: 6000}, {MaxEntries: 2}, {MaxPathBytes: 12}, {MaxDepth: 2}} {
		_, err := snapshot.Pack(t.Context(), dir, io.Discard, snapshot.PackOptions{Limits: limits})
		if !errors.Is(err, snapshot.ErrLimit) {
			t.Errorf("Pack with %+v: error %v, want ErrLimit", limits, err)
		}
		parent := t.TempDir()
		if _, err := restoreTo(t, archive, filepath.Join(parent, "target"), limits); !errors.Is(err, snapshot.ErrLimit) {
			t.Errorf("Restore with %+v: error %v, want ErrLimit", limits, err)
		}
		requireNames(t, parent)
	}
	if _, err := snapshot.Pack(t.Context(), dir, io.Discard, snapshot.PackOptions{Limits: snapshot.Limits{MaxBytes: 20_000, MaxEntries: 3, MaxPathBytes: 13, MaxDepth: 3}}); err != nil {
		t.Errorf("Pack within its limits: %v", err)
	}
}

func TestRoundTripReachesTheDefaultDepthAndNoFurther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, strings.Repeat("d/", 255), "f"), "deep", 0o644)
	archive, _ := pack(t, dir)
	target, _, err := restore(t, archive)
	must(t, err)
	requireSameTree(t, readTree(t, dir), readTree(t, target))

	must(t, os.Mkdir(filepath.Join(dir, strings.Repeat("d/", 255), "one"), 0o755))
	writeFile(t, filepath.Join(dir, strings.Repeat("d/", 255), "one/more"), "x", 0o644)
	_, err = snapshot.Pack(t.Context(), dir, io.Discard, snapshot.PackOptions{})
	var limit *snapshot.LimitError
	if !errors.As(err, &limit) || limit.Limit != "MaxDepth" {
		t.Errorf("error %v, want a LimitError for MaxDepth", err)
	}
}

func TestRoundTripOfMoreFilesThanTheManifestKeepsInMemory(t *testing.T) {
	t.Parallel()
	dir, parent := t.TempDir(), t.TempDir()
	long := filepath.Join(dir, strings.Repeat(strings.Repeat("long", 60)+"/", 5))
	for i := range 1000 { // each has 1.3 kB of path
		writeFile(t, filepath.Join(long, strconv.Itoa(i)), "", 0o644)
	}
	archive, _ := pack(t, dir)
	_, err := restoreTo(t, archive, filepath.Join(parent, "target"), snapshot.Limits{})
	must(t, err)
	requireSameTree(t, readTree(t, dir), readTree(t, filepath.Join(parent, "target")))
	requireNames(t, parent, "target")
}

func TestPackReportsTheErrorOfItsWriter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "file"), "x", 0o644)
	broken := errors.New("connection lost")
	reader, writer := io.Pipe()
	reader.CloseWithError(broken)
	if _, err := snapshot.Pack(t.Context(), dir, writer, snapshot.PackOptions{}); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of the writer", err)
	}
}

func TestPackAndRestoreStopWhenTheirContextEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "file"), "x", 0o644)
	archive, summary := pack(t, dir)
	path := filepath.Join(t.TempDir(), "archive")
	must(t, os.WriteFile(path, archive, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := snapshot.Pack(ctx, dir, io.Discard, snapshot.PackOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Pack: error %v, want context.Canceled", err)
	}
	parent := t.TempDir()
	if _, err := snapshot.Restore(ctx, path, filepath.Join(parent, "target"), summary.Digest(), snapshot.Limits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Restore: error %v, want context.Canceled", err)
	}
	requireNames(t, parent)
}

func TestEmptyIsTheArchiveOfAnEmptyTree(t *testing.T) {
	t.Parallel()
	archive, summary := snapshot.Empty()
	packed, _ := pack(t, t.TempDir())
	if !bytes.Equal(archive, packed) {
		t.Error("Empty differs from Pack of an empty directory")
	}
	if summary.Digest() != digestOf(archive) || summary.FileCount != 0 || summary.Skipped != nil {
		t.Errorf("summary %+v does not describe the archive", summary)
	}
	clear(archive)
	if again, _ := snapshot.Empty(); !bytes.Equal(again, packed) {
		t.Error("a caller can change the archive that the next one gets")
	}
	target, _, err := restore(t, packed)
	must(t, err)
	requireNames(t, target)
}
