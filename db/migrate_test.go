package db_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"berth/db"
	"berth/db/dbtest"
	"berth/db/postgres"
	schema "berth/sql"
)

// migrations are files for a small schema of a test's own.
func migrations(texts ...string) fstest.MapFS {
	files := fstest.MapFS{}
	for i, text := range texts {
		name := "migrations/00000" + string(rune('1'+i)) + "_step"
		files[name+".up.sql"] = &fstest.MapFile{Data: []byte(text)}
		files[name+".down.sql"] = &fstest.MapFile{Data: []byte("DROP TABLE t" + string(rune('1'+i)))}
	}
	return files
}

func TestMigrationsGoUpDownAndUpAgainToTheSameSchema(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t) // is up already
	first := schemaText(t, d)

	if err := db.MigrateDown(t.Context(), d.OwnerURL, schema.Migrations); err != nil {
		t.Fatalf("down: %v", err)
	}
	owner := connect(t, d.OwnerURL)
	left := get[[]string](t, owner, `SELECT coalesce(array_agg(name ORDER BY name), '{}') FROM (
		SELECT relname::text AS name FROM pg_class WHERE relnamespace = 'public'::regnamespace
			AND relname NOT LIKE 'schema_migrations%'
		UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
		UNION ALL SELECT nspname::text FROM pg_namespace WHERE nspowner = 'berth_owner'::regrole
		UNION ALL SELECT extname::text FROM pg_extension WHERE extname <> 'plpgsql') AS objects`)
	if len(left) > 0 {
		t.Errorf("the way down leaves %q", left)
	}
	status, err := db.MigrationStatus(t.Context(), d.OwnerURL)
	if err != nil || status.Current != 0 || status.Dirty {
		t.Errorf("after the way down: %+v, %v", status, err)
	}
	if err := db.Migrate(t.Context(), d.OwnerURL); err != nil {
		t.Fatalf("up again: %v", err)
	}
	if difference := cmp.Diff(first, schemaText(t, d)); difference != "" {
		t.Errorf("the schema differs (-first +again):\n%s", difference)
	}
}

