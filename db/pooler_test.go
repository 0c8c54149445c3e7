package db_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"berth/db"
	"berth/db/dbtest"
	"berth/db/postgres"
)

// pooled is a server with a schema, and a pooler before it.
func pooled(t *testing.T, settings ...string) (*postgres.Server, *dbtest.Pooler) {
	t.Helper()
	server := dbtest.NewServer(t)
	if err := db.Migrate(t.Context(), server.URL(postgres.Owner, postgres.Database)); err != nil {
		t.Fatal(err)
	}
	return server, dbtest.NewPooler(t, server, settings...)
}

func serviceThrough(t *testing.T, server *postgres.Server, p *dbtest.Pooler) string {
	t.Helper()
	return p.URL(t, server.URL(postgres.Service, postgres.Database))
}

func openThrough(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := db.Open(t.Context(), url, db.Options{Pooler: db.TransactionPooler})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// ignoring has PgBouncer take settings that it then ignores, as people tell it
// when it refuses them.
const ignoring = "ignore_startup_parameters = default_transaction_isolation, idle_in_transaction_session_timeout, lock_timeout"

func TestAPoolerThatNobodyToldOfIsRefused(t *testing.T) {
	t.Parallel()
	for what, settings := range map[string][]string{"as it comes": nil, "that ignores our settings": {ignoring}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server, pooler := pooled(t, settings...)
			pool, err := db.Open(t.Context(), serviceThrough(t, server, pooler), db.Options{})
			if err == nil {
				pool.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), "--database-pooler=transaction") {
				t.Errorf("%q does not tell the way out", err)
			}
			err = db.Migrate(t.Context(), pooler.URL(t, server.URL(postgres.Service, postgres.Database)))
			if err == nil || !strings.Contains(err.Error(), "straight to the server") {
				t.Errorf("migrations through it: %v", err)
			}
		})
	}
}

func TestAPoolerThatSharesNoSessionsIsNoMatter(t *testing.T) {
	t.Parallel()
	server, pooler := pooled(t, ignoring, "pool_mode = session")
	pool, err := db.Open(t.Context(), serviceThrough(t, server, pooler), db.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	pool.Close()
}

func TestTransactionsThroughAPoolerHaveTheirLimits(t *testing.T) {
	t.Parallel()
	server, pooler := pooled(t)
	pool := openThrough(t, serviceThrough(t, server, pooler))
	const limits = "SELECT current_setting('lock_timeout') || ' ' || current_setting('idle_in_transaction_session_timeout') || ' ' || current_setting('transaction_isolation') || ' ' || current_setting('timezone')"
	const want = "15s 10s read committed UTC"
	err := db.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		if got := get[string](t, tx, limits); got != want {
			t.Errorf("in a transaction: %s, want %s", got, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginReading(t.Context(), pool, &db.Pipeline{})
	if err != nil {
		t.Fatal(err)
	}
	if got := get[string](t, tx.DB(), limits); got != want {
		t.Errorf("in a pipelined transaction: %s, want %s", got, want)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := get[string](t, pool, "SHOW lock_timeout"); got == "15s" {
		t.Error("a limit outlived its transaction, on a session that others use")
	}
}

// Nothing of what the program sends may rest on the session that it met before:
// the next statement meets another.
func TestEveryKindOfValueComesThroughAPooler(t *testing.T) {
	t.Parallel()
	server, pooler := pooled(t)
	pool := openThrough(t, serviceThrough(t, server, pooler))
	id, now := uuid.New(), time.Now().UTC().Truncate(time.Microsecond)
	var none *uuid.UUID
	for range 2 { // described, and from what was remembered
		row := pool.QueryRow(t.Context(), `SELECT $1::uuid, $2::uuid, $3::jsonb, $4::timestamptz, $5::uuid[], $6::bytea, $7::text, $8::bigint`,
			id, none, json.RawMessage(`{"a": [1]}`), now, []uuid.UUID{id, id}, []byte{0, 1}, "text", int64(1)<<53-1)
		var (
			gotID    uuid.UUID
			gotNone  *uuid.UUID
			document json.RawMessage
			at       time.Time
			ids      []uuid.UUID
			digest   []byte
			text     string
			epoch    int64
		)
		if err := row.Scan(&gotID, &gotNone, &document, &at, &ids, &digest, &text, &epoch); err != nil {
			t.Fatal(err)
		}
		if gotID != id || gotNone != nil || string(document) != `{"a": [1]}` || at != now || len(ids) != 2 || ids[1] != id ||
			len(digest) != 2 || text != "text" || epoch != 1<<53-1 {
			t.Error(gotID, gotNone, string(document), at, ids, digest, text, epoch)
		}
	}
}
