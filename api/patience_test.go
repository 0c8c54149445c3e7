package api_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"berth/api"
	"berth/api/apitest"
)

// impatient is a second server on the test's service, which waits a moment only.
func impatient(t *testing.T, s *apitest.Server) string {
	t.Helper()
	server := httptest.NewServer(api.New(s.Service, api.Options{
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Patience: 50 * time.Millisecond,
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// stall begins a request, sends half of its body and then nothing, and returns the status of the answer.
func stall(t *testing.T, address, head string) int {
	t.Helper()
	connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(connection, "%s\r\nHost: berth\r\nContent-Length: 20\r\n\r\n{\"name\":", head); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

func TestABodyThatDoesNotArriveIsGivenUp(t *testing.T) {
	t.Parallel()
	s := newEstate(t)
	address := impatient(t, s.Server)
	if status := stall(t, address, "POST /api/companies HTTP/1.1\r\nAuthorization: Bearer "+s.OperatorToken); status != http.StatusRequestTimeout {
		t.Errorf("half a JSON body: %d", status)
	}
	if status := stall(t, address, "POST /api/companies HTTP/1.1"); status != http.StatusUnauthorized {
		t.Errorf("half a JSON body of a stranger: %d", status)
	}
	path := s.reserve()
	id := s.begin(path, s.savedState(path), []byte(`{"name":`+strings.Repeat(" ", 12)))
	head := "PUT " + path + "/snapshots/" + id + "/content HTTP/1.1\r\nContent-Type: application/octet-stream\r\nAuthorization: Bearer " + s.token
	if status := stall(t, address, head); status != http.StatusRequestTimeout {
		t.Errorf("half an archive: %d", status)
	}
}

func TestAHandlerMayTakeLongerThanItsBody(t *testing.T) {
	t.Parallel()
	s := newEstate(t)
	path := s.reserve()
	lock, err := s.Database.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback(t.Context()) //nolint:errcheck // after the commit there is nothing to roll back
	if _, err := lock.Exec(t.Context(), "SELECT FROM execution_workspaces WHERE id = $1 FOR UPDATE", s.ids["workspaceId"]); err != nil {
		t.Fatal(err)
	}
	answered := make(chan int, 1)
	go func() {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+impatient(t, s.Server)+path+"/dirty",
			strings.NewReader(`{"runId":"`+s.ids["runId"]+`","epoch":1}`))
		if err != nil {
			t.Error(err)
		}
		request.Header.Set("Authorization", "Bearer "+s.token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		defer response.Body.Close()
		answered <- response.StatusCode
	}()
	select {
	case status := <-answered:
		t.Fatalf("answered %d while the row was locked", status)
	case <-time.After(300 * time.Millisecond): // six times what the body was given
	}
	if err := lock.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status := <-answered; status != http.StatusOK {
		t.Errorf("answered %d once the row was free", status)
	}
}
