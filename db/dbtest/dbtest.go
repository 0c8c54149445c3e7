// Package dbtest gives each test a migrated database of its own.
//
// The first database of a program starts a private Postgres server, which is
// gone when the program is, so that `go test ./...` works on a bare machine.
// BERTH_TEST_DATABASE_URL names a server to use instead: a superuser's URL, of
// a server that holds nothing but tests, since the passwords of Berth's roles
// on it are changed.
//
// Databases are clones of a template that is migrated once (pgtestdb).
package dbtest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/peterldowns/pgtestdb"

	"berth/db"
	"berth/db/postgres"
	schema "berth/sql"
)

// Database is one test's own. Nobody else uses it, and it is dropped when the
// test succeeded.
type Database struct {
	// Pool is connected as the service, the role berth: it may do what the
	// running product may do, and no more.
	Pool *pgxpool.Pool

	// ServiceURL is the way of that role, straight to the server.
	ServiceURL string

	// OwnerURL connects as berth_owner, who owns the schema.
	OwnerURL string

	// AdminURL connects as the server's superuser, to look at sessions or to
	// end them. The server is shared with other tests.
	AdminURL string

	poolURL string // where Pool is connected to
}

// New makes a database with the newest schema and connects to it. The test
// fails when there is no server to be had. Connections that a test opened by
// itself have to be closed before its end.
func New(t testing.TB) *Database {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	config := pgtestdb.Custom(t, s.config(), migrator{})
	d := &Database{
		ServiceURL: s.url(postgres.Service, config.Database),
		OwnerURL:   s.url(postgres.Owner, config.Database),
		AdminURL:   s.url("", config.Database),
	}
	d.poolURL = d.ServiceURL
	if s.pooler != nil {
		d.poolURL = s.pooler.URL(t, d.ServiceURL)
	}
	d.Pool = d.open(t, 0)
	// Clean-ups run in reverse order: this one comes before pgtestdb's, which
	// drops the database.
	t.Cleanup(func() {
		d.Pool.Close()
		if err := s.awaitSilence(config.Database); err != nil {
			t.Errorf("dbtest: %v", err)
		}
	})
	return d
}

// Open makes another pool of the service, of at most so many connections, on
// the way that Pool goes. It is closed with the test.
func (d *Database) Open(t testing.TB, maxConns int32) *pgxpool.Pool {
	t.Helper()
	pool := d.open(t, maxConns)
	t.Cleanup(pool.Close)
	return pool
}

func (d *Database) open(t testing.TB, maxConns int32) *pgxpool.Pool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	pool, err := db.Open(ctx, d.poolURL, poolerOptions(maxConns))
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	return pool
}

// config is what pgtestdb needs to know. Its test role makes and owns the
// databases.
func (s *server) config() pgtestdb.Config {
	password, _ := s.admin.User.Password()
	port := s.admin.Port()
	if port == "" {
		port = "5432"
	}
	return pgtestdb.Config{
		DriverName: s.driver,
		Host:       s.admin.Hostname(),
		Port:       port,
		// pgtestdb puts these into a URL as they are.
		User:     url.PathEscape(s.admin.User.Username()),
		Password: url.PathEscape(password),
		Database: adminDatabase,
		Options:  s.admin.RawQuery,
		TestRole: &pgtestdb.Role{
			Username:     postgres.Owner,
			Password:     s.passwords[postgres.Owner],
			Capabilities: pgtestdb.DefaultRoleCapabilities,
		},
	}
}

// awaitSilence waits until the sessions on a database are gone. A session ends
// a moment after its connection is closed, and DROP DATABASE sleeps for 100 ms
// when it meets one.
func (s *server) awaitSilence(database string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	if s.pooler != nil {
		if err := s.pooler.letGo(ctx, database); err != nil {
			return err
		}
	}
	for {
		var sessions int
		err := s.pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = $1", database).Scan(&sessions)
		if err == nil && sessions == 0 {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if err == nil {
				err = fmt.Errorf("%d connections to it are still open: the test has to close what it opened", sessions)
			}
			return fmt.Errorf("the test's database %s cannot be dropped: %w", database, err)
		}
	}
}

// migrator makes pgtestdb's template the way the product makes its schema.
type migrator struct{}

// Hash changes whenever the schema or a role's rights do.
func (migrator) Hash() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(schema.Migrations, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(schema.Migrations, path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(sum, "%s %d\n%s", path, len(content), content)
		return err
	})
	if err != nil {
		return "", err
	}
	jobs, err := db.JobsVersion()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(sum, "%d %d\n%s%s", jobs, len(schema.Roles), schema.Roles, schema.Grants)
	return hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

func (migrator) Migrate(ctx context.Context, _ *sql.DB, config pgtestdb.Config) error {
	return db.Migrate(ctx, config.URL())
}
