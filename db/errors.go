package db

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// The words of Postgres for what went wrong that this package acts on
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
const (
	codeNotInRepertoire     = "22021" // a zero byte, or bytes that are not UTF-8
	codeUntranslatable      = "22P05" // \u0000 in JSON
	codeReadOnly            = "25006"
	codeIdleInTransaction   = "25P03" // the server ended a transaction that stood still
	codeSerialization       = "40001"
	codeDeadlock            = "40P01"
	codeLockNotAvailable    = "55P03" // lock_timeout
	codeQueryCanceled       = "57014" // statement_timeout, or an operator
	codeFeatureNotSupported = "0A000"
	codeIOError             = "58030"

	classConnection    = "08"
	classResources     = "53" // disk full, out of memory, too many connections
	classOperatorEnded = "57P"
)

// ConstraintName is the name of the constraint that refused a statement, or ""
// when no constraint did. The schema's triggers give their refusals names too.
func ConstraintName(err error) string {
	if refusal := refusalOf(err); refusal != nil {
		return refusal.ConstraintName
	}
	return ""
}

// IsNoRows reports whether a query that answers one row found none.
func IsNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// IsInvalidText reports whether a text was refused because Postgres cannot
// store it: it holds a zero byte, or is not UTF-8.
func IsInvalidText(err error) bool {
	refusal := refusalOf(err)
	return refusal != nil && (refusal.Code == codeNotInRepertoire || refusal.Code == codeUntranslatable)
}

// IsUnavailable reports whether a statement or transaction failed for reasons
// that pass: the database is gone, going down, starting, full, read-only or
// overloaded, a lock or a connection was not to be had in time, or too many
// retries met another transaction. The caller may try the whole operation
// again later.
//
// A commit that failed so may have happened: what is tried again has to be
// safe to repeat. err has to come from this package or from pgx; a caller that
// went away (context.Canceled) is not the database's failure.
func IsUnavailable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	if refusal := refusalOf(err); refusal != nil {
		return passes(refusal)
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) ||
		errors.As(err, &network) ||
		pgconn.SafeToRetry(err) || // nothing was sent: the connection was closed already
		errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, puddle.ErrClosedPool) ||
		errors.Is(err, net.ErrClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || // the server hung up
		errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// passes tells the refusals that have to do with the state of the server from
// those that have to do with the statement.
func passes(refusal *pgconn.PgError) bool {
	switch refusal.Code {
	case codeReadOnly, codeIdleInTransaction, codeLockNotAvailable, codeQueryCanceled, codeIOError:
		return true
	}
	return isConflict(refusal) ||
		strings.HasPrefix(refusal.Code, classConnection) ||
		strings.HasPrefix(refusal.Code, classResources) ||
		strings.HasPrefix(refusal.Code, classOperatorEnded)
}

// isConflict reports whether a transaction failed because of another one, so
// that the same transaction may well succeed when it is run again at once. A
// plan that the connection kept from before a migration counts too: pgx drops
// it when it is refused.
func isConflict(refusal *pgconn.PgError) bool {
	switch refusal.Code {
	case codeSerialization, codeDeadlock:
		return true
	case codeFeatureNotSupported:
		return strings.Contains(refusal.Message, "cached plan must not change result type")
	}
	return false
}

// refusalOf is what the server said, nil if the error is not the server's.
func refusalOf(err error) *pgconn.PgError {
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) {
		return refusal
	}
	return nil
}
