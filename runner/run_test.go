package runner

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// gitWork makes a repository with some history, or adds to it.
const gitWork = `set -e
git init -q . && git config user.email a@example.org && git config user.name A
mkdir -p src/empty bin && echo one > src/one && printf '#!/bin/sh\n' > bin/tool && chmod 755 bin/tool && ln -s ../src/one bin/one
git add -A && git commit -qm first
seq 1 2000 > src/many && git add -A && git commit -qm second && git gc -q
echo uncommitted >> src/one`

func TestASiblingIsRefusedWhileTheFirstRunsAndThenGetsItsFilesAndHistory(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	first := s.script(s.first, gitWork+`; echo x > ../ready; until [ -s ../go ]; do sleep 0.01; done; git rev-parse HEAD`)
	out := first.begin()
	first.awaitFile("../ready")

	second := s.script(s.second, `echo ran > ran`)
	result, err := second.run()
	var refused *RefusedError
	if !errors.As(err, &refused) || result.ExitCode != ExitRefused {
		t.Fatalf("got %+v, %v; want a refusal with 73", result, err)
	}
	holder := s.authority()["writerRunId"].(string)
	for _, want := range []string{"remote_workspace_writer_pending", "unfinished writer", holder, s.first.String(), "epoch 1", "since 20"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the refusal does not say %q: %v", want, err)
		}
	}
	if refused.NextStep() == "" {
		t.Error("the refusal names no next step")
	}
	if entries, err := os.ReadDir(filepath.Dir(second.Dir)); err != nil || len(entries) != 0 {
		t.Errorf("the refused run left %v, %v", entries, err)
	}

	put(t, filepath.Dir(first.Dir), "go", "x")
	e := first.await(out)
	if e.err != nil || e.ExitCode != 0 || e.Epoch != 1 {
		t.Fatalf("the first run: %+v, %v", e.Result, e.err)
	}
	s.requireFree()

	again := s.script(s.second, `git fsck --strict && git log --format=%s && git status --porcelain && git rev-parse HEAD`)
	if result := again.mustRun(); result.Epoch != 2 {
		t.Errorf("epoch %d, want 2", result.Epoch)
	}
	head := strings.TrimSpace(first.output())
	if want := "second\nfirst\n M src/one\n" + head + "\n"; again.output() != want {
		t.Errorf("git says %q, want %q", again.output(), want)
	}
	// git status may refresh its index; everything else is as it was.
	got, want := contents(t, again.Dir), contents(t, first.Dir)
	delete(got, ".git/index")
	delete(want, ".git/index")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the files differ (-first +second):\n%s", diff)
	}
	s.requireFree()
}

func TestTheCommandsExitCodeIsPassedOnAndItsWorkIsSaved(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, c := range []struct {
		script string
		code   int
		status string
	}{
		{"exit 0", 0, "succeeded"},
		{"exit 3", 3, "failed"},
		{"kill -KILL $$", 137, "failed"},
		{"kill -TERM $$", 143, "interrupted"},
		{"kill -INT $$", 130, "interrupted"},
	} {
		before := s.saved()
		result, err := s.script(s.first, `echo '`+c.script+`' > did; `+c.script).run()
		if err != nil || result.ExitCode != c.code || result.Saved == nil {
			t.Errorf("%s: got %+v, %v; want code %d and the work saved", c.script, result, err, c.code)
			continue
		}
		if after := s.saved(); len(after) != len(before)+1 || after[0] != result.Saved.ID.String() {
			t.Errorf("%s: saved are %v, were %v", c.script, after, before)
		}
		if run := s.Must(http.MethodGet, "/api/heartbeat-runs/"+result.RunID.String(), nil); run["status"] != c.status {
			t.Errorf("%s: the run is %s, want %s", c.script, run["status"], c.status)
		}
		s.requireFree()
		check := s.script(s.second, "cat did")
		check.mustRun()
		if got := strings.TrimSpace(check.output()); got != c.script {
			t.Errorf("%s: the next run reads %q", c.script, got)
		}
	}
}

func TestACommandThatCannotRunChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	put(t, t.TempDir(), "x", "")
	bare := s.command(s.first, filepath.Join(t.TempDir(), "dir"), "no-such-command-anywhere")
	if result, err := bare.run(); result.ExitCode != 127 || err == nil {
		t.Errorf("got %+v, %v; want 127", result, err)
	}
	if runs := s.runs(); len(runs) != 0 {
		t.Errorf("runs were made: %v", runs)
	}

	path := s.command(s.first, filepath.Join(t.TempDir(), "dir"), "./no-such-file")
	if result, err := path.run(); result.ExitCode != 127 || err == nil || !result.Released {
		t.Errorf("got %+v, %v; want 127 and the workspace given back", result, err)
	}
	if len(s.saved()) != 1 {
		t.Errorf("saved are %v, want only what the workspace began with", s.saved())
	}
	s.requireFree()
}

func TestACommandThatTheKernelRefusesLeavesTheWorkspaceFree(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.script(s.first, `printf '#!/no/such/interpreter\n' > tool; chmod 755 tool; echo kept > file`).mustRun()
	p := s.command(s.second, filepath.Join(t.TempDir(), "dir"), "./tool")
	result, err := p.run()
	var start *StartError
	if !errors.As(err, &start) || result.ExitCode != 126 || !result.Released {
		t.Errorf("got %+v, %v; want 126 and the workspace given back", result, err)
	}
	s.requireFree()
	if p.awaitFile("file") != "kept" {
		t.Error("the files are not those of the snapshot")
	}
}

func TestTheRunIsTheAssigneesOrTheOnlyAgentsOrNamed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	agentOf := func(p *play) string {
		t.Helper()
		return s.Must(http.MethodGet, "/api/heartbeat-runs/"+p.mustRun().RunID.String(), nil)["agentId"].(string)
	}
	if got := agentOf(s.script(s.first, "true")); got != s.agent {
		t.Errorf("the only agent: got %s", got)
	}
	other := s.made(s.in("agents"), object{"name": "Other", "adapterType": "process"})
	result, err := s.script(s.first, "true").run()
	if err == nil || !strings.Contains(err.Error(), "--agent") || result.ExitCode != ExitFailed {
		t.Errorf("two agents and no assignee: got %+v, %v", result, err)
	}
	s.Must(http.MethodPatch, "/api/issues/"+s.first.String(), object{"assigneeAgentId": other})
	if got := agentOf(s.script(s.first, "true")); got != other {
		t.Errorf("the assignee: got %s", got)
	}
	named := s.script(s.first, "true")
	named.AgentID = uuid.MustParse(s.agent)
	if got := agentOf(named); got != s.agent {
		t.Errorf("the named one: got %s", got)
	}
}
