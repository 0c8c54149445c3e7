package authority

import (
	"log/slog"
	"testing"

	"github.com/google/uuid"

	"berth/snapshot"
)

// onAnotherStore is a service on the same database with a store that is not its own.
func (s *scene) onAnotherStore(t *testing.T) (*Service, snapshot.Store) {
	t.Helper()
	store, err := snapshot.OpenFileStore(t.TempDir())
	s.wantNoError("open another store", err)
	return New(s.database.Pool, store, slog.New(slog.DiscardHandler)), store
}

func TestAServiceIsReadyOnTheStoreThatItsDatabaseKnows(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	if s.Ready(t.Context()) == nil {
		t.Error("ready before a store was claimed")
	}
	s.wantNoError("claim the store", s.ClaimStore(t.Context()))
	s.wantNoError("ready", s.Ready(t.Context()))
	s.wantNoError("claim it again, as the next start does", s.ClaimStore(t.Context()))
	s.empty()
	s.wantNoError("claim it when it is in use", s.ClaimStore(t.Context()))
}

func TestAServiceOnAnotherStoreIsNotReady(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.wantNoError("claim the store", s.ClaimStore(t.Context()))
	s.empty()

	unmarked, _ := s.onAnotherStore(t)
	marked, store := s.onAnotherStore(t)
	s.wantNoError("mark the store as another's", store.WriteMarker(t.Context(), uuid.NewString()))
	for name, other := range map[string]*Service{"without a marker": unmarked, "of another installation": marked} {
		if other.Ready(t.Context()) == nil {
			t.Errorf("ready on a store %s", name)
		}
		if other.ClaimStore(t.Context()) == nil {
			t.Errorf("a store %s is claimed, while the snapshots are elsewhere", name)
		}
	}
}

func TestServersThatStartAtOnceClaimOneStore(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 8)
	for _, r := range race(t, 8, func(int) (any, error) { return nil, s.ClaimStore(t.Context()) }) {
		if r.err != nil {
			t.Errorf("one of eight: %v", r.err)
		}
	}
	s.wantNoError("ready", s.Ready(t.Context()))
}