// schemaText is all of a database's schema and its rights as text: by pg_dump,
// or where that is missing from the catalog.
func schemaText(t *testing.T, d *dbtest.Database) []string {
	t.Helper()
	admin := connect(t, d.AdminURL)
	dump := filepath.Join(get[string](t, admin, "SELECT setting FROM pg_config WHERE name = 'BINDIR'"), "pg_dump")
	if _, err := os.Stat(dump); err == nil {
		out, err := exec.Command(dump, "--schema-only", d.AdminURL).Output()
		if err != nil {
			t.Fatalf("%s: %v", dump, err)
		}
		var lines []string
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, `\`) { // \restrict has a new key each time
				lines = append(lines, line)
			}
		}
		return lines
	}
	return get[[]string](t, admin, `SELECT array_agg(line ORDER BY line) FROM (
		SELECT concat_ws(' ', 'column', attrelid::regclass, attnum, attname, format_type(atttypid, atttypmod), attnotnull,
				pg_get_expr(adbin, adrelid), relacl, attacl) AS line
			FROM pg_attribute JOIN pg_class c ON c.oid = attrelid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
			WHERE relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('public', 'audit')) AND attnum > 0 AND NOT attisdropped
		UNION ALL SELECT concat_ws(' ', 'constraint', conrelid::regclass, conname, pg_get_constraintdef(oid)) FROM pg_constraint
		UNION ALL SELECT concat_ws(' ', 'index', pg_get_indexdef(indexrelid)) FROM pg_index
			JOIN pg_class c ON c.oid = indrelid WHERE relnamespace = 'public'::regnamespace
		UNION ALL SELECT concat_ws(' ', 'trigger', tgrelid::regclass, pg_get_triggerdef(oid)) FROM pg_trigger WHERE NOT tgisinternal
		UNION ALL SELECT concat_ws(' ', 'function', pg_get_functiondef(p.oid), proacl) FROM pg_proc p
			WHERE pronamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('public', 'audit')) AND prokind = 'f'
		UNION ALL SELECT concat_ws(' ', 'view', viewname, definition) FROM pg_views WHERE schemaname IN ('public', 'audit')
	) AS lines`)
}

func TestSixProgramsMigrateAtOnceAndAllAreReady(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t, dbtest.New(t))
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if err := db.Migrate(t.Context(), url); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := db.CheckSchema(t.Context(), connect(t, url)); err != nil {
		t.Error(err)
	}
}

func TestAMigrationThatFailsLeavesNothingAndRunsWhenItIsMended(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t, dbtest.New(t))
	good, bad := "CREATE TABLE t1 (n int)", "CREATE TABLE t2 (n int); SELECT 1/0 -- the end"
	conn := connect(t, url)
	for range 2 { // the second time it says the same, and nothing of "dirty"
		err := db.MigrateUp(t.Context(), url, migrations(good, bad))
		if err == nil || !strings.Contains(err.Error(), "division by zero") {
			t.Fatalf("got %v", err)
		}
		if get[bool](t, conn, "SELECT to_regclass('t2') IS NOT NULL") {
			t.Error("the file was done in part")
		}
	}
	mended := migrations(good, "CREATE TABLE t2 (n int)", "CREATE TABLE t3 (n int)")
	if err := db.MigrateUp(t.Context(), url, mended); err != nil {
		t.Fatal(err)
	}
	status, err := db.StatusOf(t.Context(), conn, mended)
	if want := (db.Status{Current: 3, Newest: 3}); err != nil || status != want {
		t.Errorf("got %+v, %v, want %+v", status, err, want)
	}
}

func TestTheFirstMigrationCanFailToo(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t, dbtest.New(t))
	if err := db.MigrateUp(t.Context(), url, migrations("SELECT 1/0")); err == nil {
		t.Fatal("it did not fail")
	}
	if err := db.MigrateUp(t.Context(), url, migrations("CREATE TABLE t1 (n int)")); err != nil {
		t.Fatal(err)
	}
	if err := db.MigrateDown(t.Context(), url, migrations("")); err != nil {
		t.Fatal(err)
	}
}

func TestAMigrationWhoseSessionIsCutIsRunAgain(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	url := emptyDatabase(t, d)
	first := "CREATE TABLE t1 (n int)"
	failed := make(chan error)
	go func() {
		failed <- db.MigrateUp(t.Context(), url, migrations(first, "CREATE TABLE t2 (n int); SELECT pg_sleep(600)"))
	}()
	conn := connect(t, url)
	const cut = `SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity
		WHERE datname = current_database() AND query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()`
	eventually(t, "the migration is at work", func() bool { return get[bool](t, conn, cut) })
	if err := <-failed; err == nil {
		t.Fatal("the migration did not notice")
	}
	quick := migrations(first, "CREATE TABLE t2 (n int)")
	status, err := db.StatusOf(t.Context(), conn, quick)
	if want := (db.Status{Current: 2, Newest: 2, Dirty: true}); err != nil || status != want {
		t.Fatalf("got %+v, %v, want %+v", status, err, want)
	}
	if err := db.MigrateUp(t.Context(), url, quick); err != nil {
		t.Fatal(err)
	}
	if !get[bool](t, conn, "SELECT to_regclass('t2') IS NOT NULL") {
		t.Error("the second file was left out")
	}
}

func TestAMigrationInProgressIsNotTakenForACrashedOne(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	url := emptyDatabase(t, d)
	files := migrations("CREATE TABLE t1 (n int)", "SELECT pg_advisory_xact_lock(7); CREATE TABLE t2 (n int)")
	gate := connect(t, url)
	run(t, gate, "SELECT pg_advisory_lock(7)")
	done := make(chan error)
	go func() { done <- db.MigrateUp(t.Context(), url, files) }()
	waiting := func(n int) func() bool {
		return func() bool {
			return n == get[int](t, gate, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event = 'advisory'`)
		}
	}
	eventually(t, "the first program is in the middle of its file", waiting(1))
	if status, err := db.StatusOf(t.Context(), gate, files); err != nil || !status.Dirty {
		t.Fatalf("got %+v, %v, want a note that the file is at work", status, err)
	}
	go func() { done <- db.MigrateUp(t.Context(), url, files) }()
	eventually(t, "the second program waits for the first", waiting(2))
	run(t, gate, "SELECT pg_advisory_unlock(7)")
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestAMigratingProgramMayBeKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t, dbtest.New(t))
	// How long it takes when nobody disturbs it.
	began := time.Now()
	if out, err := migrateElsewhere(t, url).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	whole := time.Since(began)
	conn := connect(t, url)
	const moments = 20
	for i := range moments {
		if err := db.MigrateDown(t.Context(), url, killedMigrations); err != nil {
			t.Fatal(err)
		}
		program := migrateElsewhere(t, url)
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(whole*time.Duration(i)/moments, func() { _ = program.Process.Kill() })
		_ = program.Wait()
		kill.Stop()
		if err := db.MigrateUp(t.Context(), url, killedMigrations); err != nil {
			t.Fatalf("after a kill at moment %d of %d: %v", i, moments, err)
		}
		status, err := db.StatusOf(t.Context(), conn, killedMigrations)
		if err != nil || status.Dirty || status.Current != status.Newest {
			t.Errorf("after a kill at moment %d of %d: %+v, %v", i, moments, status, err)
		}
	}
}

