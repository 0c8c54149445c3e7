package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"berth/db"
	"berth/db/postgres"
)

const (
	benchWaiters  = 2000
	benchHandings = 50

	// What 2,000 who wait for one workspace may take of the server's memory, and each of them of the database.
	waitersAllowed = 64e6
	queriesAllowed = 1.0
)

// BenchmarkWaiting lets 2,000 runs wait for one workspace over HTTP, at a berth serve on a database that forces every
// commit to disk. It reports what they cost: the server's memory, and transactions a second for each. Then the
// workspace goes through the line: how long from the call that releases it until the next writer has its answer, beside
// the round trip of a bare NOTIFY on the same database. It fails when they cost more than they may.
func BenchmarkWaiting(b *testing.B) {
	l := newLine(b)
	for b.Loop() {
		l.hire(benchWaiters)
		before := residentOf(b, l.server.command.Process.Pid)
		l.queue()
		each := l.queries(45*time.Second) / benchWaiters // meanwhile the memory settles, as it does in a long wait
		memory := residentOf(b, l.server.command.Process.Pid) - before
		b.ReportMetric(float64(memory)/1e6, "waiters-MB")
		b.ReportMetric(each, "queries/s/waiter")
		if memory > waitersAllowed || each > queriesAllowed {
			b.Errorf("%d who wait take %d bytes of the server, of %d, and each %.2f transactions a second, of %.2f",
				benchWaiters, memory, int64(waitersAllowed), each, queriesAllowed)
		}
		handed, notified := median(l.handOn(benchHandings)), median(l.notify(benchHandings))
		b.ReportMetric(float64(handed)/1e6, "handed-on-p50-ms")
		b.ReportMetric(float64(notified)/1e6, "notify-p50-ms")
		b.ReportMetric(float64(handed)/float64(notified), "x-of-notify")
		l.disperse()
	}
	b.ReportMetric(0, "ns/op") // of everything together: it says nothing
}

// line is a task whose workspace many runs want.
type line struct {
	b        *testing.B
	server   *service
	database *postgres.Server
	admin    *pgx.Conn
	http     *http.Client
	operator string
	company  string
	agent    string
	issue    string
	answers  chan held // of those whose turn came
	leave    context.CancelFunc
	waiting  sync.WaitGroup
	holder   held
	idle     []held // runs that do not hold anything
}

// held is a run that became the writer, and when it heard of it.
type held struct {
	run, token, workspace string
	epoch                 int64
	at                    time.Time
}

func newLine(b *testing.B) *line {
	b.Helper()
	dir := durableDir(b)
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	l := &line{b: b}
	var err error
	l.database, err = postgres.Start(context.Background(), postgres.Config{Dir: filepath.Join(dir, "postgres"), Logger: slog.New(slog.DiscardHandler)})
	must(err)
	b.Cleanup(func() { _ = l.database.Stop() })
	must(db.Migrate(context.Background(), l.database.URL(postgres.Owner, postgres.Database)))
	l.admin, err = pgx.Connect(context.Background(), l.database.URL(postgres.Superuser, postgres.Database))
	must(err)
	b.Cleanup(func() { _ = l.admin.Close(context.Background()) })
	l.server = start(b, dir, nil, "--database-url", l.database.URL(postgres.Service, postgres.Database), "--log-level", "warn")
	l.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchWaiters}}
	b.Cleanup(l.http.CloseIdleConnections)
	token, err := os.ReadFile(filepath.Join(dir, ".berth", "operator-token"))
	must(err)
	l.operator = string(bytes.TrimSpace(token))
	l.company = l.made("/api/companies", object{"name": "Bench"})
	l.agent = l.made("/api/companies/"+l.company+"/agents", object{"name": "Coder", "adapterType": "process"})
	l.issue = l.made("/api/companies/"+l.company+"/issues", object{"title": "Task"})
	return l
}

type object map[string]any

