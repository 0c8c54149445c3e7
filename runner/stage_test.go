package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"berth/api/apitest"
	"berth/snapshot"
)

// object is an answer of the API.
type object = map[string]any

// stage is a real service with two tasks that share a workspace.
type stage struct {
	*apitest.Server
	t             *testing.T
	company       string
	agent         string
	workspace     string
	first, second uuid.UUID // sibling tasks
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{Server: apitest.New(t), t: t}
	s.Must(http.MethodPatch, "/api/instance/settings", object{"experimental": object{"enableIsolatedWorkspaces": true}})
	s.company = s.made("/api/companies", object{"name": "Acme"})
	s.agent = s.made(s.in("agents"), object{"name": "Coder", "adapterType": "process"})
	parent := s.made(s.in("issues"), object{"title": "Parent"})
	s.workspace = s.made(s.in("execution-workspaces"), object{"name": "tree", "sourceIssueId": parent})
	s.Must(http.MethodPatch, "/api/issues/"+parent, object{"executionWorkspaceId": s.workspace})
	s.first = uuid.MustParse(s.made(s.in("issues"), object{"title": "First", "parentId": parent}))
	s.second = uuid.MustParse(s.made(s.in("issues"), object{"title": "Second", "parentId": parent}))
	return s
}

func (s *stage) in(collection string) string { return "/api/companies/" + s.company + "/" + collection }

func (s *stage) made(path string, body object) string {
	s.t.Helper()
	return s.Must(http.MethodPost, path, body)["id"].(string)
}

// items reads a list, newest first where the API lists so.
func (s *stage) items(path string) []object {
	s.t.Helper()
	var items []object
	for _, item := range s.Must(http.MethodGet, path, nil)["items"].([]any) {
		items = append(items, item.(object))
	}
	return items
}

func (s *stage) runs() []object { s.t.Helper(); return s.items(s.in("heartbeat-runs")) }

// saved are the ids of the committed snapshots, newest first.
func (s *stage) saved() []string {
	s.t.Helper()
	var ids []string
	for _, item := range s.items("/api/execution-workspaces/" + s.workspace + "/snapshots") {
		if item["state"] == "committed" {
			ids = append(ids, item["id"].(string))
		}
	}
	return ids
}

func (s *stage) authority() object {
	s.t.Helper()
	return s.Must(http.MethodGet, "/api/execution-workspaces/"+s.workspace, nil)["authority"].(object)
}

// requireFree fails unless the workspace is free and clean, and no run goes on.
func (s *stage) requireFree() {
	s.t.Helper()
	if a := s.authority(); a["writerRunId"] != nil || a["dirty"] != false {
		s.t.Errorf("the workspace is not free: %v", a)
	}
	for _, run := range s.runs() {
		if run["finishedAt"] == nil {
			s.t.Errorf("run %s is still %s", run["id"], run["status"])
		}
	}
}

// requireHeld fails unless the run of result still holds the workspace with unsaved work.
func (s *stage) requireHeld(result Result) {
	s.t.Helper()
	if a := s.authority(); a["writerRunId"] != result.RunID.String() || a["dirty"] != true {
		s.t.Errorf("run %s does not hold the workspace with its work: %v", result.RunID, a)
	}
}

func (s *stage) takeOver(reason string) {
	s.t.Helper()
	s.Must(http.MethodPost, "/api/execution-workspaces/"+s.workspace+"/takeover", object{"reason": reason, "acceptRisk": true})
}

// quickPace is the normal one, a hundred times and more as fast.
var quickPace = pace{
	patience: 3 * time.Second, call: 2 * time.Second, stall: 2 * time.Second,
	first: 10 * time.Millisecond, longest: 100 * time.Millisecond,
	renew: 50 * time.Millisecond, lost: 200 * time.Millisecond,
}

// play is one call of Run, with what it wrote.
type play struct {
	t *testing.T
	Options
	stdout  *os.File
	notices *notebook
	hold    string // a call that does not come through
}

// notebook takes notices from any goroutine.
type notebook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (n *notebook) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *notebook) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// script prepares a run of a shell script for a task, in a directory of its own.
func (s *stage) script(issue uuid.UUID, script string) *play {
	s.t.Helper()
	return s.command(issue, filepath.Join(s.t.TempDir(), "dir"), "sh", "-c", script)
}

