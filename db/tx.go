package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// maxRetries is how often an operation is run again after the first time.
const maxRetries = 3

// acquireTimeout bounds the wait for a free connection of the pool, when the
// caller has more time. It is longer than any healthy queue and short enough
// for an answer that says "come back later".
const acquireTimeout = 10 * time.Second

// rollbackTimeout bounds the end of a transaction whose caller went away: it
// must not leave locks behind.
const rollbackTimeout = 5 * time.Second

var retries atomic.Int64

// Retries counts the operations that Retry ran again since the program started.
func Retries() int64 { return retries.Load() }

// Retry runs a whole operation, and runs it again, three times at most, when it
// failed because of another transaction (a serialization failure or a
// deadlock, both of which Postgres rolls back whole). The last error is one
// that IsUnavailable recognises.
//
// operation has to be one complete transaction, from its first read on: what it
// read before is not true any more the second time.
func Retry(ctx context.Context, operation func() error) error {
	for again := range maxRetries + 1 {
		err := operation()
		refusal := refusalOf(err)
		if refusal == nil || !isConflict(refusal) || ctx.Err() != nil {
			return err
		}
		if again == maxRetries {
			return fmt.Errorf("gave up after %d attempts: %w", again+1, err)
		}
		retries.Add(1)
	}
	return nil // not reached: the last round returns
}

// InTx runs do in a READ COMMITTED transaction and commits it, or rolls it back
// when do returns an error, and does all of it again as Retry says. So do may
// run more than once: it has no effect outside the transaction, calls nothing
// slow, and does not use the pool, whose last connection it may be holding.
func InTx(ctx context.Context, pool *pgxpool.Pool, do func(tx pgx.Tx) error) error {
	return Retry(ctx, func() error { return inTxOnce(ctx, pool, do) })
}

func inTxOnce(ctx context.Context, pool *pgxpool.Pool, do func(tx pgx.Tx) error) (err error) {
	conn, err := acquire(ctx, pool)
	if err != nil {
		return err
	}
	defer conn.Release() // the pool closes a connection that is still in a transaction
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: strings.Join(beginOf(conn.Conn()), "; ")})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	committed := false
	defer func() { // also when do panics
		if committed {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		if rollback := tx.Rollback(ctx); rollback != nil && !errors.Is(rollback, pgx.ErrTxClosed) {
			err = errors.Join(err, fmt.Errorf("roll back: %w", rollback))
		}
	}()
	if err := do(tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	committed = true
	return nil
}

// acquire takes a connection of the pool, within acquireTimeout.
func acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	waiting, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	conn, err := pool.Acquire(waiting)
	if err != nil {
		return nil, fmt.Errorf("get a database connection: %w", err)
	}
	return conn, nil
}
