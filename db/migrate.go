package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	schema "berth/sql"
)

const (
	// migrationsLockTimeout bounds the wait for another program that migrates.
	migrationsLockTimeout = 2 * time.Minute

	// migrationsStatementWait bounds the wait of one statement for a lock: for
	// the other program's, which the driver takes without a limit at first, and
	// for a table's, behind which everybody else queues. A lock_timeout in the
	// URL replaces it.
	migrationsStatementWait = "45s"

	// grantsLock keeps programs from writing the same grants at once, which
	// Postgres answers with "tuple concurrently updated".
	grantsLock = 0x6265727468 // "berth"
)

// migrationSettings hold for the connections of a migration, unless its URL
// says otherwise.
var migrationSettings = map[string]string{
	"application_name": "berth migrate",
	"lock_timeout":     migrationsStatementWait,
}

// Migrate brings the schema of the database at ownerURL, and River's beside it,
// to the newest version that this program has, and gives the roles their rights. ownerURL is
// the address for the role that owns the schema, straight to the server: not
// through a pooler.
//
// Any number of programs may do it at once; one works and the others wait. One
// that is killed leaves the schema between two migrations, and the next one
// goes on from there. The rights are left alone where the roles do not exist,
// as on somebody else's server with one role for everything.
func Migrate(ctx context.Context, ownerURL string) error {
	if err := proveDirect(ctx, ownerURL); err != nil {
		return fmt.Errorf("migrate: connect: %w", err)
	}
	if err := migrateUp(ctx, ownerURL, schema.Migrations); err != nil {
		return err
	}
	if err := migrateJobs(ctx, ownerURL); err != nil {
		return err
	}
	return grant(ctx, ownerURL, schema.Grants)
}

// migrateUp applies the migrations in the folder "migrations" of files that the
// database does not have yet.
func migrateUp(ctx context.Context, ownerURL string, files fs.FS) error {
	return withMigrations(ctx, ownerURL, files, (*migrate.Migrate).Up)
}

// withMigrations connects to the database and has step work on it.
func withMigrations(ctx context.Context, ownerURL string, files fs.FS, step func(*migrate.Migrate) error) error {
	config, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return fmt.Errorf("migrate: database URL: %w", err)
	}
	setUnlessSet(config.RuntimeParams, migrationSettings)
	pool := stdlib.OpenDB(*config)
	defer pool.Close() //nolint:errcheck // closed by the driver already, unless it was never made
	if err := pool.PingContext(ctx); err != nil {
		return fmt.Errorf("migrate: connect: %w", err)
	}
	migrations, err := iofs.New(files, "migrations")
	if err != nil {
		return fmt.Errorf("migrate: read the migrations: %w", err)
	}
	driver, err := migratepgx.WithInstance(pool, &migratepgx.Config{})
	if err != nil {
		return explainMigration(fmt.Errorf("migrate: %w", err))
	}
	m, err := migrate.NewWithInstance("embedded", migrations, "pgx5", &atomicDriver{Driver: driver, files: migrations})
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	m.LockTimeout = migrationsLockTimeout
	stopped := context.AfterFunc(ctx, func() { m.GracefulStop <- true })
	defer stopped()
	err = step(m)
	if errors.Is(err, migrate.ErrNoChange) {
		err = nil
	}
	fromFiles, fromDatabase := m.Close()
	if err = errors.Join(err, fromFiles, fromDatabase, ctx.Err()); err != nil {
		return explainMigration(fmt.Errorf("migrate: %w", err))
	}
	return nil
}

// proveDirect refuses a way to the server through a transaction pooler. What
// keeps two programs from migrating at once is a lock of the session.
func proveDirect(ctx context.Context, ownerURL string) error {
	config, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return fmt.Errorf("database URL: %w", err)
	}
	setUnlessSet(config.RuntimeParams, migrationSettings)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it only read
		var backend int32
		if backend, err = backendOf(ctx, conn); err == nil && throughPooler(conn, backend) {
			err = refuseSharedSessions(ctx, config)
		}
	}
	return explainPooler(err, "give the migrations a URL that leads straight to the server")
}

// explainMigration says what failed without the whole text of the migration,
// and adds the way out to errors that hide it.
func explainMigration(err error) error {
	var failed database.Error
	if errors.As(err, &failed) {
		err = fmt.Errorf("migrate: line %d of the file: %w", failed.Line, failed.OrigErr)
	}
	refusal := refusalOf(err)
	if errors.Is(err, migrate.ErrLockTimeout) || refusal != nil && refusal.Code == codeLockNotAvailable {
		return fmt.Errorf("%w: another program is migrating this database, or holds a lock that the migration needs; "+
			"pg_stat_activity shows it. When it is done run: berth migrate up", err)
	}
	return err
}

// grant runs the text that says what the roles may do, if the roles are there.
func grant(ctx context.Context, ownerURL, grants string) error {
	conn, err := pgx.Connect(ctx, ownerURL)
	if err != nil {
		return fmt.Errorf("grant rights: connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // committed or rolled back
	var complete bool
	err = conn.QueryRow(ctx, "SELECT count(*) = 2 FROM pg_roles WHERE rolname IN ('berth', 'berth_auditor')").Scan(&complete)
	if err != nil {
		return fmt.Errorf("grant rights: look for the roles: %w", err)
	}
	if !complete {
		slog.InfoContext(ctx, "the roles berth and berth_auditor do not exist on this server; the schema's owner keeps all rights to itself")
		return nil
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", grantsLock); err != nil {
			return fmt.Errorf("grant rights: wait for another program: %w", err)
		}
		if _, err := tx.Exec(ctx, grants); err != nil {
			return fmt.Errorf("grant rights: %w", err)
		}
		return nil
	})
}

// newestMigration is the highest version among the migrations.
func newestMigration(files fs.FS) (uint, error) {
	migrations, err := iofs.New(files, "migrations")
	if err != nil {
		return 0, fmt.Errorf("read the migrations: %w", err)
	}
	defer migrations.Close() //nolint:errcheck // nothing is open
	return lastVersion(migrations)
}

func lastVersion(migrations source.Driver) (uint, error) {
	version, err := migrations.First()
	for err == nil {
		var next uint
		if next, err = migrations.Next(version); err == nil {
			version = next
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("read the migrations: %w", err)
	}
	return version, nil
}
