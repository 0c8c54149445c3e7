package db

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Pooler says what stands between a pool of Open and the server.
type Pooler string

const (
	// NoPooler is a way to the server on which each connection is a session of
	// the server's, from its first statement to its last. "" means the same.
	NoPooler Pooler = "none"

	// TransactionPooler is a pooler that gives each transaction whichever of the
	// server's sessions is free, as PgBouncer does in its mode "transaction".
	// What outlives a transaction is then anybody's: prepared statements,
	// settings, LISTEN.
	TransactionPooler Pooler = "transaction"
)

const beginReadCommitted = "begin isolation level read committed"

// poolerBegin begins a transaction where a pooler keeps the session's limits
// from the server: they hold for each transaction by itself.
var poolerBegin = []string{
	beginReadCommitted,
	"set local lock_timeout = '" + sessionSettings["lock_timeout"] + "'",
	"set local idle_in_transaction_session_timeout = '" + sessionSettings["idle_in_transaction_session_timeout"] + "'",
}

// poolerSettings are those of the session settings that PgBouncer takes from a
// client, and gives each session of the server that works for it. It refuses a
// client that sends others.
var poolerSettings = map[string]string{
	"application_name": sessionSettings["application_name"],
	"timezone":         sessionSettings["timezone"],
}

// forPooler fits a connection's configuration to what stands before the server.
func (p Pooler) forPooler(config *pgx.ConnConfig) error {
	switch p {
	case NoPooler, "":
		setUnlessSet(config.RuntimeParams, sessionSettings)
	case TransactionPooler:
		setUnlessSet(config.RuntimeParams, poolerSettings)
		// Statements without a name, sent whole each time; only what types they
		// take and answer is remembered. The modes that do not ask the server
		// for types do not know how to send arrays of ids or JSON.
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		config.StatementCacheCapacity = 0
	default:
		return fmt.Errorf("%q is no kind of pooler: %s or %s", string(p), NoPooler, TransactionPooler)
	}
	return nil
}

// beginKey is where a connection keeps the statements that begin a transaction
// on it.
const beginKey = "berth.begin"

func beginOf(conn *pgx.Conn) []string {
	if statements, ok := conn.PgConn().CustomData()[beginKey].([]string); ok {
		return statements
	}
	return []string{beginReadCommitted}
}

// errSharedSessions is what a way to the server is refused with that turned out
// to lead through a pooler that shares sessions between transactions.
var errSharedSessions = errors.New("a pooler gives one session of the server to several connections by turns, as PgBouncer does in transaction mode")

// refuseSharedSessions finds out whether the server's sessions change hands
// between the transactions of a connection, which no protocol tells. Two
// connections ask by turns which session they are on. Where each has its own
// the answers differ, and stay the same.
func refuseSharedSessions(ctx context.Context, config *pgx.ConnConfig) error {
	const rounds = 3
	var sessions [2]int32
	var conns [2]*pgx.Conn
	for i := range conns {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it only read
		conns[i] = conn
	}
	for range rounds {
		for i, conn := range conns {
			session, err := backendOf(ctx, conn)
			if err != nil {
				return err
			}
			if session == sessions[1-i] || sessions[i] != 0 && session != sessions[i] {
				return errSharedSessions
			}
			sessions[i] = session
		}
	}
	return nil
}

// backendOf asks which of the server's sessions answers, in a way that leaves
// nothing behind on it.
func backendOf(ctx context.Context, conn *pgx.Conn) (int32, error) {
	var pid int32
	err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	return pid, err
}

// throughPooler reports whether something between this program and the server
// speaks for the server: what it said of its session when the connection began
// is not what the session says of itself.
func throughPooler(conn *pgx.Conn, backend int32) bool {
	return conn.PgConn().PID() != uint32(backend) //nolint:gosec // a process id is positive
}

// explainPooler adds the way out to what a pooler says to settings that it does
// not know.
func explainPooler(err error, wayOut string) error {
	var refusal *pgconn.PgError
	if errors.Is(err, errSharedSessions) ||
		errors.As(err, &refusal) && strings.Contains(refusal.Message, "unsupported startup parameter") {
		return fmt.Errorf("%w: %s", err, wayOut)
	}
	return err
}

// BoundsWaits reports whether a statement outside of a transaction gives up
// waiting for a lock at some time.
func BoundsWaits(ctx context.Context, on DBTX) (bool, error) {
	var limit string
	if err := on.QueryRow(ctx, "SHOW lock_timeout").Scan(&limit); err != nil {
		return false, fmt.Errorf("read the lock timeout: %w", err)
	}
	return limit != "0", nil
}
