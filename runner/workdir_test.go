package runner

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// again prepares another run in the directory of an earlier one.
func (s *stage) again(p *play, issue uuid.UUID, script string) *play {
	s.t.Helper()
	return s.command(issue, p.Dir, "sh", "-c", script)
}

// requireUnused checks a refusal of the directory that came before there was a run.
func (s *stage) requireUnused(p *play, want string) {
	s.t.Helper()
	runs, files := len(s.runs()), contents(s.t, p.Dir)
	result, err := p.run()
	requireRefusal(s.t, err, want)
	if result.ExitCode != ExitFailed || len(s.runs()) != runs {
		s.t.Errorf("got %+v, and %d new runs; want a refusal before there is one", result, len(s.runs())-runs)
	}
	if diff := cmp.Diff(files, contents(s.t, p.Dir)); diff != "" {
		s.t.Errorf("the refused directory changed:\n%s", diff)
	}
}

func TestADirectoryOfTheCurrentSnapshotIsUsedAgainWithoutADownload(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	first := s.script(s.first, "mkdir a; echo one > a/file")
	first.mustRun()
	for _, script := range []string{"echo two >> a/file", "true", "rm -r a", "test -z \"$(ls)\""} {
		p := s.again(first, s.second, script)
		var downloads atomic.Int64
		p.on(func(call string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
			if call == "download" {
				downloads.Add(1)
			}
			return next.RoundTrip(request)
		})
		p.mustRun()
		if n := downloads.Load(); n != 0 && script != `test -z "$(ls)"` {
			t.Errorf("%s: the files were downloaded although they were there", script)
		}
	}
}

func TestFilesThatSomebodyChangedWithoutARunAreMovedAside(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	first := s.script(s.first, "echo saved > file")
	first.mustRun()
	put(t, first.Dir, "file", "changed by hand")
	p := s.again(first, s.second, "cat file")
	p.mustRun()
	if p.output() != "saved\n" {
		t.Errorf("the command read %q", p.output())
	}
	aside, err := filepath.Glob(first.Dir + ".berth-*")
	if err != nil || len(aside) != 1 {
		t.Fatalf("aside are %v, %v", aside, err)
	}
	if got, err := os.ReadFile(filepath.Join(aside[0], "file")); err != nil || string(got) != "changed by hand" {
		t.Errorf("aside is %q, %v", got, err)
	}
	if !strings.Contains(p.notices.String(), aside[0]) {
		t.Errorf("nobody says where the files are: %s", p.notices)
	}
}

func TestFilesThatAreNotTheWorkspacesAreRefusedBeforeThereIsARun(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	foreign := s.script(s.first, "true")
	put(t, foreign.Dir, "mine", "x")
	s.requireUnused(foreign, "--adopt")

	first := s.script(s.first, "echo one > file")
	first.mustRun()
	s.script(s.second, "echo two > file").mustRun()
	s.requireUnused(s.again(first, s.first, "true"), "not of the workspace's current snapshot")

	late := s.script(s.first, "true")
	put(t, late.Dir, "mine", "x")
	late.Mode = ModeAdopt
	s.requireUnused(late, "has files saved")

	other := uuid.MustParse(s.made(s.in("issues"), object{"title": "Elsewhere"}))
	s.requireUnused(s.again(first, other, "true"), "files of workspace")
}

func TestUnsavedWorkIsNotRunOver(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.script(s.first, endless)
	out := p.begin()
	p.awaitFile("here")

	s.requireUnusedWhileItRuns(p)

	s.takeOver("gone")
	p.await(out)
	s.requireUnused(s.again(p, s.first, "true"), "was not saved")
	replacing := s.again(p, s.first, "ls")
	replacing.Mode = ModeReplace
	replacing.mustRun()
	if aside, err := filepath.Glob(p.Dir + ".berth-*/here"); err != nil || len(aside) != 1 {
		t.Errorf("the unsaved work is not aside: %v, %v", aside, err)
	}
}

// requireUnusedWhileItRuns checks that a directory in use is refused to another run.
func (s *stage) requireUnusedWhileItRuns(p *play) {
	s.t.Helper()
	holder := s.authority()["writerRunId"].(string)
	_, err := s.again(p, s.second, "true").run()
	requireRefusal(s.t, err, holder)
}

