package authority

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"berth/db"
	"berth/provider"
	"berth/snapshot"
)

// Service is the way into the rules. It keeps no state between calls but the signing keys it has
// read: any number of services may share one database and one snapshot store.
type Service struct {
	pool    *pgxpool.Pool
	queries *db.Queries
	store   snapshot.Store
	keys    *keyring
	log     *slog.Logger

	providers     provider.Directory
	providerTime  time.Duration
	cleanupAfter  time.Duration
	silentAfter   time.Duration
	keepSnapshots int
	listens       bool
	waiting       *waitingRoom
	renewals      *renewals
}

// DefaultSilentAfter is how long a writer may not be heard of before it counts as silent: some renewals that
// were lost, and no more.
const DefaultSilentAfter = 2 * time.Minute

// DefaultProviderTime bounds all that one try asks of a provider: long enough for a slow answer, and short enough
// that one provider that hangs does not hold up the others.
const DefaultProviderTime = 20 * time.Second

// DefaultCleanupAfter is what those who hold a machine get, once its run ended, to end it by themselves and to say so: a
// wrapper that just finished its run is about to exit, and is not to be killed at it.
const DefaultCleanupAfter = 10 * time.Second

// Option sets what New leaves at its default.
type Option func(*Service)

// New returns a Service on a migrated database and a snapshot store.
func New(pool *pgxpool.Pool, store snapshot.Store, log *slog.Logger, options ...Option) *Service {
	s := &Service{
		pool: pool, queries: db.New(), store: store, keys: &keyring{}, log: log,
		providers: noProviders{}, providerTime: DefaultProviderTime, cleanupAfter: DefaultCleanupAfter,
		silentAfter: DefaultSilentAfter, keepSnapshots: DefaultKeepSnapshots, listens: true,
	}
	s.renewals = &renewals{pool: pool, queries: s.queries}
	for _, set := range options {
		set(s)
	}
	s.waiting = newWaitingRoom(s.pool, s.queries, s.log, s.listens)
	return s
}

// WithProviders lets the service ask the providers of leased machines what became of them. Without it none is known.
func WithProviders(d provider.Directory) Option { return func(s *Service) { s.providers = d } }

// WithProviderTime bounds all that one try asks of a provider. Without it that is DefaultProviderTime.
func WithProviderTime(d time.Duration) Option { return func(s *Service) { s.providerTime = d } }

// WithCleanupAfter sets how long after the end of a run its machines are cleaned up. Without it that is
// DefaultCleanupAfter.
func WithCleanupAfter(d time.Duration) Option { return func(s *Service) { s.cleanupAfter = d } }

// WithSilentAfter sets how long a writer may not be heard of before it counts as silent, which is a word in answers and
// frees nothing. Without it that is DefaultSilentAfter.
func WithSilentAfter(d time.Duration) Option { return func(s *Service) { s.silentAfter = d } }

// WithRenewalPool gives renewals a pool of their own, of which they use one connection: then they do not wait behind
// requests that wait for the database. Without it they use the service's.
func WithRenewalPool(pool *pgxpool.Pool) Option { return func(s *Service) { s.renewals.pool = pool } }

// WithPolling lets those who wait look for their turn by themselves, often, and never listen for notifications: they
// do not come through a pooler that shares connections between transactions.
func WithPolling() Option { return func(s *Service) { s.listens = false } }

// WithKeepSnapshots sets how many saved states of a workspace keep their bytes, beside the current and the named ones.
func WithKeepSnapshots(n int) Option { return func(s *Service) { s.keepSnapshots = n } }

type noProviders struct{}

func (noProviders) For(string, json.RawMessage) (provider.Provider, error) {
	return nil, provider.ErrUnknownProvider
}

// Retries counts the transactions that this program ran again since it started, because another one had stood in their
// way.
func Retries() int64 { return db.Retries() }

// inTx runs do in one READ COMMITTED transaction. The whole of do is run again when the database
// asks for it (a deadlock, a serialization failure), so do must not keep what an earlier try learned.
func (s *Service) inTx(ctx context.Context, do func(tx pgx.Tx) error) error {
	return db.InTx(ctx, s.pool, do)
}