// killedMigrations are many small ones: most of the time goes to the notes
// about them, between which a kill would hurt.
var killedMigrations = func() fstest.MapFS {
	var texts []string
	for i := range 9 {
		texts = append(texts, fmt.Sprintf("CREATE TABLE t%d (n int)", i+1))
	}
	return migrations(texts...)
}()

func migrateElsewhere(t *testing.T, url string) *exec.Cmd {
	t.Helper()
	program := exec.CommandContext(t.Context(), os.Args[0])
	program.Env = append(os.Environ(), migrateURL+"="+url)
	return program
}

func TestAMigrationThatWaitsTooLongSaysForWhat(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t, dbtest.New(t))
	files := migrations("CREATE TABLE t1 (n int)", "ALTER TABLE t1 ADD COLUMN m int; CREATE TABLE t2 (n int)")
	if err := db.MigrateUp(t.Context(), url, migrations("CREATE TABLE t1 (n int)")); err != nil {
		t.Fatal(err)
	}
	busy, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := busy.Exec(t.Context(), "SELECT * FROM t1"); err != nil {
		t.Fatal(err)
	}
	err = db.MigrateUp(t.Context(), withParam(t, url, "lock_timeout", "200ms"), files)
	if err == nil || !strings.Contains(err.Error(), "pg_stat_activity") || !strings.Contains(err.Error(), "berth migrate up") {
		t.Errorf("got %v", err)
	}
	if err := busy.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.MigrateUp(t.Context(), url, files); err != nil {
		t.Errorf("when the table is free: %v", err)
	}
}

func TestAGivenUpMigrationStopsBetweenTwoFiles(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t, dbtest.New(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.Migrate(ctx, url); err == nil {
		t.Error("it ignores its context")
	}
	if err := db.Migrate(t.Context(), url); err != nil {
		t.Error(err)
	}
}

func TestADatabaseWithOneRoleIsMigratedWithoutGrants(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	// As on a hosted server: one role, one database, nothing of Berth.
	run(t, connect(t, server.URL(postgres.Superuser, "postgres")), "DROP DATABASE berth", "DROP ROLE berth, berth_owner, berth_auditor",
		"CREATE ROLE app LOGIN PASSWORD 'app'", "CREATE DATABASE app OWNER app")
	config, err := pgx.ParseConfig(server.URL("app", "app"))
	if err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(config.ConnString(), "app@", "app:app@", 1)
	if err := db.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	pool, err := db.Open(t.Context(), url, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := db.CheckSchema(t.Context(), pool); err != nil {
		t.Error(err)
	}
}
