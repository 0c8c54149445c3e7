package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"berth/api"
	"berth/authority"
	"berth/db"
	"berth/db/postgres"
	"berth/snapshot"
)

// benchClients is how many callers work at once, each on a workspace of its own.
const benchClients = 32

// rig is the service as `berth serve` runs it: real TCP, the pool's own size, a private Postgres that forces every
// commit to disk. What is measured on it is therefore what a user gets.
type rig struct {
	b       *testing.B
	server  *postgres.Server
	pool    *pgxpool.Pool
	admin   *pgx.Conn
	service *authority.Service
	url     string // of the API
	http    *http.Client
	clients []*benchClient
}

// benchClient is one caller: a run with its task, its workspace and its token. Epoch is the workspace's.
type benchClient struct {
	rig       *rig
	token     string
	company   uuid.UUID
	issue     uuid.UUID
	run       uuid.UUID
	agent     uuid.UUID
	workspace uuid.UUID
	epoch     int64
}

func newRig(b *testing.B) *rig {
	b.Helper()
	folder := durableFolder(b)
	ctx := context.Background()
	server, err := postgres.Start(ctx, postgres.Config{Dir: filepath.Join(folder, "postgres"), Logger: slog.New(slog.DiscardHandler)})
	benchMust(b, err)
	b.Cleanup(func() { _ = server.Stop() })
	benchMust(b, db.Migrate(ctx, server.URL(postgres.Owner, postgres.Database)))
	pool, err := db.Open(ctx, server.URL(postgres.Service, postgres.Database), db.Options{})
	benchMust(b, err)
	b.Cleanup(pool.Close)
	admin, err := pgx.Connect(ctx, server.URL(postgres.Superuser, postgres.Database))
	benchMust(b, err)
	b.Cleanup(func() { _ = admin.Close(ctx) })
	r := &rig{b: b, server: server, pool: pool, admin: admin}
	store, err := snapshot.OpenFileStore(filepath.Join(folder, "snapshots"))
	benchMust(b, err)
	r.service = authority.New(pool, store, benchLog())
	benchMust(b, r.service.ClaimStore(ctx))
	r.url = r.serve(r.service)
	r.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchClients}}
	b.Cleanup(r.http.CloseIdleConnections)
	r.populate(benchClients)
	return r
}

// durableFolder is on a disk: /tmp may be memory, where a commit costs nothing. The user that a root's private server
// runs as can pass through it.
func durableFolder(b *testing.B) string {
	b.Helper()
	base := "/var/tmp"
	if _, err := os.Stat(base); err != nil {
		base = os.TempDir()
	}
	folder, err := os.MkdirTemp(base, "berth-bench-")
	benchMust(b, err)
	b.Cleanup(func() { _ = os.RemoveAll(folder) })
	benchMust(b, os.Chmod(folder, 0o711))
	return folder
}

// benchLog formats every line, as the service's log does, and writes none.
func benchLog() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// serve answers on a port of its own for the length of the benchmark.
func (r *rig) serve(service *authority.Service) (url string) {
	r.b.Helper()
	door, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	benchMust(r.b, err)
	server := &http.Server{Handler: api.New(service, api.Options{Log: benchLog()}), ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(door) //nolint:errcheck // it says that it was closed
	r.b.Cleanup(func() { _ = server.Close() })
	return "http://" + door.Addr().String()
}

// populate makes a company whose agent has a task and a run for each client, and reserves and releases each task's
// workspace, so that from here on it only changes hands.
func (r *rig) populate(clients int) {
	r.b.Helper()
	operator := authority.GenerateSecret()
	benchMust(r.b, r.service.EnsureOperatorToken(context.Background(), operator))
	create := func(path string, body object) uuid.UUID {
		r.b.Helper()
		var made struct{ ID uuid.UUID }
		benchMust(r.b, r.post(path, operator, body, &made))
		return made.ID
	}
	company := create("/api/companies", object{"name": "Bench"})
	in := "/api/companies/" + company.String()
	agent := create(in+"/agents", object{"name": "Coder", "adapterType": "process"})
	project := create(in+"/projects", object{"name": "Site"})
	for i := range clients {
		c := &benchClient{rig: r, company: company, agent: agent}
		c.issue = create(in+"/issues", object{"title": fmt.Sprintf("Task %d", i), "projectId": project})
		var created struct {
			Run   struct{ ID uuid.UUID }
			Token string
		}
		benchMust(r.b, r.post(in+"/heartbeat-runs", operator, object{"agentId": agent, "issueId": c.issue}, &created))
		c.run, c.token = created.Run.ID, created.Token
		benchMust(r.b, c.cycle())
		r.clients = append(r.clients, c)
	}
}

// post calls the API and decodes what it answers; anything but a success is an error.
func (r *rig) post(path, token string, body object, answer any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, r.url+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := r.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("POST %s: %d %s", path, response.StatusCode, content)
	}
	return json.Unmarshal(content, answer)
}

// benchWorkspace is what a client reads of a workspace.
type benchWorkspace struct {
	ID        uuid.UUID
	Authority struct {
		Epoch       int64
		WriterRunID *uuid.UUID
	}
}

// reserve makes the run the writer, and fails unless it became so by this call.
func (c *benchClient) reserve() error {
	var answer struct {
		Workspace benchWorkspace
		Replayed  bool
	}
	if err := c.rig.post("/api/issues/"+c.issue.String()+"/workspace/reservation", c.token, object{"runId": c.run}, &answer); err != nil {
		return err
	}
	w := answer.Workspace
	if w.Authority.WriterRunID == nil || *w.Authority.WriterRunID != c.run || answer.Replayed {
		return fmt.Errorf("a reservation that is none: %+v", answer)
	}
	c.workspace, c.epoch = w.ID, w.Authority.Epoch
	return nil
}

func (c *benchClient) release() error {
	var freed benchWorkspace
	if err := c.rig.post(c.path("release"), c.token, c.claim(), &freed); err != nil {
		return err
	}
	if freed.Authority.WriterRunID != nil {
		return fmt.Errorf("a release that is none: %+v", freed)
	}
	return nil
}

func (c *benchClient) cycle() error {
	if err := c.reserve(); err != nil {
		return err
	}
	return c.release()
}

func (c *benchClient) renew() error {
	var renewal struct{ LastRenewedAt time.Time }
	return c.rig.post(c.path("renew"), c.token, c.claim(), &renewal)
}

func (c *benchClient) path(verb string) string {
	return "/api/execution-workspaces/" + c.workspace.String() + "/" + verb
}

func (c *benchClient) claim() object { return object{"runId": c.run, "epoch": c.epoch} }

// settle brings the tables to where every measurement begins: no dead rows of the one before, nothing left to be
// written.
func (r *rig) settle() {
	r.b.Helper()
	for _, statement := range []string{"VACUUM (ANALYZE)", "CHECKPOINT"} {
		_, err := r.admin.Exec(context.Background(), statement)
		benchMust(r.b, err)
	}
}

// count answers a question about the database with a number.
func (r *rig) count(query string) (n int64) {
	r.b.Helper()
	benchMust(r.b, r.admin.QueryRow(context.Background(), query).Scan(&n))
	return n
}

func benchMust(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
