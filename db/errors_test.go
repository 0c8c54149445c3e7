package db_test

import (
	"errors"
	"fmt"
	"testing"

	"berth/db"
	"berth/db/dbtest"
)

func TestTextThatPostgresCannotStoreIsRecognised(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for name, c := range map[string]struct {
		query string
		arg   string
		want  bool
	}{
		"a zero byte":         {"SELECT $1::text", "a\x00b", true},
		"not UTF-8":           {"SELECT $1::text", "a\xffb", true},
		"a zero byte in JSON": {"SELECT $1::text::jsonb ->> 'a'", `{"a": "\u0000"}`, true},
		"not a number":        {"SELECT $1::text::int", "x", false},
		"good text":           {"SELECT $1::text", "grün", false},
	} {
		_, err := d.Pool.Exec(t.Context(), c.query, c.arg)
		if db.IsInvalidText(err) != c.want || db.IsUnavailable(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheNameOfTheConstraintThatRefusedIsFound(t *testing.T) {
	t.Parallel()
	pool, _ := counters(t, 1)
	for want, statement := range map[string]string{
		"counters_pkey":         "INSERT INTO counters VALUES (1)",
		"counters_not_negative": "UPDATE counters SET n = -1",
		"by_a_trigger":          "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'check_violation', CONSTRAINT = 'by_a_trigger'; END $$",
		"":                      "SELECT 1/0",
	} {
		_, err := pool.Exec(t.Context(), statement)
		if got := db.ConstraintName(fmt.Errorf("wrapped: %w", err)); err == nil || got != want {
			t.Errorf("%s: constraint %q, want %q (%v)", statement, got, want, err)
		}
	}
	var n int
	err := pool.QueryRow(t.Context(), "SELECT n FROM counters WHERE id = 99").Scan(&n)
	if !db.IsNoRows(fmt.Errorf("wrapped: %w", err)) || db.ConstraintName(err) != "" {
		t.Errorf("no row: %v", err)
	}
}

func TestWhatPassesIsToldFromWhatDoesNot(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for code, want := range map[string]bool{
		"disk_full":                           true,
		"out_of_memory":                       true,
		"too_many_connections":                true,
		"admin_shutdown":                      true,
		"crash_shutdown":                      true,
		"cannot_connect_now":                  true,
		"connection_failure":                  true,
		"read_only_sql_transaction":           true,
		"lock_not_available":                  true,
		"query_canceled":                      true,
		"deadlock_detected":                   true,
		"io_error":                            true,
		"unique_violation":                    false,
		"undefined_table":                     false,
		"insufficient_privilege":              false,
		"feature_not_supported":               false,
		"invalid_text_representation":         false,
		"internal_error":                      false,
		"idle_in_transaction_session_timeout": true,
	} {
		_, err := d.Pool.Exec(t.Context(), "DO $$ BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '"+code+"'; END $$")
		if err == nil || db.IsUnavailable(err) != want {
			t.Errorf("%s: unavailable %v, want %v (%v)", code, db.IsUnavailable(err), want, err)
		}
	}
	if db.IsUnavailable(nil) || db.IsUnavailable(errors.New("a bug")) {
		t.Error("no error, or any error, is taken for an unavailable database")
	}
}

func TestADatabaseThatTurnsConnectionsAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	owner := connect(t, d.OwnerURL)
	name := get[string](t, owner, "SELECT current_database()")

	run(t, owner, "ALTER DATABASE "+name+" SET default_transaction_read_only = on")
	readOnly, err := db.Open(t.Context(), d.ServiceURL, db.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = readOnly.Exec(t.Context(), "DELETE FROM idempotency_keys")
	readOnly.Close()
	if !db.IsUnavailable(err) {
		t.Errorf("read-only: %v", err)
	}
	run(t, owner, "ALTER DATABASE "+name+" RESET default_transaction_read_only",
		"ALTER DATABASE "+name+" CONNECTION LIMIT 1")
	if _, err := db.Open(t.Context(), d.ServiceURL, db.Options{}); !db.IsUnavailable(err) {
		t.Errorf("too many connections: %v", err)
	}
}
