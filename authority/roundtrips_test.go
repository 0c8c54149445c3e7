package authority

import (
	"context"
	"encoding/json"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// wire is a connection to the database that counts the round trips on it: how often something was
// read after something was written.
type wire struct {
	net.Conn
	asked *atomic.Bool
	trips *atomic.Int64
}

func (w wire) Write(p []byte) (int, error) {
	w.asked.Store(true)
	return w.Conn.Write(p)
}

func (w wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 && w.asked.Swap(false) {
		w.trips.Add(1)
	}
	return n, err
}

// onTheWire lets the scene's service work on one connection, and returns its count.
func (s *scene) onTheWire(t *testing.T) *atomic.Int64 {
	t.Helper()
	trips := &atomic.Int64{}
	config := s.database.Pool.Config()
	config.MaxConns = 1
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return wire{conn, &atomic.Bool{}, trips}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	s.wantNoError("connect", err)
	t.Cleanup(pool.Close)
	s.Service = s.serviceOn(t, pool)
	return trips
}

// The statements are prepared on a connection when they are first used, so each call is counted
// when it comes for the second time.
func TestAReservationAndAReleaseTakeTwoRoundTripsAndARenewalOne(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	trips := s.onTheWire(t)
	for second := range 2 {
		count := func(what string, most int64, call func() error) {
			t.Helper()
			trips.Store(0)
			s.wantNoError(what, call())
			if n := trips.Load(); second == 1 && n > most {
				t.Errorf("%s takes %d round trips, want at most %d", what, n, most)
			} else if n == 0 {
				t.Errorf("%s was not counted", what)
			}
		}
		workspace := s.free()
		w, next := s.worker(s.boundTask(workspace)), s.worker(s.boundTask(workspace))
		fence := Fence{WorkspaceID: workspace, RunID: w.RunID, Epoch: 4}
		reserve := func(w worker) func() error {
			return func() error { _, err := s.reserve(w); return err }
		}
		count("a reservation of a free workspace", 2, reserve(w))
		count("a replay", 3, reserve(w))
		count("a renewal", 1, func() error { _, err := s.Renew(t.Context(), w.Principal, fence); return err })
		count("a location", 2, func() error {
			_, err := s.SetLocation(t.Context(), w.Principal, fence, json.RawMessage(`{"path": "/x"}`))
			return err
		})
		count("a refusal", 2, func() error {
			_, err := s.reserve(next)
			s.wantCode("reserve over a writer", err, ErrWriterPending)
			return nil
		})
		s.stop(w)
		s.end(w, "failed")
		count("a handover", 2, reserve(next))
		fence = Fence{WorkspaceID: workspace, RunID: next.RunID, Epoch: 5}
		count("a mark", 2, func() error { _, err := s.MarkDirty(t.Context(), next.Principal, fence); return err })
		count("a release", 2, func() error { _, err := s.Release(t.Context(), next.Principal, fence, true); return err })
	}
}
