package dbtest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"berth/db/postgres"
)

// adminDatabase is the database that every server has; test databases are made
// from there.
const adminDatabase = "postgres"

// server is where the databases of this program are.
type server struct {
	admin     *url.URL // the superuser's, and its own database
	driver    string   // what pgtestdb connects with
	passwords map[string]string
	pool      *pgxpool.Pool // of the superuser, for awaitSilence
	pooler    *Pooler       // nil unless the environment asks for one
}

// shared is the one server of this program, started or found by the first test
// that needs it.
var shared = sync.OnceValues(func() (*server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s, err := find(ctx)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(s.admin.String())
	if err != nil {
		return nil, err
	}
	config.MaxConns = 2
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil || !Pooled() {
		return s, err
	}
	return s, s.putPooler(ctx)
})

// putPooler puts the pooler that the environment asks for before the server.
func (s *server) putPooler(ctx context.Context) error {
	program, err := exec.LookPath(os.Getenv(poolerVariable))
	if err != nil {
		return fmt.Errorf("%s: %w", poolerVariable, err)
	}
	dir, err := newFolder()
	if err == nil {
		s.pooler, err = startPooler(ctx, program, dir, s.admin, s.passwords, nil)
	}
	return err
}

func find(ctx context.Context) (*server, error) {
	if named := os.Getenv("BERTH_TEST_DATABASE_URL"); named != "" {
		return use(ctx, named)
	}
	dir, err := newFolder()
	if err != nil {
		return nil, err
	}
	return startIn(ctx, dir)
}

// startIn starts a private server. Nobody stops it: it ends with this program.
func startIn(ctx context.Context, dir string) (*server, error) {
	private, err := postgres.Start(ctx, postgres.Config{
		Dir:       filepath.Join(dir, "pg"),
		Ephemeral: true,
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	s := &server{driver: quickDriver, passwords: make(map[string]string)}
	if s.admin, err = url.Parse(private.URL(postgres.Superuser, adminDatabase)); err != nil {
		return nil, errors.Join(err, private.Stop())
	}
	for _, role := range []string{postgres.Owner, postgres.Service} {
		u, err := url.Parse(private.URL(role, adminDatabase))
		if err != nil {
			return nil, errors.Join(err, private.Stop())
		}
		s.passwords[role], _ = u.User.Password()
	}
	return s, nil
}

// use prepares the roles on a server that other programs may be preparing at
// this moment. All of them come to the same passwords, which nobody can guess
// who does not know the superuser's.
func use(ctx context.Context, named string) (*server, error) {
	admin, err := url.Parse(named)
	if err != nil || admin.Scheme != "postgres" && admin.Scheme != "postgresql" || admin.User == nil {
		return nil, errors.New("BERTH_TEST_DATABASE_URL has to look like postgres://user:password@host:port/database")
	}
	conn, err := pgx.Connect(ctx, named)
	if err != nil {
		return nil, fmt.Errorf("BERTH_TEST_DATABASE_URL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it also gives the lock back
	const rolesLock = 0x62657274686462           // "berthdb"
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", rolesLock); err != nil {
		return nil, err
	}
	var id int64
	if err := conn.QueryRow(ctx, "SELECT system_identifier FROM pg_control_system()").Scan(&id); err != nil {
		return nil, fmt.Errorf("BERTH_TEST_DATABASE_URL has to be a superuser's: %w", err)
	}
	s := &server{admin: admin, driver: "pgx", passwords: make(map[string]string)}
	secret, _ := admin.User.Password()
	for _, role := range []string{postgres.Owner, postgres.Service} {
		sum := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(sum, "%d %s", id, role)
		s.passwords[role] = hex.EncodeToString(sum.Sum(nil)[:16])
	}
	return s, postgres.PrepareRoles(ctx, conn, s.passwords[postgres.Owner], s.passwords[postgres.Service])
}

// NewServer starts a private server of its own for a test that stops or breaks
// it, or changes what all its databases share. It has the roles and an empty
// database "berth", like that of `berth serve` before its migration.
func NewServer(t testing.TB) *postgres.Server {
	t.Helper()
	dir, err := newFolder()
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	server, err := postgres.Start(t.Context(), postgres.Config{
		Dir: filepath.Join(dir, "pg"), Ephemeral: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	t.Cleanup(func() {
		_ = server.Stop() // the test may have ended it in its own way
		_ = os.RemoveAll(dir)
	})
	return server
}

// url is the address of a database for a role, "" for the superuser.
func (s *server) url(role, database string) string {
	u := *s.admin
	u.Path = "/" + database
	if role != "" {
		u.User = url.UserPassword(role, s.passwords[role])
	}
	return u.String()
}
