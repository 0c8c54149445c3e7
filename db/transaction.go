package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Transaction is one that BeginReading began.
type Transaction struct {
	conn *pgxpool.Conn
}

// BeginReading begins a READ COMMITTED transaction and sends the queued reads and locks with it, in
// one round trip. The caller ends it with Commit or Rollback; Rollback after Commit does nothing.
func BeginReading(ctx context.Context, pool *pgxpool.Pool, reads *Pipeline) (*Transaction, error) {
	conn, err := acquire(ctx, pool)
	if err != nil {
		return nil, err
	}
	var whole pgx.Batch
	for _, statement := range beginOf(conn.Conn()) {
		whole.Queue(statement)
	}
	whole.QueuedQueries = append(whole.QueuedQueries, reads.batch.QueuedQueries...)
	tx := &Transaction{conn: conn}
	if err := conn.SendBatch(ctx, &whole).Close(); err != nil {
		return nil, errors.Join(fmt.Errorf("begin and read: %w", err), tx.Rollback(ctx))
	}
	return tx, nil
}

// DB is where the transaction's other statements run.
func (tx *Transaction) DB() DBTX { return tx.conn }

// CommitAfter sends the queued statements and the commit in one round trip. When a statement fails
// nothing is committed.
func (tx *Transaction) CommitAfter(ctx context.Context, acts *Pipeline) error {
	acts.batch.Queue("commit")
	if err := tx.conn.SendBatch(ctx, &acts.batch).Close(); err != nil {
		return errors.Join(fmt.Errorf("act and commit: %w", err), tx.Rollback(ctx))
	}
	tx.end()
	return nil
}

// Commit makes the transaction last.
func (tx *Transaction) Commit(ctx context.Context) error { return tx.CommitAfter(ctx, &Pipeline{}) }

// RollbackBefore gives the transaction up and then runs the queued statements on their own, in one
// round trip.
func (tx *Transaction) RollbackBefore(ctx context.Context, after *Pipeline) error {
	var whole pgx.Batch
	whole.Queue("rollback")
	whole.QueuedQueries = append(whole.QueuedQueries, after.batch.QueuedQueries...)
	err := tx.conn.SendBatch(ctx, &whole).Close()
	tx.end()
	return err
}

// Rollback gives the transaction up; after its end it does nothing. It goes on when ctx is done: a
// caller that went away must not leave locks behind.
func (tx *Transaction) Rollback(ctx context.Context) error {
	if tx.conn == nil {
		return nil
	}
	defer tx.end()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_, err := tx.conn.Exec(ctx, "rollback")
	return err
}

// end gives the connection back. The pool closes one that is still in a transaction.
func (tx *Transaction) end() {
	tx.conn.Release()
	tx.conn = nil
}
