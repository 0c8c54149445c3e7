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
}

// Open makes a pool of connections to the database at url, and makes sure of
// one: an error means that the database cannot be reached, or does not have
// what every connection needs.
//
// Times are read in UTC. Settings in url win over those of this package, but
// for the isolation level, which Berth's rules rest on: a connection that does
// not begin its transactions at READ COMMITTED is refused.
func Open(ctx context.Context, url string, options Options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err) // pgx leaves the password out
	}
	setUnlessSet(config.ConnConfig.RuntimeParams, sessionSettings)
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, connectTimeout)
	config.MaxConns = cmp.Or(options.MaxConns, DefaultMaxConns)
	config.MaxConnIdleTime = 5 * time.Minute
	config.PingTimeout = connectTimeout
	config.AfterConnect = prepareConn
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return pool, nil
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
func prepareConn(ctx context.Context, conn *pgx.Conn) error {
	conn.TypeMap().RegisterType(&pgtype.Type{
		Name:  "timestamptz",
		OID:   pgtype.TimestamptzOID,
		Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
	})
	var isolation string
	if err := conn.QueryRow(ctx, "SHOW default_transaction_isolation").Scan(&isolation); err != nil {
		return fmt.Errorf("read the isolation level: %w", err)
	}
	if isolation != "read committed" {
		return fmt.Errorf("the database's transactions begin at %s, and Berth's rules hold at read committed: "+
			"take default_transaction_isolation out of the database URL, or out of what a pooler sets", isolation)
	}
	return nil
}
