package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"berth/snapshot"
)

func lockDir(t *testing.T, dir string) *Dir {
	t.Helper()
	d, err := LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// requireRefusal checks that an error says what is the matter, and a way out.
func requireRefusal(t *testing.T, err error, want string) {
	t.Helper()
	var refusal *DirError
	if !errors.As(err, &refusal) {
		t.Fatalf("got %v, want a DirError with %q", err, want)
	}
	if !strings.Contains(err.Error(), want) || refusal.WayOut == "" {
		t.Fatalf("got %q, want %q in it and a way out", err, want)
	}
}

func TestDirectoriesThatNoRunCanWorkInAreRefused(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	put(t, base, "file", "")
	put(t, base, "marked/below/x", "")
	if err := WriteMarker(filepath.Join(base, "marked"), newMarker()); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"link": "marked/below", "dangling": "absent", "into": "marked/below"} {
		if err := os.Symlink(filepath.Join(base, target), filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string]string{
		"link":                  "symbolic link",
		"link/":                 "symbolic link",
		"dangling":              "symbolic link",
		"file":                  "not a directory",
		"file/below":            "cannot be",
		"dangling/below":        "cannot be made",
		"marked/below":          "inside " + filepath.Join(base, "marked"),
		"marked/new/deep":       "inside " + filepath.Join(base, "marked"),
		"into/through-the-link": "inside " + filepath.Join(base, "marked"),
	} {
		d, err := LockDir(base + "/" + dir)
		if err == nil {
			t.Errorf("%s was taken", d.Path())
			continue
		}
		requireRefusal(t, err, want)
	}
	if _, err := os.Lstat(filepath.Join(base, "marked/new")); err == nil {
		t.Error("a refused directory's parent was made")
	}
	for _, dir := range []string{"", "/", "/proc/sys/new"} {
		if d, err := LockDir(dir); err == nil {
			t.Errorf("%s was taken", d.Path())
		}
	}
}

func TestADirectoryThatCannotBeWrittenIsRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	_, err := LockDir(dir)
	requireRefusal(t, err, "cannot be written")
}

func TestALinkAboveTheDirectoryIsFollowedOnce(t *testing.T) {
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	put(t, base, "real/x", "")
	if err := os.Symlink("real", filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	d := lockDir(t, filepath.Join(base, "link", "new", "dir"))
	if want := filepath.Join(base, "real", "new", "dir"); d.Path() != want {
		t.Fatalf("got %s, want %s", d.Path(), want)
	}
}

func TestADirectoryThatWasMadeAndNotUsedIsRemoved(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for _, used := range []bool{false, true} {
		d, err := LockDir(filepath.Join(base, "dir"))
		if err != nil {
			t.Fatal(err)
		}
		if used {
			put(t, d.Path(), "x", "")
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(d.Path()); (err == nil) != used {
			t.Errorf("used: %v, afterwards: %v", used, err)
		}
	}
	d := lockDir(t, base)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(base); err != nil {
		t.Errorf("a directory that was there before: %v", err)
	}
}

func TestADirectoryBelongsToOneRunAtATime(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "dir")
	first := lockDir(t, dir)
	_, err := LockDir(dir)
	requireRefusal(t, err, "another berth run on this host")
	m := newMarker()
	if err := WriteMarker(dir, m); err != nil {
		t.Fatal(err)
	}
	_, err = LockDir(dir)
	requireRefusal(t, err, m.RunID.String())

	// A restore puts another directory under the name.
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "x", "")
	if err := first.Relock(); err != nil {
		t.Fatal(err)
	}
	_, err = LockDir(dir)
	requireRefusal(t, err, "another berth run on this host")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	lockDir(t, dir)
}

