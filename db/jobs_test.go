package db_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"berth/db"
	"berth/db/dbtest"
	schema "berth/sql"
)

func TestTablesOfJobsThatAreNotTheProgramsAreRefusedWithTheWayOut(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	owner := connect(t, d.OwnerURL)
	newest, err := db.JobsVersion()
	if err != nil || newest < 7 {
		t.Fatalf("River brings version %d, %v", newest, err)
	}
	for what, c := range map[string]struct {
		change string
		say    string
	}{
		"older": {"DELETE FROM river.river_migration WHERE version = (SELECT max(version) FROM river.river_migration)", "berth migrate up"},
		"none":  {"DROP SCHEMA river CASCADE; CREATE SCHEMA river", "berth migrate up"},
		"newer": {"INSERT INTO river.river_migration (line, version) VALUES ('main', 999)", "newer version of Berth"},
	} {
		run(t, owner, "BEGIN", c.change)
		err := db.CheckSchema(t.Context(), owner)
		var wrong *db.SchemaError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), "jobs") {
			t.Errorf("%s: got %v", what, err)
		}
		run(t, owner, "ROLLBACK")
	}
	run(t, owner, "DROP SCHEMA river CASCADE; CREATE SCHEMA river")
	if err := db.Migrate(t.Context(), d.OwnerURL); err != nil {
		t.Fatal(err)
	}
	if err := db.CheckSchema(t.Context(), d.Pool); err != nil {
		t.Errorf("migrated again, with the service's rights: %v", err)
	}
}

func TestTheAuditorSeesNothingOfTheJobs(t *testing.T) {
	t.Parallel()
	admin := connect(t, dbtest.New(t).AdminURL)
	run(t, admin, "SET ROLE berth_auditor")
	_, err := admin.Exec(t.Context(), "SELECT FROM river.river_job")
	if err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("got %v", err)
	}
}

func TestAProgramThatMigratesTheJobsMayBeKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t, dbtest.New(t))
	if err := db.MigrateUp(t.Context(), url, schema.Migrations); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := db.MigrateJobs(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(began)
	conn := connect(t, url)
	const moments = 12
	for i := range moments {
		run(t, conn, "DROP SCHEMA river CASCADE", "CREATE SCHEMA river")
		program := exec.CommandContext(t.Context(), os.Args[0])
		program.Env = append(os.Environ(), migrateJobsURL+"="+url)
		begun, err := program.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := begun.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(2*whole*time.Duration(i)/moments, func() { _ = program.Process.Kill() })
		_ = program.Wait()
		kill.Stop()
		if err := db.Migrate(t.Context(), url); err != nil {
			t.Fatalf("after a kill at moment %d of %d: %v", i, moments, err)
		}
		if err := db.CheckSchema(t.Context(), conn); err != nil {
			t.Errorf("after a kill at moment %d of %d: %v", i, moments, err)
		}
	}
}
