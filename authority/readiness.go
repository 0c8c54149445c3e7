package authority

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
	"berth/snapshot"
)

// Ready reports nil when the service can do its work: the database answers, at a schema this
// program knows, and the snapshot store is the one that belongs to it.
func (s *Service) Ready(ctx context.Context) error {
	if err := db.CheckSchema(ctx, s.pool); err != nil {
		return err
	}
	known, err := s.queries.GetStoreMarker(ctx, s.pool)
	if err != nil {
		return fmt.Errorf("read the store's marker: %w", err)
	}
	if known == nil {
		return errors.New("no snapshot store belongs to this database yet: a server claims one at its start")
	}
	return s.checkMarker(ctx, *known)
}

func (s *Service) checkMarker(ctx context.Context, known uuid.UUID) error {
	marker, err := s.store.Marker(ctx)
	switch {
	case errors.Is(err, snapshot.ErrNoMarker):
		return fmt.Errorf("the snapshot store lacks the marker %s, so it is not the one of this database: check %s", known, snapshot.StoreVariable)
	case err != nil:
		return fmt.Errorf("read the snapshot store's marker: %w", err)
	case marker != known.String():
		return fmt.Errorf("the snapshot store carries the marker %s and this database knows %s: check %s", marker, known, snapshot.StoreVariable)
	}
	return nil
}

// ClaimStore ties the snapshot store to the database, at the first start of a server on both. Later
// it only checks: a store that lost its marker is not taken for a new one while snapshots should be in it.
func (s *Service) ClaimStore(ctx context.Context) error {
	known, err := s.queries.GetStoreMarker(ctx, s.pool)
	if err != nil {
		return fmt.Errorf("read the store's marker: %w", err)
	}
	if known == nil {
		known, err = s.queries.SetStoreMarker(ctx, s.pool, newID())
		if errors.Is(err, pgx.ErrNoRows) {
			known, err = s.queries.GetStoreMarker(ctx, s.pool)
		}
		if err != nil {
			return fmt.Errorf("set the store's marker: %w", err)
		}
	}
	used, err := s.queries.HasSnapshots(ctx, s.pool)
	if err != nil {
		return fmt.Errorf("look for snapshots: %w", err)
	}
	if used {
		return s.checkMarker(ctx, *known)
	}
	if err := s.store.WriteMarker(ctx, known.String()); err != nil {
		return fmt.Errorf("mark the snapshot store: %w", err)
	}
	return nil
}