// call is one request; anything but a success is an error.
func (l *line) call(ctx context.Context, path, token string, body object, answer any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.server.url+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := l.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("POST %s: %s", path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

func (l *line) made(path string, body object) string {
	l.b.Helper()
	var made struct{ ID string }
	if err := l.call(context.Background(), path, l.operator, body, &made); err != nil {
		l.b.Fatal(err)
	}
	return made.ID
}

// run makes a run for the task.
func (l *line) run() (id, token string) {
	l.b.Helper()
	var created struct {
		Run   struct{ ID string }
		Token string
	}
	body := object{"agentId": l.agent, "issueId": l.issue}
	if err := l.call(context.Background(), "/api/companies/"+l.company+"/heartbeat-runs", l.operator, body, &created); err != nil {
		l.b.Fatal(err)
	}
	return created.Run.ID, created.Token
}

func (l *line) reserve(ctx context.Context, run, token string, seconds int) (held, error) {
	var answer struct {
		Workspace struct {
			ID        string
			Authority struct{ Epoch int64 }
		}
	}
	err := l.call(ctx, "/api/issues/"+l.issue+"/workspace/reservation", token, object{"runId": run, "waitSeconds": seconds}, &answer)
	return held{run, token, answer.Workspace.ID, answer.Workspace.Authority.Epoch, time.Now()}, err
}

// hire makes one run the writer, and n more that will want its workspace.
func (l *line) hire(n int) {
	l.b.Helper()
	var err error
	run, token := l.run()
	if l.holder, err = l.reserve(context.Background(), run, token, 0); err != nil {
		l.b.Fatal(err)
	}
	l.idle = nil
	for range n {
		run, token := l.run()
		l.idle = append(l.idle, held{run: run, token: token})
	}
}

// queue lets those who were hired wait, each in a request that is repeated when it ends.
func (l *line) queue() {
	l.b.Helper()
	var ctx context.Context
	ctx, l.leave = context.WithCancel(context.Background())
	l.answers = make(chan held, len(l.idle))
	for _, w := range l.idle {
		l.waiting.Go(func() {
			for ctx.Err() == nil {
				if got, err := l.reserve(ctx, w.run, w.token, 60); err == nil {
					l.answers <- got
					return
				}
			}
		})
	}
	eventually(l.b, "all have their places", func() bool {
		return l.number("SELECT count(*) FROM waiting_line") == int64(len(l.idle))
	})
}

func (l *line) number(query string) (n int64) {
	l.b.Helper()
	if err := l.admin.QueryRow(context.Background(), query).Scan(&n); err != nil {
		l.b.Fatal(err)
	}
	return n
}

// queries is how many transactions a second the database makes meanwhile.
func (l *line) queries(during time.Duration) float64 {
	l.b.Helper()
	const total = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
	before, began := l.number(total), time.Now()
	<-time.After(during)
	return float64(l.number(total)-before) / time.Since(began).Seconds()
}

// handOn lets n writers release, and returns how long it took until the next had its answer.
func (l *line) handOn(n int) (took []time.Duration) {
	l.b.Helper()
	for range n {
		began := time.Now()
		var freed struct{ ID string }
		claim := object{"runId": l.holder.run, "epoch": l.holder.epoch}
		if err := l.call(context.Background(), "/api/execution-workspaces/"+l.holder.workspace+"/release", l.holder.token, claim, &freed); err != nil {
			l.b.Fatal(err)
		}
		select {
		case l.holder = <-l.answers:
			took = append(took, l.holder.at.Sub(began))
		case <-time.After(time.Minute):
			l.b.Fatal("nobody was granted the workspace")
		}
	}
	return took
}

// notify returns how long a bare notification takes from one connection to another.
func (l *line) notify(n int) (took []time.Duration) {
	l.b.Helper()
	ctx := context.Background()
	listener, err := pgx.Connect(ctx, l.database.URL(postgres.Superuser, postgres.Database))
	if err != nil {
		l.b.Fatal(err)
	}
	defer listener.Close(ctx)
	if _, err := listener.Exec(ctx, "LISTEN bench"); err != nil {
		l.b.Fatal(err)
	}
	for range n {
		began := time.Now()
		if _, err := l.admin.Exec(ctx, "NOTIFY bench"); err != nil {
			l.b.Fatal(err)
		}
		if _, err := listener.WaitForNotification(ctx); err != nil {
			l.b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	return took
}

// disperse sends everybody away.
func (l *line) disperse() {
	l.b.Helper()
	l.leave()
	l.waiting.Wait()
	if _, err := l.admin.Exec(context.Background(), "DELETE FROM reservation_places"); err != nil {
		l.b.Fatal(err)
	}
	var freed struct{ ID string }
	claim := object{"runId": l.holder.run, "epoch": l.holder.epoch}
	if err := l.call(context.Background(), "/api/execution-workspaces/"+l.holder.workspace+"/release", l.holder.token, claim, &freed); err != nil {
		l.b.Fatal(err)
	}
}

// residentOf is what a process holds of memory now, in bytes.
func residentOf(b *testing.B, pid int) int64 {
	b.Helper()
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		b.Fatal(err)
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		b.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}

func median(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)/2]
}