func TestCheckDecidesByTheMarker(t *testing.T) {
	t.Parallel()
	workspace, current, older := uuid.New(), uuid.New(), uuid.New()
	want := Expected{WorkspaceID: workspace, SnapshotID: &current, Saved: true}
	fresh := Expected{WorkspaceID: workspace, SnapshotID: &current}
	ours := Marker{WorkspaceID: workspace, SnapshotID: &current, Epoch: 3, RunID: uuid.New()}
	with := func(change func(*Marker)) *Marker {
		m := ours
		change(&m)
		return &m
	}
	for _, c := range []struct {
		name    string
		files   bool
		marker  *Marker
		want    Expected
		mode    Mode
		action  Action // 0: refused with the text
		refusal string
	}{
		{"empty", false, nil, want, ModeRefuse, ActionRestore, ""},
		{"empty, to adopt", false, nil, want, ModeAdopt, ActionRestore, ""},
		{"empty, to replace", false, nil, want, ModeReplace, ActionRestore, ""},
		{"empty and marked", false, &ours, want, ModeRefuse, ActionRestore, ""},
		{"emptied by work that was not saved", false, with(func(m *Marker) { m.Unsaved = true }), want, ModeRefuse, 0, "was not saved"},
		{"the current snapshot", true, &ours, want, ModeRefuse, ActionKeep, ""},
		{"no snapshot on either side", true, with(func(m *Marker) { m.SnapshotID = nil }), Expected{WorkspaceID: workspace}, ModeRefuse, ActionKeep, ""},
		{"somebody's files", true, nil, want, ModeRefuse, 0, "Berth did not put there"},
		{"somebody's files, nothing saved", true, nil, fresh, ModeRefuse, 0, "--adopt"},
		{"somebody's files, to adopt", true, nil, fresh, ModeAdopt, ActionAdopt, ""},
		{"somebody's files, to adopt over saved ones", true, nil, want, ModeAdopt, 0, "has files saved"},
		{"another workspace's", true, with(func(m *Marker) { m.WorkspaceID = older }), want, ModeRefuse, 0, "of workspace " + older.String()},
		{"another workspace's, to adopt", true, with(func(m *Marker) { m.WorkspaceID = older }), fresh, ModeAdopt, 0, "of workspace " + older.String()},
		{"an older snapshot", true, with(func(m *Marker) { m.SnapshotID = &older }), want, ModeRefuse, 0, "current snapshot"},
		{"no snapshot, where there is one", true, with(func(m *Marker) { m.SnapshotID = nil }), want, ModeRefuse, 0, "current snapshot"},
		{"work that was not saved", true, with(func(m *Marker) { m.Unsaved = true }), want, ModeRefuse, 0, "berth save --dir"},
		{"work that was not saved, to replace", true, with(func(m *Marker) { m.Unsaved = true }), want, ModeReplace, ActionReplace, ""},
		{"another workspace's, to replace", true, with(func(m *Marker) { m.WorkspaceID = older }), want, ModeReplace, ActionReplace, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "dir")
			d := lockDir(t, dir)
			if c.files {
				put(t, dir, "sub/file", "content")
			}
			if c.marker != nil {
				writeFingerprinted(t, dir, *c.marker)
			}
			before := fingerprint(t, dir)
			plan, err := d.Check(context.Background(), c.want, c.mode)
			if c.action == 0 {
				requireRefusal(t, err, c.refusal)
			} else if err != nil || plan.Action != c.action || plan.Changed {
				t.Fatalf("got %+v, %v; want action %d", plan, err, c.action)
			}
			if fingerprint(t, dir) != before {
				t.Error("the check changed something")
			}
		})
	}
}

