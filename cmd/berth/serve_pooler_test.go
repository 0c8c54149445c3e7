package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"berth/db/dbtest"
	"berth/db/postgres"
)

func TestServeWorksThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	direct := server.URL(postgres.Service, postgres.Database)
	through, owner := dbtest.NewPooler(t, server).URL(t, direct), server.URL(postgres.Owner, postgres.Database)
	dir := openTempDir(t)
	refused(t, invoke(t, dir, nil, "serve", "--addr", "127.0.0.1:0", "--database-url", through, "--migrate-url", owner),
		exitFailed, "--database-pooler=transaction")
	refused(t, invoke(t, dir, nil, "serve", "--addr", "127.0.0.1:0", "--database-pooler", "transaction"), exitUsage, "--database-url")

	s := start(t, dir, nil, "--database-url", through, "--migrate-url", owner, "--database-pooler", "transaction")
	wants(t, s.log.String(), "ALTER ROLE berth SET lock_timeout")
	s.must(t, "create", "company", "Acme")
	s.must(t, "create", "agent", "coder")
	s.must(t, "create", "issue", "Parent")
	s.must(t, "create", "workspace", "--issue", "ACME-1")
	s.must(t, "create", "issue", "First", "--parent", "ACME-1")
	s.must(t, "create", "issue", "Second", "--parent", "ACME-1")

	first, next := reserve(t, s, "ACME-2"), make(chan result, 1)
	go func() { next <- s.berth(t, "reserve", "--issue", "ACME-3", "--wait", "1m") }()
	look, err := pgx.Connect(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second run waits", func() bool {
		var waits bool
		err := look.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM reservation_places)").Scan(&waits)
		return err == nil && waits
	})
	if r := s.berthAs(t, first, "release", "--finish", "succeeded"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	if r := <-next; r.code != 0 {
		t.Errorf("the next in line: %s", r.stderr)
	}
	if status, _ := get(t, http.DefaultClient, s.url+"/api/ready"); status != http.StatusOK {
		t.Errorf("ready: %d", status)
	}
	eventually(t, "a job of the background work is done", func() bool {
		var done bool
		err := look.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM river.river_job WHERE state = 'completed')").Scan(&done)
		return err == nil && done
	})
	if err := look.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if strings.Contains(s.log.String(), "level=ERROR") {
		t.Errorf("%s", s.log)
	}
}
