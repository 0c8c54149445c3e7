package runner

import (
	"errors"
	"io/fs"
	"os"
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
			put(t, dir, snapshot.MarkerName, content)
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
	linked, piped := t.TempDir(), t.TempDir()
	if err := os.Symlink(filepath.Join(elsewhere, snapshot.MarkerName), filepath.Join(linked, snapshot.MarkerName)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(piped, snapshot.MarkerName), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{linked, piped} {
		if m, err := ReadMarker(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %+v, %v", dir, m, err)
		}
	}
}

func TestWritingAMarkerFollowsNothingThatACommandLeft(t *testing.T) {
	t.Parallel()
	dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	put(t, filepath.Dir(victim), "victim", "precious")
	for _, name := range []string{snapshot.MarkerName, temporaryMarker} {
		if err := os.Symlink(victim, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteMarker(dir, newMarker()); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(victim); err != nil || string(got) != "precious" {
		t.Fatalf("the file behind the link is now %q, %v", got, err)
	}
	if _, err := ReadMarker(dir); err != nil {
		t.Fatal(err)
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