func TestAdoptTakesFilesAsTheFirstContent(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.script(s.first, "cat mine")
	put(t, p.Dir, "mine", "precious")
	put(t, p.Dir, "deep/er", "x")
	p.Mode = ModeAdopt
	want := contents(t, p.Dir)
	p.mustRun()
	if p.output() != "precious" {
		t.Errorf("the command read %q", p.output())
	}
	next := s.script(s.second, "true")
	next.mustRun()
	if diff := cmp.Diff(want, contents(t, next.Dir)); diff != "" {
		t.Errorf("the next run has other files (-adopted +got):\n%s", diff)
	}
}

func TestAdoptedFilesStayWhenTheCommandCannotRun(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.command(s.first, filepath.Join(t.TempDir(), "dir"), "./absent")
	put(t, p.Dir, "mine", "precious")
	p.Mode = ModeAdopt
	want := contents(t, p.Dir)
	if result, err := p.run(); result.ExitCode != 127 {
		t.Errorf("got %+v, %v", result, err)
	}
	if diff := cmp.Diff(want, contents(t, p.Dir)); diff != "" {
		t.Errorf("the files changed:\n%s", diff)
	}
	if _, err := ReadMarker(p.Dir); err == nil {
		t.Error("a directory that nobody ran in is marked")
	}
	s.requireFree()
}

func TestReplaceMovesWhatIsThereAside(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.script(s.first, "ls -A")
	put(t, p.Dir, "mine", "x")
	p.Mode = ModeReplace
	p.mustRun()
	if p.output() != ".berth-workspace\n" {
		t.Errorf("the command saw %q", p.output())
	}
	if aside, err := filepath.Glob(p.Dir + ".berth-*/mine"); err != nil || len(aside) != 1 {
		t.Errorf("aside are %v, %v", aside, err)
	}
}

// The first run of a task without a workspace makes one.
func TestATaskWithoutAWorkspaceGetsOne(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	issue := uuid.MustParse(s.made(s.in("issues"), object{"title": "Alone"}))
	first := s.script(issue, "echo one > file")
	result := first.mustRun()
	if result.WorkspaceID.String() == s.workspace || result.Epoch != 1 {
		t.Errorf("got %+v", result)
	}
	p := s.script(issue, "cat file")
	if again := p.mustRun(); again.WorkspaceID != result.WorkspaceID || again.Epoch != 2 || p.output() != "one\n" {
		t.Errorf("got %+v, %q", again, p.output())
	}
}

func TestAPendingChoiceOfAWorkspaceIsApplied(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.script(s.first, "echo shared > file").mustRun()
	issue := uuid.MustParse(s.made(s.in("issues"), object{"title": "Alone"}))
	s.Must(http.MethodPut, "/api/issues/"+issue.String()+"/workspace", object{
		"selection": object{"kind": "existing", "workspaceId": s.workspace}, "expectedBindingRevision": 0, "requestKey": "k",
	})
	p := s.script(issue, "cat file")
	if result := p.mustRun(); result.WorkspaceID.String() != s.workspace || p.output() != "shared\n" {
		t.Errorf("got %+v, %q", result, p.output())
	}
}

func TestAWorkspaceWithoutItsFilesIsNotRunOn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	issue := s.made(s.in("issues"), object{"title": "Imported"})
	workspace := s.made(s.in("execution-workspaces"), object{
		"name": "imported", "sourceIssueId": issue,
		"authority": object{"epoch": 3, "snapshotId": uuid.NewString(), "source": object{"kind": "empty"}},
	})
	s.Must(http.MethodPatch, "/api/issues/"+issue, object{"executionWorkspaceId": workspace})
	p := s.script(uuid.MustParse(issue), "echo ran > ran")
	result, err := p.run()
	if err == nil || result.ExitCode != ExitFailed || !strings.Contains(err.Error(), "unavailable") || !result.Released {
		t.Errorf("got %+v, %v", result, err)
	}
	s.requireFree()
}

func TestAReservationThatNamesAnotherWriterIsNoGrant(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.script(s.first, "echo ran > ran")
	p.on(func(call string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
		if call != "reservation" {
			return next.RoundTrip(request)
		}
		w := s.Must(http.MethodGet, "/api/execution-workspaces/"+s.workspace, nil)
		w["authority"].(object)["writerRunId"] = uuid.NewString()
		return respondJSON(request, object{"workspace": w, "replayed": false, "handover": nil}), nil
	})
	if result, err := p.run(); err == nil || result.ExitCode != ExitFailed || errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %+v, %v", result, err)
	}
	if _, err := os.Stat(filepath.Join(p.Dir, "ran")); err == nil {
		t.Error("the command ran")
	}
	s.requireFree()
}
