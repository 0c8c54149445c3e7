package runner

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	client "berth/clients/go"
)

func TestASaveThatFailsKeepsTheTenureAndSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	busy := func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, orNothing(request.Body))
		return respond(request, http.StatusServiceUnavailable, client.Problem{Code: "unavailable", Detail: "The store is full."}), nil
	}
	cut := func(request *http.Request, next http.RoundTripper) (*http.Response, error) {
		if request.Body != nil {
			request.Body = &cutShort{request.Body, 100}
		}
		return next.RoundTrip(request)
	}
	nobody := func(*http.Request, http.RoundTripper) (*http.Response, error) { return nil, syscall.ECONNREFUSED }
	still := func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	for name, c := range map[string]struct {
		call string
		do   func(*http.Request, http.RoundTripper) (*http.Response, error)
	}{
		"a full store":                   {"upload", busy},
		"uploads that are cut off":       {"upload", cut},
		"an upload that stands still":    {"upload", still},
		"a service that is gone":         {"announce", nobody},
		"a service that goes at the end": {"commit", nobody},
	} {
		p := s.script(s.first, `head -c 100000 /dev/urandom > work`)
		p.pace.patience, p.pace.stall = 500*time.Millisecond, 200*time.Millisecond
		p.on(func(call string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
			if call == c.call {
				return c.do(request, next)
			}
			return next.RoundTrip(request)
		})
		before := s.saved()
		result, err := p.run()
		var unsaved *UnsavedError
		if !errors.As(err, &unsaved) || result.ExitCode != ExitUnsaved || result.Released {
			t.Fatalf("%s: got %+v, %v; want unsaved work", name, result, err)
		}
		for _, want := range []string{"berth save --dir " + p.Dir, "berth release --dir " + p.Dir + " --finish succeeded", unsaved.TokenFile} {
			if !strings.Contains(unsaved.NextStep(), want) {
				t.Errorf("%s: the next step does not say %q: %s", name, want, unsaved.NextStep())
			}
		}
		if after := s.saved(); len(after) != len(before) {
			t.Errorf("%s: saved are %v, were %v", name, after, before)
		}
		requireUnsavedMarker(t, p.Dir)
		s.requireHeld(result)
		s.requireSavedByHand(p, unsaved)
	}
}

// What says "saved" has to say it of this snapshot and of these bytes.
func TestAnAnswerOfSomethingElseIsNoSave(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for name, change := range map[string]object{
		"still pending":    {"state": "pending"},
		"of a later state": {"state": "a_state_of_next_year"},
		"another snapshot": {"id": uuid.NewString()},
		"other bytes":      {"sha256": emptyArchive.SHA256},
		"no bytes":         {"sha256": nil},
	} {
		p := s.script(s.first, "echo "+uuid.NewString()+" > work")
		p.on(func(call string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
			if call != "commit" {
				return next.RoundTrip(request)
			}
			id := strings.Split(request.URL.Path, "/")[5]
			pending := s.Must(http.MethodGet, "/api/execution-workspaces/"+s.workspace+"/snapshots/"+id, nil)
			pending["state"] = "committed"
			return respondJSON(request, merge(pending, change)), nil
		})
		result, err := p.run()
		var unsaved *UnsavedError
		if !errors.As(err, &unsaved) || result.ExitCode != ExitUnsaved || result.Saved != nil {
			t.Fatalf("%s: got %+v, %v; want unsaved work", name, result, err)
		}
		s.requireHeld(result)
		s.requireSavedByHand(p, unsaved)
	}
}

func TestChangesAnnouncedAfterTheSaveKeepTheWorkspace(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.script(s.first, "echo x > work")
	p.on(func(call string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
		if a := s.authority(); call == "finish" {
			token := strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer ")
			s.Do(http.MethodPost, "/api/execution-workspaces/"+s.workspace+"/dirty", token, object{"runId": a["writerRunId"], "epoch": a["epoch"]})
		}
		return next.RoundTrip(request)
	})
	result, err := p.run()
	var unsaved *UnsavedError
	if !errors.As(err, &unsaved) || result.ExitCode != ExitUnsaved || result.Released {
		t.Fatalf("got %+v, %v; want unsaved work", result, err)
	}
	requireUnsavedMarker(t, p.Dir)
	s.requireHeld(result)
	s.requireSavedByHand(p, unsaved)
}

func orNothing(body io.Reader) io.Reader {
	if body == nil {
		return strings.NewReader("")
	}
	return body
}

// cutShort is a body whose connection breaks on the way.
type cutShort struct {
	io.ReadCloser
	left int
}

func (c *cutShort) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, syscall.ECONNRESET
	}
	n, err := c.ReadCloser.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