func TestFilesThatSomebodyChangedSinceAreMovedAsideAndRestoredAnew(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, dir string){
		"content": func(t *testing.T, dir string) { put(t, dir, "sub/file", "CONTENT") },
		"content, with the old times": func(t *testing.T, dir string) {
			path := filepath.Join(dir, "sub/file")
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			put(t, dir, "sub/file", "CONTENT")
			if err := os.Chtimes(path, time.Time{}, info.ModTime()); err != nil {
				t.Fatal(err)
			}
		},
		"a new file": func(t *testing.T, dir string) { put(t, dir, "new", "") },
		"a deleted file": func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "sub/file")); err != nil {
				t.Fatal(err)
			}
		},
		"a mode": func(t *testing.T, dir string) {
			if err := os.Chmod(filepath.Join(dir, "sub/file"), 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"a fingerprint that is not known": func(t *testing.T, dir string) {
			m, err := ReadMarker(dir)
			if err != nil {
				t.Fatal(err)
			}
			m.Fingerprint = ""
			if err := WriteMarker(dir, m); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "dir")
			d := lockDir(t, dir)
			put(t, dir, "sub/file", "content")
			put(t, dir, "stays", "")
			m := newMarker()
			m.Unsaved = false
			writeFingerprinted(t, dir, m)
			change(t, dir)
			plan, err := d.Check(context.Background(), Expected{WorkspaceID: m.WorkspaceID, SnapshotID: m.SnapshotID, Saved: true}, ModeRefuse)
			if err != nil || plan != (Plan{Action: ActionReplace, Changed: true}) {
				t.Fatalf("got %+v, %v", plan, err)
			}
		})
	}
}

func TestReplaceMovesTheFilesAsideAndDeletesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "dir")
	d := lockDir(t, dir)
	var asides []string
	for _, content := range []string{"first", "second", "third"} {
		put(t, dir, "file", content)
		aside, err := d.Prepare(Plan{Action: ActionReplace})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(aside, dir+".berth-") {
			t.Fatalf("moved to %s", aside)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Fatalf("left in place: %v, %v", entries, err)
		}
		if _, err := LockDir(dir); err == nil {
			t.Fatal("the new directory is not locked")
		}
		asides = append(asides, aside)
	}
	for i, content := range []string{"first", "second", "third"} {
		if got, err := os.ReadFile(filepath.Join(asides[i], "file")); err != nil || string(got) != content {
			t.Errorf("%s has %q, %v; want %q", asides[i], got, err, content)
		}
	}
}

func TestPrepareToRestoreLeavesTheDirectoryReallyEmpty(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "dir")
	d := lockDir(t, dir)
	put(t, dir, filepath.Join(snapshot.MarkerName, temporaryFile), "half")
	m := newMarker()
	m.Unsaved = false
	writeFingerprinted(t, dir, m)
	plan, err := d.Check(context.Background(), Expected{WorkspaceID: uuid.New()}, ModeRefuse)
	if err != nil || plan.Action != ActionRestore {
		t.Fatalf("got %+v, %v", plan, err)
	}
	if _, err := d.Prepare(plan); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Fatalf("left: %v, %v", entries, err)
	}
}

func TestAHomeDirectoryIsNotMovedAside(t *testing.T) {
	base := t.TempDir()
	home := filepath.Join(base, "home", "somebody")
	put(t, home, "x", "")
	t.Setenv("HOME", home)
	for _, dir := range []string{home, filepath.Dir(home)} {
		d := lockDir(t, dir)
		_, err := d.Check(context.Background(), Expected{WorkspaceID: uuid.New()}, ModeReplace)
		requireRefusal(t, err, "home directory")
	}
}

func TestAdoptionRefusesADirectoryWithAnotherWorkspaceInside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "deep/inside/x", "")
	if err := WriteMarker(filepath.Join(dir, "deep/inside"), newMarker()); err != nil {
		t.Fatal(err)
	}
	_, err := lockDir(t, dir).Check(context.Background(), Expected{WorkspaceID: uuid.New()}, ModeAdopt)
	requireRefusal(t, err, "deep/inside")
}

func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	f, err := Fingerprint(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func writeFingerprinted(t *testing.T, dir string, m Marker) {
	t.Helper()
	m.Fingerprint = fingerprint(t, dir)
	if err := WriteMarker(dir, m); err != nil {
		t.Fatal(err)
	}
}
