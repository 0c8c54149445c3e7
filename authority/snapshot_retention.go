package authority

import (
	"context"
	"fmt"
	"time"

	"berth/db"
	"berth/snapshot"
)

const (
	// DefaultKeepSnapshots is how many saved states of a workspace keep their bytes, beside the current and the named ones.
	DefaultKeepSnapshots = 20

	// orphanAge is how old an object has to be before it can count as one that no row will ever name: what is being
	// made right now is younger.
	orphanAge = 24 * time.Hour

	// collectRows is how many rows one statement of a collection takes, and how many keys it asks for at once.
	collectRows = 500
)

// RetainSnapshots gives up the bytes of saved states that nobody needs any more: those beyond the newest that are kept of
// each workspace, but for the current and the named ones. The row says so first, and then the bytes go; what a crash
// leaves between the two is an orphan. It returns how many there were.
func (s *Service) RetainSnapshots(ctx context.Context) (int, error) {
	return s.dropAll(ctx, func() ([]*string, error) {
		return s.queries.ExpireSnapshots(ctx, s.pool, db.ExpireSnapshotsParams{Keep: int64(s.keepSnapshots), Most: collectRows})
	})
}

// CollectSnapshots gives up saves that nobody finished in a day, and deletes the objects that belong to no snapshot: of
// creates that rolled back, of uploads under a dead epoch, and what a crash left of another deletion. It touches no store
// that does not carry the marker of this database. It returns how many objects it deleted.
func (s *Service) CollectSnapshots(ctx context.Context) (int, error) {
	abandoned, err := s.dropAll(ctx, func() ([]*string, error) { return s.queries.AbandonSnapshots(ctx, s.pool, collectRows) })
	if err != nil {
		return abandoned, err
	}
	orphans, err := s.dropOrphans(ctx)
	return abandoned + orphans, err
}

// dropAll deletes the objects of the snapshots that mark flips, until it finds none.
func (s *Service) dropAll(ctx context.Context, mark func() ([]*string, error)) (int, error) {
	if err := s.requireOwnStore(ctx); err != nil {
		return 0, err
	}
	dropped := 0
	for {
		keys, err := mark()
		if err != nil {
			return dropped, fmt.Errorf("mark snapshots to delete: %w", err)
		}
		if len(keys) == 0 {
			return dropped, nil
		}
		for _, key := range keys {
			if key == nil {
				continue // imported, and never here
			}
			if err := s.store.Delete(ctx, *key); err != nil {
				return dropped, fmt.Errorf("delete a snapshot's content: %w", err)
			}
			dropped++
		}
	}
}

// requireOwnStore makes sure that what is deleted is this database's.
func (s *Service) requireOwnStore(ctx context.Context) error {
	known, err := s.queries.GetStoreMarker(ctx, s.pool)
	if err != nil {
		return fmt.Errorf("read the store's marker: %w", err)
	}
	if known == nil {
		return fmt.Errorf("no snapshot store belongs to this database yet")
	}
	return s.checkMarker(ctx, *known)
}

// dropOrphans walks the store for old objects, and deletes those that no snapshot needs.
func (s *Service) dropOrphans(ctx context.Context) (int, error) {
	dropped := 0
	var keys []string
	dropUnneeded := func() error {
		needed, err := s.queries.ListNeededKeys(ctx, s.pool, keys)
		if err != nil {
			return fmt.Errorf("look which objects are needed: %w", err)
		}
		have := make(map[string]bool, len(needed))
		for _, key := range needed {
			have[key] = true
		}
		for _, key := range keys {
			if have[key] {
				continue
			}
			if err := s.store.Delete(ctx, key); err != nil {
				return fmt.Errorf("delete an orphan: %w", err)
			}
			dropped++
		}
		keys = keys[:0]
		return nil
	}
	old := time.Now().Add(-orphanAge)
	err := s.store.Walk(ctx, func(o snapshot.Object) error {
		if !snapshot.IsKey(o.Key) || o.StoredAt.After(old) {
			return nil // not made here, or too young to tell
		}
		if keys = append(keys, o.Key); len(keys) == collectRows {
			return dropUnneeded()
		}
		return nil
	})
	if err == nil && len(keys) > 0 {
		err = dropUnneeded()
	}
	return dropped, err
}