func TestEveryStepSurvivesALostRequestAndALostAnswer(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, call := range []string{"create", "apply", "reservation", "snapshot", "download", "location", "dirty", "announce", "upload", "commit", "finish"} {
		var mu sync.Mutex
		tries := 0
		p := s.script(s.first, "echo "+call+" >> calls; cat calls")
		p.on(func(name string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
			if name != call {
				return next.RoundTrip(request)
			}
			mu.Lock()
			tries++
			try := tries
			mu.Unlock()
			switch try {
			case 1:
				return nil, syscall.ECONNRESET
			case 2:
				return respond(request, http.StatusServiceUnavailable, client.Problem{Code: "unavailable", Detail: "Not now."}), nil
			case 3:
				response, err := next.RoundTrip(request)
				if err == nil {
					_ = response.Body.Close()
				}
				return nil, errors.Join(syscall.ECONNRESET, err)
			default:
				return next.RoundTrip(request)
			}
		})
		runs := len(s.runs())
		result := p.mustRun()
		if tries < 4 {
			t.Errorf("%s: %d tries", call, tries)
		}
		if more := len(s.runs()) - runs; more != 1 {
			t.Errorf("%s: %d runs were made", call, more)
		}
		if saved := s.saved(); saved[0] != result.Saved.ID.String() {
			t.Errorf("%s: saved are %v", call, saved)
		}
		s.requireFree()
	}
}

func TestADownloadThatIsCutOffOrChangedIsMadeAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.script(s.first, `head -c 100000 /dev/urandom > work; cksum work`).mustRun()
	for name, spoil := range map[string]func([]byte) []byte{
		"cut off": func(content []byte) []byte { return content[:len(content)/2] },
		"changed": func(content []byte) []byte { content[len(content)/2] ^= 1; return content },
		"longer":  func(content []byte) []byte { return append(content, 0) },
	} {
		p := s.script(s.second, `cksum work`)
		var once sync.Once
		p.on(func(call string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err != nil || call != "download" {
				return response, err
			}
			once.Do(func() {
				content, _ := io.ReadAll(response.Body)
				_ = response.Body.Close()
				response.Body = io.NopCloser(strings.NewReader(string(spoil(content))))
			})
			return response, nil
		})
		p.mustRun()
		if entries, err := os.ReadDir(dirOf(p.Dir)); err != nil || len(entries) != 1 {
			t.Errorf("%s: beside the directory is %v, %v", name, entries, err)
		}
	}
}

func TestARunThatCannotBeEndedIsSaidAloud(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.script(s.first, "echo x > work; exit 4")
	p.pace.patience = 300 * time.Millisecond
	p.on(func(call string, request *http.Request, next http.RoundTripper) (*http.Response, error) {
		if call == "finish" {
			return nil, syscall.ECONNREFUSED
		}
		return next.RoundTrip(request)
	})
	result, err := p.run()
	if err != nil || result.ExitCode != 4 || result.Saved == nil || result.Released {
		t.Fatalf("got %+v, %v; want the command's code", result, err)
	}
	notice := p.notices.String()
	_, file, found := strings.Cut(notice, "BERTH_TOKEN=$(cat ")
	if !found || !strings.Contains(notice, "stays reserved") || !strings.Contains(notice, "berth release --dir "+p.Dir+" --finish failed") {
		t.Fatalf("the notice is no way out: %s", notice)
	}
	file, _, _ = strings.Cut(file, ")")
	token, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.Do(http.MethodPatch, "/api/heartbeat-runs/"+result.RunID.String(), trimmed(token), object{"status": "failed"})
	s.requireFree()
}

func TestWhatCannotBeSavedIsNamed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.script(s.first, `mkfifo 'a pipe'; ln -s /etc/passwd out; echo x > file`)
	p.mustRun()
	for _, want := range []string{`"a pipe"`, `"out"`} {
		if !strings.Contains(p.notices.String(), want) {
			t.Errorf("%s is not named: %s", want, p.notices)
		}
	}
	if err := unix.Access(filepath.Join(p.Dir, "a pipe"), unix.F_OK); err != nil {
		t.Errorf("it is gone from the directory: %v", err)
	}
}

// A command may save by itself, with the token that it has; what it leaves in the end is newer.
func TestTheLastSaveFollowsThoseThatTheCommandMade(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.script(s.first, `echo one > file; echo "$BERTH_TOKEN" > ../token; echo x > ../half; until [ -s ../go ]; do sleep 0.01; done; echo two > file`)
	out := p.begin()
	p.awaitFile("../half")
	token := s.tokenOf(p)
	a := s.authority()
	base := "/api/execution-workspaces/" + s.workspace
	fence := object{"runId": a["writerRunId"], "epoch": a["epoch"]}
	status, answer := s.Do(http.MethodPost, base+"/snapshots", token, merge(fence, object{
		"sha256": emptyArchive.SHA256, "size": emptyArchive.Size, "fileCount": 0, "parentSnapshotId": a["snapshotId"],
	}))
	if status != http.StatusCreated {
		t.Fatalf("announce: %d %v", status, answer)
	}
	path := base + "/snapshots/" + answer["id"].(string)
	upload := s.put(path+"/content", token, emptyBytes)
	if upload != http.StatusOK {
		t.Fatalf("upload: %d", upload)
	}
	if status, answer := s.Do(http.MethodPost, path+"/commit", token, fence); status != http.StatusOK {
		t.Fatalf("commit: %d %v", status, answer)
	}
	put(t, dirOf(p.Dir), "go", "x")
	if e := p.await(out); e.err != nil || e.Saved == nil || e.Saved.ParentSnapshotID.String() != answer["id"] {
		t.Errorf("got %+v, %v; want a save after the command's own", e.Result, e.err)
	}
	s.requireFree()
}
