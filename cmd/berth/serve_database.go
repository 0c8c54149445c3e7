package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"

	"berth/db"
)

// database is the open database of a service, private or not.
type database struct {
	pool     *pgxpool.Pool
	renewals *pgxpool.Pool  // for them alone
	private  *privateServer // nil for one of the user's
	dataDir  string
}

// openDatabase opens the database with a schema that this program works on.
func (c serveCommand) openDatabase(ctx context.Context, log *slog.Logger) (*database, error) {
	if c.DatabaseURL == "" {
		if c.MigrateURL != "" {
			return nil, usageError{errors.New("--migrate-url goes with --database-url: the private server needs neither")}
		}
		if c.DatabasePooler == db.TransactionPooler {
			return nil, usageError{errors.New("--database-pooler goes with --database-url: nothing stands before the private server")}
		}
		return openPrivate(ctx, c.dataDirFlag, log)
	}
	return c.openOutside(ctx, log)
}

func openPrivate(ctx context.Context, flag dataDirFlag, log *slog.Logger) (*database, error) {
	private, err := startPrivate(ctx, flag, log)
	if err != nil {
		return nil, err
	}
	base := &database{private: private, dataDir: private.dataDir}
	if err := db.Migrate(ctx, private.ownerURL()); err != nil {
		return nil, closing(base, err)
	}
	if err := base.open(ctx, private.serviceURL(), db.NoPooler); err != nil {
		return nil, closing(base, err)
	}
	return base, nil
}

// open connects as the service. Renewals have a connection that no request can
// take from them: what keeps all the others busy must not make writers look
// silent.
func (b *database) open(ctx context.Context, url string, pooler db.Pooler) (err error) {
	if b.pool, err = db.Open(ctx, url, db.Options{Pooler: pooler}); err != nil {
		return err
	}
	b.renewals, err = db.Open(ctx, url, db.Options{Pooler: pooler, MaxConns: 1, PlanOnce: true})
	return err
}

// openOutside opens a database that somebody else runs. Its schema is changed
// only on request: whoever starts a service need not be allowed to.
func (c serveCommand) openOutside(ctx context.Context, log *slog.Logger) (*database, error) {
	dir, err := c.forOutsideDatabase()
	if err != nil {
		return nil, err
	}
	if c.MigrateURL != "" {
		if err := db.Migrate(ctx, c.MigrateURL); err != nil {
			return nil, err
		}
	}
	base := &database{dataDir: dir}
	if err := base.open(ctx, c.DatabaseURL, c.DatabasePooler); err != nil {
		return nil, closing(base, err)
	}
	if err := db.CheckSchema(ctx, base.pool); err != nil {
		return nil, closing(base, err)
	}
	if err := warnUnprotected(ctx, base.pool, log); err != nil {
		return nil, closing(base, err)
	}
	if err := warnUnbounded(ctx, base.pool, log); err != nil {
		return nil, closing(base, err)
	}
	return base, nil
}

// warnUnbounded says when statements outside of transactions would wait for
// locks without an end. It is so behind a pooler, which keeps settings from the
// server, unless the role has them there.
func warnUnbounded(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	bounded, err := db.BoundsWaits(ctx, pool)
	if err == nil && !bounded {
		log.Warn("single statements of the service's database role wait for locks without an end: " +
			"run ALTER ROLE berth SET lock_timeout = '15s' on the server, and RECONNECT in the pooler's console")
	}
	return err
}

// warnUnprotected says what does not hold when the service's role has rights
// that it does not need. The rules hold all the same against everything that
// comes by the API.
func warnUnprotected(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	role, err := db.New().GetServiceRole(ctx, pool)
	switch {
	case err != nil:
		return fmt.Errorf("look at the rights of the database's role: %w", err)
	case role.IsSuperuser:
		log.Warn("the service's database role is a superuser, so nothing protects the history from SQL with its password: "+
			"give --database-url the role berth, and --migrate-url the owner", "role", role.Name)
	case role.RemovesHistory:
		log.Warn("the service's database role owns the schema or may delete from it, so nothing protects the history from SQL "+
			"with its password: give --database-url the role berth, and --migrate-url the owner", "role", role.Name)
	}
	return nil
}

// lost delivers why the private server is gone for good. It never does for a
// database of somebody else's, which may come back.
func (b *database) lost() <-chan error {
	if b.private == nil {
		return nil
	}
	gone := make(chan error, 1)
	go func() {
		<-b.private.server.Done()
		gone <- b.private.server.Err()
	}()
	return gone
}

// closing gives the database back and adds what goes wrong then to err.
func closing(b *database, err error) error {
	for _, pool := range []*pgxpool.Pool{b.renewals, b.pool} {
		if pool != nil {
			pool.Close()
		}
	}
	if b.private != nil {
		if stop := b.private.server.Stop(); !errors.Is(err, stop) {
			err = errors.Join(err, stop)
		}
	}
	return err
}

func fileURL(path ...string) string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(path...))}
	return u.String()
}