func (s *stage) command(issue uuid.UUID, dir string, argv ...string) *play {
	s.t.Helper()
	stdout, err := os.Create(filepath.Join(s.t.TempDir(), "stdout"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = stdout.Close() })
	p := &play{t: s.t, stdout: stdout, notices: &notebook{}}
	p.Options = Options{
		URL: s.URL, Token: s.OperatorToken, IssueID: issue, Dir: dir,
		Command: Command{Path: argv[0], Args: argv[1:], Stdout: stdout, Stderr: stdout, Grace: 2 * time.Second},
		Signals: &Signals{received: make(chan os.Signal, 16)},
		Notices: p.notices, pace: quickPace, tokensIn: s.t.TempDir(),
	}
	return p
}

// run is Run, with what it said in the test's log.
func (p *play) run() (Result, error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	result, err := Run(ctx, p.Options)
	if ctx.Err() != nil {
		p.t.Error("the run did not end by itself")
	}
	p.t.Logf("exit code %d, error %v\n%s%s", result.ExitCode, err, p.notices, p.output())
	return result, err
}

// mustRun is run for what has to succeed.
func (p *play) mustRun() Result {
	p.t.Helper()
	result, err := p.run()
	if err != nil || result.ExitCode != 0 || result.Saved == nil || !result.Released {
		p.t.Fatalf("got %+v, %v; want a run that succeeds", result, err)
	}
	return result
}

// begin starts the run; the channel has its outcome.
func (p *play) begin() <-chan ended {
	out, finished := make(chan ended, 1), make(chan struct{})
	go func() {
		defer close(finished)
		var e ended
		e.Result, e.err = p.run()
		out <- e
	}()
	p.t.Cleanup(func() { <-finished }) // after its end a test has no log to write to
	return out
}

type ended struct {
	Result
	err error
}

func (p *play) output() string {
	content, err := os.ReadFile(p.stdout.Name())
	if err != nil {
		p.t.Fatal(err)
	}
	return string(content)
}

func (p *play) signal(sig os.Signal) { p.Signals.received <- sig }

// awaitFile waits until the command has written a file with something in it.
func (p *play) awaitFile(name string) string {
	p.t.Helper()
	var content []byte
	eventually(p.t, 20*time.Second, name+" is there", func() bool {
		content, _ = os.ReadFile(filepath.Join(p.Dir, name))
		return len(content) > 0
	})
	return strings.TrimSpace(string(content))
}

func (p *play) await(out <-chan ended) ended {
	p.t.Helper()
	select {
	case e := <-out:
		return e
	case <-time.After(time.Minute):
		p.t.Fatal("the run does not end")
		return ended{}
	}
}

// contents sums up a directory: names, types, modes, times and content, without Berth's own note.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		switch {
		case err != nil || name == ".":
			return err
		case name == snapshot.MarkerName:
			return fs.SkipDir
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			what += " " + target
		case info.Mode().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what += fmt.Sprintf(" %d %x", info.ModTime().UnixNano(), sha256.Sum256(content))
		}
		all[name] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func dirOf(path string) string { return filepath.Dir(path) }

func trimmed(text []byte) string { return strings.TrimSpace(string(text)) }

// emptyBytes is an archive without files.
var emptyBytes, emptyArchive = snapshot.Empty()

func merge(a, b object) object {
	all := object{}
	for _, from := range []object{a, b} {
		for name, value := range from {
			all[name] = value
		}
	}
	return all
}

// tokenOf is the token that a running command has.
func (s *stage) tokenOf(p *play) string {
	s.t.Helper()
	return p.awaitFile("../token")
}

func (s *stage) put(path, token string, content []byte) int {
	s.t.Helper()
	return s.Send(apitest.Request{
		Method: http.MethodPut, Path: path, Token: token, Body: bytes.NewReader(content),
		Header: http.Header{"Content-Type": {"application/octet-stream"}},
	}).Status
}

func itoa(n int) string { return strconv.Itoa(n) }

// eventually polls a condition until it holds or the limit has passed.
func eventually(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !holds() {
		select {
		case <-poll.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}
