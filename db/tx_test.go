package db_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"berth/db"
	"berth/db/dbtest"
)

// counters is a pool on a table with two rows that the tests may do anything to.
func counters(t *testing.T, size int32) (*pgxpool.Pool, *dbtest.Database) {
	t.Helper()
	d := dbtest.New(t)
	run(t, connect(t, d.OwnerURL),
		"CREATE TABLE counters (id int PRIMARY KEY, n int NOT NULL DEFAULT 0 CONSTRAINT counters_not_negative CHECK (n >= 0))",
		"INSERT INTO counters VALUES (1), (2)",
		"GRANT ALL ON counters TO berth")
	pool, err := db.Open(t.Context(), d.ServiceURL, db.Options{MaxConns: size})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, d
}

const increment = "UPDATE counters SET n = n + 1 WHERE id = $1"

func TestATransactionIsKeptWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	pool, _ := counters(t, 1)
	failure := errors.New("the second step failed")
	err := db.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), increment, 1); err != nil {
			return err
		}
		return failure
	})
	if !errors.Is(err, failure) {
		t.Errorf("got %v, want the operation's own error", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = db.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), increment, 1); err != nil {
				t.Error(err)
			}
			panic("a bug")
		})
	}()
	ctx, leave := context.WithCancel(t.Context())
	err = db.InTx(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, increment, 1)
		leave()
		return err
	})
	if !errors.Is(err, context.Canceled) || db.IsUnavailable(err) {
		t.Errorf("got %v after the caller left", err)
	}
	// The pool has one connection: this also shows that none was lost.
	if err := db.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), increment, 2)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if kept := get[[]int](t, pool, "SELECT array_agg(n ORDER BY id) FROM counters"); kept[0] != 0 || kept[1] != 1 {
		t.Errorf("the counters are %v, want [0 1]", kept)
	}
}

func TestOperationsThatDeadlockAreAllDoneInTheEnd(t *testing.T) {
	t.Parallel()
	pool, _ := counters(t, 4)
	before := db.Retries()
	var both, done sync.WaitGroup
	both.Add(2)
	for _, order := range [][2]int{{1, 2}, {2, 1}} {
		done.Go(func() {
			var once sync.Once
			err := db.InTx(t.Context(), pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), increment, order[0]); err != nil {
					return err
				}
				once.Do(func() { both.Done(); both.Wait() }) // the first time both have their first row
				_, err := tx.Exec(t.Context(), increment, order[1])
				return err
			})
			if err != nil {
				t.Errorf("in the order %v: %v", order, err)
			}
		})
	}
	done.Wait()
	if sum := get[int](t, pool, "SELECT sum(n)::int FROM counters"); sum != 4 {
		t.Errorf("the counters add up to %d, want 4", sum)
	}
	if db.Retries() == before {
		t.Error("no retry was counted")
	}
}

func TestRetriesEndAfterThree(t *testing.T) {
	t.Parallel()
	pool, _ := counters(t, 1)
	attempts := 0
	err := db.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		attempts++
		_, err := tx.Exec(t.Context(), "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = 'serialization_failure'; END $$")
		return err
	})
	if attempts != 4 || !db.IsUnavailable(err) {
		t.Errorf("%d attempts, %v", attempts, err)
	}
}

func TestARefusedStatementIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	pool, _ := counters(t, 1)
	attempts := 0
	err := db.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		attempts++
		_, err := tx.Exec(t.Context(), "UPDATE counters SET n = -1")
		return err
	})
	if attempts != 1 || db.ConstraintName(err) != "counters_not_negative" || db.IsUnavailable(err) {
		t.Errorf("%d attempts, constraint %q, %v", attempts, db.ConstraintName(err), err)
	}
}

func TestALostConnectionIsUnavailableAndTheNextOneWorks(t *testing.T) {
	t.Parallel()
	pool, d := counters(t, 1)
	admin := connect(t, d.AdminURL)
	err := db.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), increment, 1); err != nil {
			return err
		}
		run(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'berth' AND datname = current_database() AND state = 'idle in transaction'")
		_, err := tx.Exec(t.Context(), increment, 2)
		return err
	})
	if !db.IsUnavailable(err) {
		t.Errorf("got %v, want an error that passes", err)
	}
	if sum := get[int](t, pool, "SELECT sum(n)::int FROM counters"); sum != 0 {
		t.Errorf("the counters add up to %d, want 0", sum)
	}
}

func TestAPoolWithoutAFreeConnectionIsUnavailable(t *testing.T) {
	t.Parallel()
	pool, _ := counters(t, 1)
	taken, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = db.InTx(ctx, pool, func(pgx.Tx) error { return nil })
	if !db.IsUnavailable(err) {
		t.Errorf("got %v, want an error that passes", err)
	}
}
