package runner

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"berth/snapshot"
)

func newMarker() Marker {
	id := uuid.New()
	return Marker{WorkspaceID: uuid.New(), SnapshotID: &id, Epoch: 4, RunID: uuid.New(), Unsaved: true, Fingerprint: "sha256:00"}
}

func TestAMarkerIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := ReadMarker(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("without a marker: got %v, want fs.ErrNotExist", err)
	}
	first, second := newMarker(), newMarker()
	second.SnapshotID, second.Unsaved = nil, false
	for _, want := range []Marker{first, second} {
		if err := WriteMarker(dir, want); err != nil {
			t.Fatal(err)
		}
		want.Schema = MarkerSchema
		got, err := ReadMarker(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("wanted (-), got (+):\n%s", diff)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != snapshot.MarkerName {
		t.Fatalf("want the marker alone in the directory, got %v, %v", entries, err)
	}
}

func TestAMarkerThatIsNoneIsAnErrorAndNotAnAbsentOne(t *testing.T) {
	t.Parallel()
	good := `{"schema":"` + MarkerSchema + `","workspaceId":"` + uuid.NewString() + `"`
	for name, content := range map[string]string{
		"empty":            "",
		"cut off":          good,
		"another schema":   strings.Replace(good, ".v1", ".v9", 1) + "}",
		"of no workspace":  `{"schema":"` + MarkerSchema + `"}`,
		"endlessly large":  good + `,"x":"` + strings.Repeat("x", maxMarkerBytes) + `"}`,
		"a wrong type":     good + `,"epoch":"four"}`,
		"something behind": good + `} {}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put(t, dir, filepath.Join(snapshot.MarkerName, markerFile), content)
			if m, err := ReadMarker(dir); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir) {
				t.Fatalf("got %+v, %v; want an error that names the directory", m, err)
			}
		})
	}
}

func TestAMarkerIsNotReadThroughALinkOrAFifo(t *testing.T) {
	t.Parallel()
	elsewhere := t.TempDir()
	if err := WriteMarker(elsewhere, newMarker()); err != nil {
		t.Fatal(err)
	}
	const inside = snapshot.MarkerName + "/" + markerFile
	linked, linkedInside, piped, pipedInside, hollow := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{linkedInside, pipedInside, hollow} {
		put(t, dir, snapshot.MarkerName+"/x", "")
	}
	for dir, name := range map[string]string{linked: snapshot.MarkerName, linkedInside: inside} {
		if err := os.Symlink(filepath.Join(elsewhere, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for dir, name := range map[string]string{piped: snapshot.MarkerName, pipedInside: inside} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{linked, linkedInside, piped, pipedInside, hollow} {
		if m, err := ReadMarker(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %+v, %v", dir, m, err)
		}
	}
}

func TestWritingAMarkerFollowsNothingThatACommandLeft(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	put(t, outside, "victim", "precious")
	put(t, outside, markerFile, "precious")
	for name, links := range map[string]map[string]string{
		"a file":              {snapshot.MarkerName: "victim"},
		"a directory":         {snapshot.MarkerName: "."},
		"inside":              {snapshot.MarkerName + "/" + markerFile: "victim"},
		"before it is whole":  {snapshot.MarkerName + "/" + temporaryFile: "victim"},
		"before there is one": {snapshot.TemporaryPrefix + "marker": "."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for link, target := range links {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, link)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(filepath.Join(outside, target), filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			if err := WriteMarker(dir, newMarker()); err != nil {
				t.Fatal(err)
			}
			for _, victim := range []string{"victim", markerFile} {
				if got, err := os.ReadFile(filepath.Join(outside, victim)); err != nil || string(got) != "precious" {
					t.Errorf("%s behind the link is now %q, %v", victim, got, err)
				}
			}
			if _, err := ReadMarker(dir); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestGitTakesNoNoticeOfAMarker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := WriteMarker(dir, newMarker()); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "file", "x")
	out, err := exec.Command("sh", "-c", `cd "$1" && git init -q . && git add --all && git status --porcelain`, "sh", dir).CombinedOutput()
	if err != nil || string(out) != "A  file\n" {
		t.Fatalf("git says %q, %v; want the file alone", out, err)
	}
}

// put writes a file and makes the directories above it.
func put(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
