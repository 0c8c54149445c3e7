package db_test

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"berth/db"
	"berth/db/dbtest"
	"berth/db/postgres"
)

// withParam adds a parameter to a database URL.
func withParam(t *testing.T, address, name, value string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // as Postgres reads it
	return u.String()
}

// withDatabase leads a database URL to another database.
func withDatabase(t *testing.T, address, name string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func TestEveryConnectionHasItsSettings(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for name, want := range map[string]string{
		"application_name":                    "berth",
		"default_transaction_isolation":       "read committed",
		"idle_in_transaction_session_timeout": "10s",
		"lock_timeout":                        "15s",
	} {
		if got := get[string](t, d.Pool, "SELECT current_setting($1)", name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if size := d.Pool.Config().MaxConns; size != db.DefaultMaxConns {
		t.Errorf("the pool has %d connections", size)
	}
	own, err := db.Open(t.Context(), withParam(t, d.ServiceURL, "lock_timeout", "3s"), db.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if got := get[string](t, own, "SHOW lock_timeout"); got != "3s" {
		t.Errorf("the URL's lock_timeout became %s", got)
	}
}

func TestTimesAreReadInUTC(t *testing.T) {
	// Not in parallel: the local zone is the whole program's.
	local := time.Local
	time.Local = time.FixedZone("somewhere", -7*3600)
	defer func() { time.Local = local }()
	d := dbtest.New(t)
	for _, got := range []*time.Time{
		new(get[time.Time](t, d.Pool, "SELECT '2026-11-30 12:00:00.123456+02'::timestamptz")),
		get[*time.Time](t, d.Pool, "SELECT '2026-11-30 12:00:00.123456+02'::timestamptz"),
	} {
		if text := got.Format(time.RFC3339Nano); text != "2026-11-30T10:00:00.123456Z" {
			t.Errorf("read %s", text)
		}
	}
}

func TestAnotherIsolationLevelIsRefused(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	pool, err := db.Open(t.Context(), withParam(t, d.ServiceURL, "default_transaction_isolation", "repeatable read"), db.Options{})
	if err == nil {
		pool.Close()
		t.Fatal("opened")
	}
	if !strings.Contains(err.Error(), "repeatable read") || !strings.Contains(err.Error(), "default_transaction_isolation") {
		t.Errorf("%q does not say what is wrong", err)
	}
}

func TestAnErrorDoesNotShowThePassword(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"postgres://berth:s3cret@127.0.0.1:1/berth",
		"postgres://berth:s3cret@127.0.0.1:1/berth?sslmode=nonsense",
		"postgres://berth:s3cret@127.0.0.1:port/berth",
	} {
		_, err := db.Open(t.Context(), address, db.Options{})
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", address, err)
		}
		if err := db.Migrate(t.Context(), address); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("migrate %s: %v", address, err)
		}
	}
}

func TestAPoolOutlivesTheServersRestart(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	pool, err := db.Open(t.Context(), server.URL(postgres.Service, postgres.Database), db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	dir := server.Dir()
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := pool.Exec(ctx, "SELECT 1")
		return err
	}
	for range 3 { // on the connection that was lost, and on new ones
		if err := ask(); !db.IsUnavailable(err) {
			t.Errorf("without a server: %v", err)
		}
	}
	again, err := postgres.Start(t.Context(), postgres.Config{Dir: dir, Ephemeral: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop() //nolint:errcheck // another package's test
	eventually(t, "the pool works again", func() bool { return ask() == nil })
}
