package db_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"berth/db"
	"berth/db/dbtest"
)

func TestASchemaThatIsNotTheProgramsIsRefusedWithTheWayOut(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if err := db.CheckSchema(t.Context(), d.Pool); err != nil {
		t.Fatalf("as migrated: %v", err)
	}
	now, err := db.MigrationStatus(t.Context(), d.ServiceURL)
	if err != nil || now.Current != now.Newest || now.Current == 0 || now.Dirty {
		t.Fatalf("as migrated: %+v, %v", now, err)
	}
	owner := connect(t, d.OwnerURL)
	for name, c := range map[string]struct {
		version uint
		dirty   bool
		say     string
	}{
		"older":       {now.Newest - 1, false, "berth migrate up"},
		"newer":       {now.Newest + 7, false, "newer version of Berth"},
		"interrupted": {now.Newest, true, "berth migrate up"},
	} {
		if _, err := owner.Exec(t.Context(), "UPDATE schema_migrations SET version = $1, dirty = $2", c.version, c.dirty); err != nil {
			t.Fatal(err)
		}
		err := db.CheckSchema(t.Context(), d.Pool)
		var wrong *db.SchemaError
		want := now
		want.Current, want.Dirty = c.version, c.dirty
		if !errors.As(err, &wrong) || wrong.Status != want {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		for _, part := range []string{c.say, fmt.Sprint("version ", c.version), fmt.Sprint("version ", now.Newest)} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
	}
}

func TestADatabaseWithoutASchemaIsRefused(t *testing.T) {
	t.Parallel()
	conn := connect(t, emptyDatabase(t, dbtest.New(t)))
	var wrong *db.SchemaError
	if err := db.CheckSchema(t.Context(), conn); !errors.As(err, &wrong) || wrong.Current != 0 {
		t.Errorf("got %v", err)
	}
}

func TestAnInterruptedMigrationOfANewerProgramIsLeftToIt(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	owner := connect(t, d.OwnerURL)
	run(t, owner, "UPDATE schema_migrations SET version = 999999, dirty = true")
	err := db.Migrate(t.Context(), d.OwnerURL)
	if err == nil || !strings.Contains(err.Error(), "999999") {
		t.Errorf("got %v", err)
	}
	if version := get[int](t, owner, "SELECT version FROM schema_migrations WHERE dirty"); version != 999999 {
		t.Errorf("the note was changed to %d", version)
	}
}
