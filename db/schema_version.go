package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"

	schema "berth/sql"
)

// Status compares the schema of a database with this program's.
type Status struct {
	Current uint // the version of the database, 0 when it has no schema
	Newest  uint // the version that this program brings
	Dirty   bool // a migration to Current began and was not committed

	JobsCurrent uint // the same of River's tables, where background work queues
	JobsNewest  uint
}

// Fits reports whether this program works on the schema as it is.
func (s Status) Fits() bool {
	return !s.Dirty && s.Current == s.Newest && s.JobsCurrent == s.JobsNewest
}

// SchemaError says that this program must not work on a database, since its
// schema is not the one the program was made for, and what to do about it.
type SchemaError struct{ Status }

func (e *SchemaError) Error() string {
	const migrate = "run berth migrate up with the URL of the schema's owner (BERTH_MIGRATE_URL)"
	switch {
	case e.Dirty:
		return fmt.Sprintf("the migration of the database's schema to version %d was interrupted (this program brings version %d): %s, "+
			"which runs it again", e.Current, e.Newest, migrate)
	case e.Current < e.Newest:
		return fmt.Sprintf("the database's schema has version %d, and this program needs version %d: %s", e.Current, e.Newest, migrate)
	case e.Current == e.Newest && e.JobsCurrent < e.JobsNewest:
		return fmt.Sprintf("the tables of the database's background jobs have version %d, and this program needs version %d: %s",
			e.JobsCurrent, e.JobsNewest, migrate)
	case e.Current == e.Newest:
		return fmt.Sprintf("the tables of the database's background jobs have version %d, and this program knows only up to version %d: "+
			"run a newer version of Berth", e.JobsCurrent, e.JobsNewest)
	default:
		return fmt.Sprintf("the database's schema has version %d, and this program knows only up to version %d: "+
			"run a newer version of Berth, or berth migrate status to see", e.Current, e.Newest)
	}
}

// MigrationStatus compares the schema of the database at url with this
// program's. Any role that may read the table schema_migrations can ask.
func MigrationStatus(ctx context.Context, url string) (Status, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return Status{}, fmt.Errorf("read the schema's version: connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it only read
	return wholeStatus(ctx, conn)
}

// CheckSchema refuses, with a *SchemaError, to work on a database whose schema
// is older or newer than this program's, or was left in the middle of a
// migration.
func CheckSchema(ctx context.Context, db DBTX) error {
	status, err := wholeStatus(ctx, db)
	if err != nil {
		return err
	}
	return status.check()
}

func (s Status) check() error {
	if !s.Fits() {
		return &SchemaError{Status: s}
	}
	return nil
}

// wholeStatus is the status of Berth's schema and of River's beside it.
func wholeStatus(ctx context.Context, db DBTX) (Status, error) {
	status, err := schemaStatus(ctx, db, schema.Migrations)
	if err != nil {
		return Status{}, err
	}
	if status.JobsNewest, err = JobsVersion(); err != nil {
		return Status{}, err
	}
	status.JobsCurrent, err = currentJobs(ctx, db)
	return status, err
}

func schemaStatus(ctx context.Context, db DBTX, files fs.FS) (Status, error) {
	newest, err := newestMigration(files)
	if err != nil {
		return Status{}, err
	}
	status := Status{Newest: newest}
	var migrated bool
	if err := db.QueryRow(ctx, "SELECT to_regclass('schema_migrations') IS NOT NULL").Scan(&migrated); err != nil {
		return Status{}, fmt.Errorf("read the schema's version: %w", err)
	}
	if !migrated {
		return status, nil
	}
	var current int64
	err = db.QueryRow(ctx, "SELECT version, dirty FROM schema_migrations").Scan(&current, &status.Dirty)
	if errors.Is(err, pgx.ErrNoRows) {
		return status, nil // all migrations were taken back
	}
	if err != nil {
		return Status{}, fmt.Errorf("read the schema's version: %w", err)
	}
	status.Current = uint(max(current, 0))
	return status, nil
}
