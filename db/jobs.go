package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// JobsSchema is the schema that River keeps its jobs in. Berth's own migrations make and drop it, and what
// is in it is River's: its tables follow River's own numbered migrations.
const JobsSchema = "river"

// jobsLock keeps programs from running River's migrations at once, which River leaves to its callers.
const jobsLock = 0x6265727469 // the number after grantsLock

// migrateJobs brings River's tables to the newest version that this program has. Each version is one
// transaction with the note that it is done, so a killed program leaves the tables between two versions.
func migrateJobs(ctx context.Context, ownerURL string) (err error) {
	lock, err := takeJobsLock(ctx, ownerURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close(context.WithoutCancel(ctx))) }()

	config, err := pgxpool.ParseConfig(ownerURL)
	if err != nil {
		return fmt.Errorf("migrate the jobs: database URL: %w", err)
	}
	config.MaxConns = 1
	setUnlessSet(config.ConnConfig.RuntimeParams, migrationSettings)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("migrate the jobs: %w", err)
	}
	defer pool.Close()
	migrator, err := jobsMigrator(pool)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return explainMigration(fmt.Errorf("migrate the jobs: %w", err))
	}
	return nil
}

// takeJobsLock waits until no other program migrates the jobs. The lock is the returned session's: it falls
// with the program.
func takeJobsLock(ctx context.Context, ownerURL string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return nil, fmt.Errorf("migrate the jobs: database URL: %w", err)
	}
	setUnlessSet(config.RuntimeParams, migrationSettings)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("migrate the jobs: connect: %w", err)
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", jobsLock); err != nil {
		err = explainMigration(fmt.Errorf("migrate the jobs: wait for another program: %w", err))
		return nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	return conn, nil
}

// jobsMigrator knows River's migrations. Without a pool it only lists them.
func jobsMigrator(pool *pgxpool.Pool) (*rivermigrate.Migrator[pgx.Tx], error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{
		Schema: JobsSchema, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, fmt.Errorf("read River's migrations: %w", err)
	}
	return migrator, nil
}

// JobsVersion is the newest version of River's tables that this program brings.
func JobsVersion() (uint, error) { return jobsVersion() }

var jobsVersion = sync.OnceValues(func() (uint, error) {
	migrator, err := jobsMigrator(nil)
	if err != nil {
		return 0, err
	}
	var newest uint
	for _, migration := range migrator.AllVersions() {
		newest = max(newest, uint(max(migration.Version, 0)))
	}
	return newest, nil
})

// currentJobs is the version of River's tables in the database, 0 when there are none.
func currentJobs(ctx context.Context, db DBTX) (uint, error) {
	var migrated bool
	if err := db.QueryRow(ctx, "SELECT to_regclass('river.river_migration') IS NOT NULL").Scan(&migrated); err != nil {
		return 0, fmt.Errorf("read the version of the jobs' tables: %w", err)
	}
	if !migrated {
		return 0, nil
	}
	var current int64
	err := db.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM river.river_migration WHERE line = 'main'").Scan(&current)
	if err != nil {
		return 0, fmt.Errorf("read the version of the jobs' tables: %w", err)
	}
	return uint(max(current, 0)), nil
}
