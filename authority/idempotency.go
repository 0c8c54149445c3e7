package authority

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// Once asks for something to be made at most once. Key is the caller's name for the request, ""
// for none; Digest is over all that the request says, so that a key that comes back with another
// request is noticed.
type Once struct {
	Key    string
	Digest []byte
}

// createOnce runs make in a transaction and keeps its answer, in the same transaction, for a day
// under the caller's key. Who comes again with the key gets that answer and true; with another
// digest, ErrIdempotencyKey. Of any number who come at once one makes, and the others wait for its
// answer. What make refuses is not kept.
//
// A key belongs to one principal and one company (nil for what belongs to none). The answer is kept
// as JSON, so T carries no secret; make may run more than once, so it keeps nothing from an earlier try.
func createOnce[T any](
	ctx context.Context, s *Service, by Principal, company *uuid.UUID, once Once, make func(tx pgx.Tx) (T, error),
) (answer T, replayed bool, err error) {
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		if once.Key == "" {
			answer, err = make(tx)
			return err
		}
		kept := keptAnswer{s: s, tx: tx, principal: by.Actor(), company: company, once: once}
		if replayed, err = kept.load(ctx, &answer); err != nil || replayed {
			return err
		}
		if answer, err = make(tx); err != nil {
			return err
		}
		return kept.record(ctx, answer)
	})
	if err != nil {
		var none T
		return none, false, err
	}
	return answer, replayed, nil
}

// keptAnswer is the place of one key's answer, inside one transaction.
type keptAnswer struct {
	s         *Service
	tx        pgx.Tx
	principal string
	company   *uuid.UUID
	once      Once
}

// load takes the key for this transaction and reads its answer into the value that into points to.
func (k keptAnswer) load(ctx context.Context, into any) (found bool, err error) {
	// The parts cannot be mistaken for others: an actor has no blank in it, an id neither.
	name := fmt.Sprintf("idempotency %s %v %s", k.principal, k.company, k.once.Key)
	if err := k.s.queries.LockIdempotencyKey(ctx, k.tx, name); err != nil {
		return false, fmt.Errorf("lock the idempotency key: %w", err)
	}
	if _, err := k.s.queries.DropOldAnswer(ctx, k.tx, db.DropOldAnswerParams{
		Principal: k.principal, CompanyID: k.company, Key: k.once.Key,
	}); err != nil {
		return false, fmt.Errorf("free an old idempotency key: %w", err)
	}
	row, err := k.s.queries.GetAnswer(ctx, k.tx, db.GetAnswerParams{
		Principal: k.principal, CompanyID: k.company, Key: k.once.Key,
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the idempotency key: %w", err)
	case !bytes.Equal(row.Digest, k.once.Digest):
		return false, ErrIdempotencyKey
	}
	if err := json.Unmarshal(row.Answer, into); err != nil {
		return false, fmt.Errorf("decode a kept answer: %w", err)
	}
	forgetNulls(reflect.ValueOf(into).Elem())
	return true, nil
}

// record keeps the answer.
func (k keptAnswer) record(ctx context.Context, answer any) error {
	raw, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	if err := k.s.queries.RecordAnswer(ctx, k.tx, db.RecordAnswerParams{
		Principal: k.principal, CompanyID: k.company, Key: k.once.Key, Digest: k.once.Digest, Answer: raw,
	}); err != nil {
		return fmt.Errorf("keep the answer: %w", err)
	}
	return nil
}

// forgetNulls turns the JSON null of a kept document back into the nil that it was made from:
// encoding/json writes the one and never reads it as the other.
func forgetNulls(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			forgetNulls(v.Field(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			forgetNulls(v.Elem())
		}
	case reflect.Slice:
		if raw, ok := v.Interface().(json.RawMessage); ok && string(raw) == "null" && v.CanSet() {
			v.SetZero()
		}
	default:
	}
}

// ForgetAnswers removes answers that are older than a day, and says how many. Nothing but the room
// they take depends on it: a key is free after a day whether or not it was called.
func (s *Service) ForgetAnswers(ctx context.Context) (int64, error) {
	var all int64
	for {
		gone, err := s.queries.DropOldAnswers(ctx, s.pool)
		if err != nil {
			return all, fmt.Errorf("remove old answers: %w", err)
		}
		if gone == 0 {
			return all, nil
		}
		all += gone
	}
}
