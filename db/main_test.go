package db_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"berth/db"
	"berth/db/dbtest"
)

// migrateURL makes the test binary a program that migrates the database it
// names, for tests that kill such a program.
const migrateURL = "BERTH_DB_TEST_MIGRATE"

// migrateJobsURL does the same for River's tables; the program says first that it begins.
const migrateJobsURL = "BERTH_DB_TEST_MIGRATE_JOBS"

func TestMain(m *testing.M) {
	var err error
	if url := os.Getenv(migrateURL); url != "" {
		err = db.MigrateUp(context.Background(), url, killedMigrations)
	} else if url := os.Getenv(migrateJobsURL); url != "" {
		fmt.Println("begin")
		err = db.MigrateJobs(context.Background(), url)
	} else {
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func run(t *testing.T, on db.DBTX, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := on.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func get[T any](t *testing.T, on db.DBTX, query string, args ...any) T {
	t.Helper()
	var value T
	if err := on.QueryRow(t.Context(), query, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

var emptyDatabases atomic.Int64

// emptyDatabase is the owner's URL of a new database without a schema, on the
// server of the tests.
func emptyDatabase(t *testing.T, d *dbtest.Database) string {
	t.Helper()
	name := fmt.Sprintf("empty_%d_%d", os.Getpid(), emptyDatabases.Add(1))
	admin := connect(t, d.AdminURL)
	run(t, admin, "CREATE DATABASE "+name+" OWNER berth_owner")
	t.Cleanup(func() {
		if _, err := admin.Exec(context.WithoutCancel(t.Context()), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return withDatabase(t, d.OwnerURL, name)
}

// eventually waits for something that others bring about.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !happened() {
		select {
		case <-deadline.C:
			t.Fatalf("gave up waiting until %s", what)
		case <-ticker.C:
		}
	}
}
