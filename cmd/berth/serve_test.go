package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestServeTellsWhereItIsAndWhatToTryNext(t *testing.T) {
	t.Parallel()
	s := startAnew(t, openTempDir(t), nil)
	t.Cleanup(func() { s.end(syscall.SIGINT) })
	wants(t, s.banner[0], "http://127.0.0.1:", "/docs")
	path := filepath.Join(s.dir, ".berth/operator-token")
	wants(t, s.banner[1], path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the operator token has mode %v", info.Mode())
	}
	if status, body := get(t, http.DefaultClient, s.url+"/api/ready"); status != http.StatusOK {
		t.Errorf("readiness answers %d: %s", status, body)
	}
	next, isTry := strings.CutPrefix(s.banner[2], "Try: "+program+" ")
	if !isTry {
		t.Fatalf("no command to try in %q", s.banner[2])
	}
	if r := invoke(t, s.dir, nil, strings.Fields(next)...); r.code != 0 {
		t.Errorf("the command to try fails: %s", r.stderr)
	}
	wants(t, s.must(t, "list", "companies"), "Acme")
}

func TestServeFindsItsDataAgain(t *testing.T) {
	t.Parallel()
	dir := openTempDir(t)
	first := start(t, dir, nil)
	made := first.must(t, "create", "company", "Acme")
	server := first.postgres()
	if code := first.end(syscall.SIGINT); code != 0 {
		t.Errorf("exit code %d after Ctrl-C: %s", code, first.log)
	}
	if running(server) {
		t.Error("Postgres outlives a clean end")
	}
	second := start(t, dir, nil)
	wants(t, second.must(t, "list", "companies"), made)
	if code := second.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d after SIGTERM: %s", code, second.log)
	}
}

func TestSecondServeOnADirectoryIsRefusedInOneLine(t *testing.T) {
	t.Parallel()
	s := start(t, openTempDir(t), nil)
	r := invoke(t, s.dir, nil, "serve", "--addr", "127.0.0.1:0")
	refused(t, r, exitFailed, "another berth serve", filepath.Join(s.dir, ".berth"))
	if lines := strings.Count(r.stderr, "\n"); lines != 1 {
		t.Errorf("%d lines: %s", lines, r.stderr)
	}
	s.must(t, "create", "company", "Acme")
}

func TestTakenAddressIsRefusedBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	s := start(t, openTempDir(t), nil)
	dir := openTempDir(t)
	address := strings.TrimPrefix(s.url, "http://")
	refused(t, invoke(t, dir, nil, "serve", "--addr", address), exitFailed, "--addr", "in use")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v (%v)", left, err)
	}
}

func TestKilledServeTakesItsPostgresAlong(t *testing.T) {
	t.Parallel()
	dir := openTempDir(t)
	s := start(t, dir, nil)
	made := s.must(t, "create", "company", "Acme")
	server := s.postgres()
	killed := time.Now()
	s.end(syscall.SIGKILL)
	eventually(t, "Postgres ends", func() bool { return !running(server) })
	if took := time.Since(killed); took > 2*time.Second {
		t.Errorf("Postgres outlived it by %s", took)
	}
	again := start(t, dir, nil)
	wants(t, again.must(t, "list", "companies"), made)
}

func TestServeGoesOnWhenPostgresCrashes(t *testing.T) {
	t.Parallel()
	s := start(t, openTempDir(t), nil)
	made := s.must(t, "create", "company", "Acme")
	if err := syscall.Kill(s.postgres(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the service answers again", func() bool {
		r := s.berth(t, "list", "companies")
		return r.code == 0 && strings.Contains(r.stdout, made)
	})
}

func TestServeEndsWhenPostgresIsGoneForGood(t *testing.T) {
	t.Parallel()
	s := start(t, openTempDir(t), nil)
	server := s.postgres()
	if err := os.Rename(filepath.Join(s.dir, ".berth/postgres/data"), filepath.Join(s.dir, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := s.wait(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	wants(t, s.log.String(), "berth: private Postgres died and did not come back")
}

func TestCtrlCLetsRequestsFinish(t *testing.T) {
	t.Parallel()
	s := start(t, openTempDir(t), nil)
	token, err := os.ReadFile(filepath.Join(s.dir, ".berth/operator-token"))
	if err != nil {
		t.Fatal(err)
	}
	body, rest := io.Pipe()
	request, err := http.NewRequest(http.MethodPost, s.url+"/api/companies", body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Content-Type", "application/json")
	answered := make(chan int, 1)
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			answered <- 0
			return
		}
		_ = response.Body.Close()
		answered <- response.StatusCode
	}()
	// A write returns when the client has taken it, so the request is on its way.
	if _, err := rest.Write([]byte(`{"name": `)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the service is at work on the request", func() bool {
		_, metrics := get(t, http.DefaultClient, s.url+"/api/health")
		return metrics != ""
	})
	if err := s.command.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the service takes no new connections", func() bool {
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(s.url + "/api/health")
		if err == nil {
			_ = response.Body.Close()
		}
		return err != nil
	})
	if _, err := rest.Write([]byte(`"Acme"}`)); err != nil {
		t.Fatal(err)
	}
	_ = rest.Close()
	if status := <-answered; status != http.StatusCreated {
		t.Errorf("the request was answered with %d", status)
	}
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, s.log)
	}
}

func TestASecondSignalAtOnceIsTheSameWish(t *testing.T) {
	t.Parallel()
	s := start(t, openTempDir(t), nil)
	for range 3 {
		_ = s.command.Process.Signal(syscall.SIGTERM)
	}
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, s.log)
	}
}

func TestCtrlCDuringTheStartLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	dir := openTempDir(t)
	s, _ := launch(t, dir, nil)
	eventually(t, "the start has begun", func() bool {
		_, err := os.Stat(filepath.Join(dir, ".berth/postgres/lock"))
		return err == nil
	})
	if code := s.end(syscall.SIGINT); code != 0 {
		t.Errorf("exit code %d: %s", code, s.log)
	}
	start(t, dir, nil)
}
