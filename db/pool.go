package db

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DefaultMaxConns is the size of the pool unless Options say otherwise. More
// connections make the database slower, not faster: on two cores 4 to 8 of them
// are best, and 64 halve the throughput.
const DefaultMaxConns = 8

// connectTimeout bounds one attempt to reach the server.
const connectTimeout = 5 * time.Second

// sessionSettings hold for every connection of the pool. The two limits are a
// pair. A transaction of Berth lasts milliseconds; one that stands still for
// 10 s belongs to a program that was stopped or lost, and the server ends it,
// so that its locks fall. Those who wait for such a lock have 15 s, so they
// outlast the lost holder and get their turn.
var sessionSettings = map[string]string{
	"application_name":                    "berth",
	"timezone":                            "UTC",
	"default_transaction_isolation":       "read committed",
	"idle_in_transaction_session_timeout": "10s",
	"lock_timeout":                        "15s",
}

// Options are what Open leaves open.
type Options struct {
	// MaxConns is the size of the pool, DefaultMaxConns when 0.
	MaxConns int32

	// Pooler is what stands before the server; nothing when it is empty.
	Pooler Pooler

	// PlanOnce has each statement planned once a connection, for whatever it is
	// given. It is for statements that take arrays, whose plan Postgres would
	// make anew each time because their lengths differ. It does nothing through
	// a transaction pooler, where every statement is planned each time.
	PlanOnce bool
}

// Open makes a pool of connections to the database at url, and makes sure of
// one: an error means that the database cannot be reached, or does not have
// what every connection needs.
//
// Times are read in UTC. Settings in url win over those of this package, but
// for the isolation level, which Berth's rules rest on: a connection that does
// not begin its transactions at READ COMMITTED is refused. So is a way through a
// transaction pooler that Options do not tell of. Through one that they do tell
// of, the limits of sessionSettings hold inside transactions, whatever url says.
func Open(ctx context.Context, url string, options Options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err) // pgx leaves the password out
	}
	if err := options.Pooler.forPooler(config.ConnConfig); err != nil {
		return nil, err
	}
	if options.PlanOnce && options.Pooler != TransactionPooler {
		setUnlessSet(config.ConnConfig.RuntimeParams, map[string]string{"plan_cache_mode": "force_generic_plan"})
	}
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, connectTimeout)
	config.MaxConns = cmp.Or(options.MaxConns, DefaultMaxConns)
	config.MaxConnIdleTime = 5 * time.Minute
	config.PingTimeout = connectTimeout
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return prepareConn(ctx, conn, options.Pooler) }
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	if err := proveWay(ctx, pool, options.Pooler); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return pool, nil
}

// proveWay makes sure of one connection, and that there is no pooler that
// nobody told of.
func proveWay(ctx context.Context, pool *pgxpool.Pool, told Pooler) error {
	conn, err := pool.Acquire(ctx)
	if err == nil {
		defer conn.Release()
		err = conn.Ping(ctx)
	}
	if err == nil && told != TransactionPooler {
		var backend int32
		if backend, err = backendOf(ctx, conn.Conn()); err == nil && throughPooler(conn.Conn(), backend) {
			err = refuseSharedSessions(ctx, conn.Conn().Config())
		}
	}
	if told == TransactionPooler {
		return explainPooler(err, "take that setting out of the database URL; ALTER ROLE berth SET gives it to the sessions of the server")
	}
	return explainPooler(err, "say --database-pooler=transaction, which is right for PgBouncer in any mode that allows transactions")
}

// setUnlessSet adds settings to those that a URL brought.
func setUnlessSet(params, settings map[string]string) {
	for name, value := range settings {
		if _, set := params[name]; !set {
			params[name] = value
		}
	}
}

// prepareConn makes a new connection one that the code above can rely on.
func prepareConn(ctx context.Context, conn *pgx.Conn, pooler Pooler) error {
	conn.TypeMap().RegisterType(&pgtype.Type{
		Name:  "timestamptz",
		OID:   pgtype.TimestamptzOID,
		Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
	})
	if pooler == TransactionPooler {
		conn.PgConn().CustomData()[beginKey] = poolerBegin
	}
	var isolation string
	err := conn.QueryRow(ctx, "SHOW default_transaction_isolation", pgx.QueryExecModeSimpleProtocol).Scan(&isolation)
	if err != nil {
		return fmt.Errorf("read the isolation level: %w", err)
	}
	if isolation != "read committed" {
		return fmt.Errorf("the database's transactions begin at %s, and Berth's rules hold at read committed: "+
			"take default_transaction_isolation out of the database URL, or out of what a pooler sets", isolation)
	}
	return nil
}
