package background

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"berth/authority"
	"berth/db"
	"berth/provider"
	"berth/snapshot"
)

// With serverURL set the test binary is a server that does nothing but background work, on the database it names,
// with the provider at providerURL. Tests kill such servers.
const (
	serverURL   = "BERTH_BACKGROUND_TEST_DATABASE"
	providerURL = "BERTH_BACKGROUND_TEST_PROVIDER"
)

// With machineOf set it is a machine of the run that it names: a process on this host with another below it.
const machineOf = "BERTH_BACKGROUND_TEST_RUN"

func TestMain(m *testing.M) {
	var err error
	if url := os.Getenv(serverURL); url != "" {
		if err = work(url, os.Getenv(providerURL)); err == nil {
			select {} // until it is killed
		}
	} else if run := os.Getenv(machineOf); run != "" {
		err = beMachine(run)
	} else {
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// work starts the background work of a whole service.
func work(url, machines string) error {
	ctx := context.Background()
	pool, err := db.Open(ctx, url, db.Options{})
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "berth-background")
	if err != nil {
		return err
	}
	store, err := snapshot.OpenFileStore(dir)
	if err != nil {
		return err
	}
	rules := authority.New(pool, store, slog.Default(), authority.WithProviders(sandboxes(machines)),
		authority.WithProviderTime(3*time.Second), authority.WithCleanupAfter(0))
	_, err = Start(ctx, pool, rules, Options{Every: time.Second, JobTime: 5 * time.Second})
	return err
}

// sandboxes is a provider behind HTTP, by the address of its service: GET, POST …/stop and DELETE of a machine answer
// with its state.
type sandboxes string

func (s sandboxes) For(string, json.RawMessage) (provider.Provider, error) { return s, nil }

func (s sandboxes) State(ctx context.Context, id string) (provider.Answer, error) {
	return s.ask(ctx, http.MethodGet, id, "")
}

func (s sandboxes) Stop(ctx context.Context, id string) (provider.Answer, error) {
	return s.ask(ctx, http.MethodPost, id, "/stop")
}

func (s sandboxes) Destroy(ctx context.Context, id string) (provider.Answer, error) {
	return s.ask(ctx, http.MethodDelete, id, "")
}

func (s sandboxes) ask(ctx context.Context, method, id, what string) (provider.Answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, string(s)+"/"+id+what, nil)
	if err != nil {
		return provider.Answer{}, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return provider.Answer{}, &provider.Error{Kind: provider.KindUnreachable, Cause: err}
	}
	defer answer.Body.Close()
	state, err := io.ReadAll(answer.Body)
	if err != nil {
		return provider.Answer{}, &provider.Error{Kind: provider.KindUnreachable, Cause: err}
	}
	return provider.Answer{ID: strings.TrimPrefix(request.URL.Path, "/"), State: provider.State(state)}, nil
}

// eventually waits for something that others bring about.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !happened() {
		select {
		case <-deadline.C:
			t.Fatalf("gave up waiting until %s", what)
		case <-ticker.C:
		}
	}
}
