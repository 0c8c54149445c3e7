package db

import (
	"context"
	"io/fs"

	"github.com/golang-migrate/migrate/v4"
)

// MigrateUp is migrateUp, for tests with migrations of their own.
var MigrateUp = migrateUp

// MigrateJobs is migrateJobs, for tests that kill a program in it.
var MigrateJobs = migrateJobs

// MigrateDown takes all migrations back.
func MigrateDown(ctx context.Context, ownerURL string, files fs.FS) error {
	return withMigrations(ctx, ownerURL, files, (*migrate.Migrate).Down)
}

// StatusOf is the status of a database, compared with the given migrations.
func StatusOf(ctx context.Context, db DBTX, files fs.FS) (Status, error) {
	return schemaStatus(ctx, db, files)
}
