package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"berth/authority"
	"berth/db"
	"berth/db/postgres"
)

// benchHolders is how many runs hold a workspace at once.
const benchHolders = 10_000

// renewingClients is how many renewals are under way at once: 10,000 holders that renew every half a minute, and come
// in bursts.
const renewingClients = 128

// BenchmarkRenewals lets 10,000 holders renew, 128 at once: over HTTP and at the rules themselves, on a connection of
// their own as `berth serve` has it, and at the rules on the pool of all requests. Beside them pgbench updates one row
// by its key in a table of as many rows that has nothing else to it.
func BenchmarkRenewals(b *testing.B) {
	r := newRig(b)
	own, err := db.Open(context.Background(), r.server.URL(postgres.Service, postgres.Database), db.Options{MaxConns: 1, PlanOnce: true})
	benchMust(b, err)
	b.Cleanup(own.Close)
	apart := authority.New(r.pool, nil, benchLog(), authority.WithRenewalPool(own))
	r.url = r.serve(apart)
	r.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: renewingClients}}
	b.Cleanup(r.http.CloseIdleConnections)
	holders := r.hold(benchHolders)
	update := r.bareUpdate(benchHolders)
	reference := r.findPgbench()
	report := newReport(b, "renewals")
	for b.Loop() {
		report.http(r.renewAll(holders, (*benchClient).renew))
		report.add("own-connection", perSecond(r.renewAll(holders, renewAt(apart))))
		report.add("shared-pool", perSecond(r.renewAll(holders, renewAt(r.service))))
		if reference == nil {
			continue
		}
		for _, sessions := range []int{32, 8} {
			r.settle()
			rate, _ := reference.rate(update, sessions, measureTime())
			report.add(fmt.Sprintf("pgbench-c%d", sessions), rate)
		}
	}
	report.publish()
}

// renewAt renews without HTTP.
func renewAt(service *authority.Service) func(*benchClient) error {
	return func(c *benchClient) error {
		by := authority.Principal{Role: authority.RoleRun, CompanyID: c.company, AgentID: c.agent, RunID: c.run, TokenIssuedAt: time.Now()}
		_, err := service.Renew(context.Background(), by, authority.Fence{WorkspaceID: c.workspace, RunID: c.run, Epoch: c.epoch})
		return err
	}
}

func perSecond(took []time.Duration) float64 { return float64(len(took)) / measureTime().Seconds() }

// hold makes so many runs, each the writer of a workspace of its own. The runs are made as any are, for their tokens;
// that they hold something is written as it stands in the database afterwards.
func (r *rig) hold(n int) []*benchClient {
	r.b.Helper()
	holders := make([]*benchClient, n)
	operator := authority.Principal{Role: authority.RoleOperator, TokenID: uuid.New()}
	var next atomic.Int64
	r.inParallel(16, func() error {
		for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
			c := &benchClient{rig: r, company: r.clients[0].company, agent: r.clients[0].agent, epoch: 1}
			run, token, err := r.service.CreateRun(context.Background(), operator, c.company, authority.RunInput{AgentID: c.agent}, authority.Once{})
			if err != nil {
				return err
			}
			c.run, c.token, c.workspace = run.ID, token, uuid.New()
			holders[i] = c
		}
		return nil
	})
	runs, workspaces := make([]uuid.UUID, n), make([]uuid.UUID, n)
	for i, c := range holders {
		runs[i], workspaces[i] = c.run, c.workspace
	}
	for _, statement := range []string{
		"SET session_replication_role = replica",
		`INSERT INTO execution_workspaces (id, company_id, name, mode, strategy_type, provider_type, epoch, writer_run_id)
		 SELECT unnest($1::uuid[]), $2::uuid, 'Held', 'isolated_workspace', 'task_directory', 'cloud_sandbox', 1, unnest($3::uuid[])`,
		`INSERT INTO tenures (id, company_id, workspace_id, epoch, run_id, started_at, started_by)
		 SELECT gen_random_uuid(), company_id, id, epoch, writer_run_id, clock_timestamp(), 'run:' || writer_run_id
		 FROM execution_workspaces WHERE writer_run_id IS NOT NULL`,
		"RESET session_replication_role",
	} {
		var args []any
		if strings.Contains(statement, "$1") {
			args = []any{workspaces, r.clients[0].company, runs}
		}
		_, err := r.admin.Exec(context.Background(), statement, args...)
		benchMust(r.b, err)
	}
	return holders
}

// renewAll has the holders renew by turns for the time of a measurement, and returns how long each renewal took.
func (r *rig) renewAll(holders []*benchClient, renew func(*benchClient) error) []time.Duration {
	r.b.Helper()
	var next atomic.Int64
	inTurn := func(*benchClient) error { return renew(holders[int(next.Add(1))%len(holders)]) }
	before := r.clients
	defer func() { r.clients = before }()
	r.clients = make([]*benchClient, renewingClients)
	return r.load(inTurn)
}

// bareUpdate is the least that a renewal could be: one row of a table with so many, found by its key.
func (r *rig) bareUpdate(rows int) script {
	r.b.Helper()
	for _, statement := range []string{
		"CREATE TABLE bare (id int PRIMARY KEY, at timestamptz)",
		fmt.Sprintf("INSERT INTO bare (id) SELECT generate_series(1, %d)", rows),
		"GRANT SELECT, UPDATE ON bare TO " + postgres.Service,
	} {
		_, err := r.admin.Exec(context.Background(), statement)
		benchMust(r.b, err)
	}
	return script{text: fmt.Sprintf("\\set n random(1, %d)\nUPDATE bare SET at = clock_timestamp() WHERE id = :n;\n", rows)}
}

// inParallel does something several times at once.
func (r *rig) inParallel(times int, do func() error) {
	r.b.Helper()
	failures := make(chan error, times)
	for range times {
		go func() { failures <- do() }()
	}
	var err error
	for range times {
		err = errors.Join(err, <-failures)
	}
	benchMust(r.b, err)
}
