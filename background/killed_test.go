package background

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"berth/authority"
	"berth/db/dbtest"
	"berth/snapshot"
)

// cloud is the service of a provider with one machine: it answers with the machine's state.
type cloud struct {
	mu      sync.Mutex
	state   string
	hang    bool
	reached chan struct{} // closed by the first call that hangs
	once    sync.Once
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	hang := c.hang
	if !hang && r.Method == http.MethodDelete {
		c.state = "destroyed"
	}
	state := c.state
	c.mu.Unlock()
	if hang {
		c.once.Do(func() { close(c.reached) })
		<-r.Context().Done() // until who asks is dead
		return
	}
	_, _ = w.Write([]byte(state))
}

func TestAnotherServerGoesOnWhenOneIsKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	lease := abandoned(t, d.Pool, "cloud", "machine")
	machines := &cloud{state: "running", hang: true, reached: make(chan struct{})}
	service := httptest.NewServer(machines)
	t.Cleanup(service.Close)

	first := exec.CommandContext(t.Context(), os.Args[0])
	first.Env = append(os.Environ(), serverURL+"="+d.ServiceURL, providerURL+"="+service.URL)
	first.Stderr = os.Stderr
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-machines.reached:
	case <-time.After(time.Minute):
		t.Fatal("the first server does not ask the provider")
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	machines.mu.Lock()
	machines.hang = false
	machines.mu.Unlock()

	store, err := snapshot.OpenFileStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	rules := authority.New(d.Pool, store, quiet, authority.WithProviders(sandboxes(service.URL)),
		authority.WithProviderTime(3*time.Second), authority.WithCleanupAfter(0))
	second, err := Start(t.Context(), d.Pool, rules, Options{Log: quiet, Every: time.Second, JobTime: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, second)
	// The dead server's claim runs out, which takes two minutes.
	if count(t, d.Pool, "SELECT count(*) FROM lease_cleanups WHERE claimed_until > clock_timestamp()") != 1 {
		t.Fatal("the dead server left no claim")
	}
	if _, err := d.Pool.Exec(t.Context(), "UPDATE lease_cleanups SET claimed_until = clock_timestamp()"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second server cleaned up", func() bool {
		return count(t, d.Pool, "SELECT count(*) FROM environment_leases WHERE id = $1 AND status = 'expired'", lease) == 1
	})
	if receipts := count(t, d.Pool, "SELECT count(*) FROM termination_receipts"); receipts != 1 {
		t.Errorf("%d receipts", receipts)
	}
}

// abandoned is a lease whose run ended, and whose machine nobody looked after.
func abandoned(t *testing.T, pool *pgxpool.Pool, provider, machine string) uuid.UUID {
	t.Helper()
	company, agent, environment, run, lease := uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New()
	insert := func(statement string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(context.WithoutCancel(t.Context()), statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	insert("INSERT INTO companies (id, name, issue_prefix) VALUES ($1, 'Company', 'ONE')", company)
	insert("INSERT INTO agents (id, company_id, name, adapter_type) VALUES ($1, $2, 'Agent', 'process')", agent, company)
	insert("INSERT INTO environments (id, name, driver) VALUES ($1, 'Sandbox', 'sandbox')", environment)
	insert(`INSERT INTO heartbeat_runs (id, company_id, agent_id, status, finished_at) VALUES ($1, $2, $3, 'failed', now())`, run, company, agent)
	insert(`INSERT INTO environment_leases (id, company_id, environment_id, heartbeat_run_id, provider, provider_lease_id)
		VALUES ($1, $2, $3, $4, $5, $6)`, lease, company, environment, run, provider, machine)
	return lease
}
