package authority

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

const (
	// cleanupActor is how history names the sweep.
	cleanupActor = "sweep:lease-cleanup"

	// cleanupClaimTime is how long a claim lasts beyond its try, for the writing of what was found.
	cleanupClaimTime = 90 * time.Second

	// cleanupsAtOnce is how many providers are asked at the same time. They are waited for, mostly.
	cleanupsAtOnce = 16

	// cleanupWarnAfter is the failure in a row after which people are told, once.
	cleanupWarnAfter = 5

	// cleanupLookAgain is when a clean-up that waits for somebody's deed is looked at again. One that waits
	// for this installation to know its provider is so after cleanupLookLater, for whoever knows it may
	// bring a receipt by then, and after people were told it is after cleanupLookSeldom.
	cleanupLookAgain  = 30 * time.Second
	cleanupLookLater  = 5 * time.Minute
	cleanupLookSeldom = 30 * time.Minute

	// cleanupBeginRows is how many leases one sweep takes out of their runs' hands.
	cleanupBeginRows = 500
)

// errStaleCleanup never leaves the package: the claim ran out, or the lease moved on, and what the
// try found is not written.
var errStaleCleanup = errors.New("the clean-up is not this sweep's any more")

// LeaseCleanup is how far the clean-up of a lease's machine got. NextAttemptAt is nil once it is settled.
// LastErrorKind says why the last try failed: one of provider.Kind, or wrong_machine, still_running,
// still_there. HeldBackBy says why nothing is tried: unsaved_work, retained, machine_in_use or
// unknown_provider.
type LeaseCleanup struct {
	Attempts      int
	NextAttemptAt *time.Time
	LastAttemptAt *time.Time
	LastErrorKind *string
	HeldBackBy    *string
	WarnedAt      *time.Time
	SettledAt     *time.Time
}

// addCleanups tells of leases how far their clean-up got.
func (s *Service) addCleanups(ctx context.Context, q db.DBTX, leases []Lease) error {
	ids := make([]uuid.UUID, len(leases))
	for i := range leases {
		ids[i] = leases[i].ID
	}
	rows, err := s.queries.ListLeaseCleanups(ctx, q, ids)
	if err != nil {
		return fmt.Errorf("list clean-ups: %w", err)
	}
	for _, row := range rows {
		cleanup := LeaseCleanup{
			Attempts: int(row.Attempts), LastAttemptAt: row.LastAttemptAt, LastErrorKind: row.LastErrorKind,
			HeldBackBy: row.HeldBackBy, WarnedAt: row.WarnedAt, SettledAt: row.SettledAt,
		}
		if row.SettledAt == nil {
			cleanup.NextAttemptAt = &row.NextAttemptAt
		}
		leases[slices.Index(ids, row.LeaseID)].Cleanup = &cleanup
	}
	return nil
}

// CleanupSweep is what one sweep did.
type CleanupSweep struct {
	Begun    int // leases taken out of their ended runs' hands
	Settled  int // machines proven cleaned up
	Stopped  int // machines stopped and kept, since what is on them is not saved
	Failed   int // tries that failed, and come again
	HeldBack int // nothing tried: somebody has to do something first
}

// CleanUpLeases takes the leases of ended runs out of their hands, and has the machines of those that
// are due stopped or destroyed by their providers. The provider is asked outside of any transaction;
// what it answers becomes a receipt by the same rules as an operator's. A failed try comes again, later
// and later up to half an hour, for ever.
//
// Any number of servers may sweep at once: each try is claimed, and its outcome written only under the
// claim. A sweep that is cut off leaves claims that run out. It ends when nothing is due, or early enough
// before the context's deadline for what it began.
func (s *Service) CleanUpLeases(ctx context.Context) (CleanupSweep, error) {
	var sweep CleanupSweep
	begun, failed := s.beginLeaseCleanups(ctx)
	sweep.Begun = begun
	if _, err := s.queries.SettleLeaseCleanupsDoneElsewhere(ctx, s.pool); err != nil {
		return sweep, errors.Join(failed, fmt.Errorf("settle clean-ups done elsewhere: %w", err))
	}
	for s.timeForAnotherTry(ctx) {
		claim := newID()
		leases, err := s.queries.ClaimLeaseCleanups(ctx, s.pool, db.ClaimLeaseCleanupsParams{
			Claim: claim, ClaimSeconds: (s.providerTime + cleanupClaimTime).Seconds(), Rows: cleanupsAtOnce,
		})
		if err != nil {
			return sweep, errors.Join(failed, fmt.Errorf("claim clean-ups: %w", err))
		}
		if len(leases) == 0 {
			break
		}
		// A try that fails by our fault stays claimed for a while, and is in nobody's way.
		failed = errors.Join(failed, s.tryLeaseCleanups(ctx, claim, leases, &sweep))
	}
	return sweep, errors.Join(failed, ctx.Err())
}

func (s *Service) timeForAnotherTry(ctx context.Context) bool {
	deadline, set := ctx.Deadline()
	return ctx.Err() == nil && (!set || time.Until(deadline) > s.providerTime)
}

// beginLeaseCleanups finds the leases that their runs left behind, whatever route ended the run, and
// whether or not the server that ended it lived on.
func (s *Service) beginLeaseCleanups(ctx context.Context) (int, error) {
	leases, err := s.queries.ListLeasesToBegin(ctx, s.pool, db.ListLeasesToBeginParams{
		AfterSeconds: s.cleanupAfter.Seconds(), AtMost: cleanupBeginRows,
	})
	if err != nil {
		return 0, fmt.Errorf("list leases to clean up: %w", err)
	}
	begun := 0
	for _, lease := range leases {
		var began int64
		tried := s.inTx(ctx, func(tx pgx.Tx) error {
			row, err := s.lockLease(ctx, tx, lease)
			if err != nil {
				return err
			}
			began, err = s.beginLeaseCleanup(ctx, tx, row)
			return err
		})
		switch {
		case tried == nil:
			begun += int(began)
		case ctx.Err() != nil || db.IsUnavailable(tried):
			return begun, errors.Join(err, tried)
		default: // one that cannot be begun does not keep the others from it
			err = errors.Join(err, fmt.Errorf("lease %s: %w", lease, tried))
		}
	}
	return begun, err
}

// beginLeaseCleanup begins the clean-up of a locked lease. A retained one keeps its status, which is
// part of the proof that its machine stopped. Zero: nothing was to begin any more.
func (s *Service) beginLeaseCleanup(ctx context.Context, tx pgx.Tx, lease db.EnvironmentLease) (int64, error) {
	if cleanedUp(lease) {
		return 0, nil
	}
	began, err := s.queries.BeginLeaseCleanup(ctx, tx, db.BeginLeaseCleanupParams{LeaseID: lease.ID, CompanyID: lease.CompanyID})
	if err != nil {
		return 0, fmt.Errorf("begin a clean-up: %w", err)
	}
	if began == 0 || lease.Status == leaseRetained {
		return began, nil
	}
	if _, err := s.queries.SendLeaseToCleanup(ctx, tx, db.SendLeaseToCleanupParams{ID: lease.ID, FromStatus: lease.Status}); err != nil {
		return 0, fmt.Errorf("send a lease to clean-up: %w", err)
	}
	return began, nil
}

// cleanedUp reports whether nothing is left to do about the lease's machine.
func cleanedUp(lease db.EnvironmentLease) bool {
	return slices.Contains([]string{leaseReleased, leaseExpired, leaseFailed}, lease.Status) &&
		lease.CleanupStatus != nil && *lease.CleanupStatus == cleanupSuccess
}

// tryLeaseCleanups tries the claimed leases side by side. The providers are asked in parallel, the
// database one after the other: a sweep takes one connection, however much there is to do.
func (s *Service) tryLeaseCleanups(ctx context.Context, claim uuid.UUID, leases []uuid.UUID, sweep *CleanupSweep) error {
	var (
		all      sync.WaitGroup
		database sync.Mutex
		failures []error
	)
	for _, lease := range leases {
		all.Go(func() {
			try := cleanupTry{Service: s, lease: lease, claim: claim, database: &database}
			outcome, err := try.run(ctx)
			database.Lock()
			defer database.Unlock()
			switch {
			case err == nil:
				sweep.count(outcome)
				try.tell(ctx, outcome)
			case !errors.Is(err, errStaleCleanup):
				failures = append(failures, err)
			}
		})
	}
	all.Wait()
	return errors.Join(failures...)
}

// cleanupTry is one claimed try for one lease.
type cleanupTry struct {
	*Service
	lease    uuid.UUID
	claim    uuid.UUID
	database *sync.Mutex // held while the database is used
	facts    db.GetLeaseCleanupFactsRow
}

func (t *cleanupTry) run(ctx context.Context) (outcome cleanupOutcome, err error) {
	if err := t.readFacts(ctx); err != nil {
		return outcome, err
	}
	step := decideCleanup(t.facts)
	var found finding
	if step.heldBackBy == "" {
		found = t.ask(ctx, step)
	}
	if err := ctx.Err(); err != nil {
		return outcome, err // cut off: what became of the wish shows the next time
	}
	t.database.Lock()
	defer t.database.Unlock()
	err = t.inTx(ctx, func(tx pgx.Tx) error {
		lease, err := t.lockLease(ctx, tx, t.lease)
		if err != nil {
			return err
		}
		_, err = t.queries.LockClaimedCleanup(ctx, tx, db.LockClaimedCleanupParams{LeaseID: t.lease, Claim: t.claim})
		if errors.Is(err, pgx.ErrNoRows) || (err == nil && lease.Status != t.facts.Status) {
			return errStaleCleanup
		}
		if err != nil {
			return fmt.Errorf("lock a claimed clean-up: %w", err)
		}
		outcome, err = t.record(ctx, tx, lease, step, found)
		return err
	})
	return outcome, err
}

func (t *cleanupTry) readFacts(ctx context.Context) error {
	t.database.Lock()
	defer t.database.Unlock()
	var err error
	if t.facts, err = t.queries.GetLeaseCleanupFacts(ctx, t.pool, t.lease); err != nil {
		return fmt.Errorf("read the facts of a clean-up: %w", err)
	}
	return nil
}

// cleanupStep is what is to be done about a machine now. Either it is held back, and the word says by
// what, or the machine is to be stopped or destroyed; kind is the receipt that a stop is worth.
type cleanupStep struct {
	heldBackBy string
	destroy    bool
	kind       string
}

// Why nothing is asked of a provider.
const (
	heldByUnsavedWork     = "unsaved_work"
	heldByRetention       = "retained"
	heldByUse             = "machine_in_use"
	heldByUnknownProvider = "unknown_provider"
)

// decideCleanup says what a clean-up may do. Unsaved work is only ever stopped over: its machine is
// destroyed once the work is recovered, or somebody gave it up by a takeover or a discard.
func decideCleanup(f db.GetLeaseCleanupFactsRow) cleanupStep {
	unsaved := f.FailureReason == failureUnsaved
	switch {
	case f.Provider == nil || *f.Provider == "" || *f.Provider == "local" || f.ProviderLeaseID == nil || *f.ProviderLeaseID == "":
		return cleanupStep{heldBackBy: heldByUnknownProvider}
	case f.InUse:
		return cleanupStep{heldBackBy: heldByUse}
	case f.Status == leaseRetained && !unsaved && !f.ReleasePending:
		return cleanupStep{heldBackBy: heldByRetention}
	// Files that no workspace of Berth's knows: nobody could have recovered them here.
	case f.UnsavedWork || (f.Status == leaseRetained && unsaved && !f.HeldWorkspace && !f.ReleasePending):
		if f.Proven {
			return cleanupStep{heldBackBy: heldByUnsavedWork}
		}
		return cleanupStep{kind: stopOverUnsavedWork(f)}
	case keepsMachine(f.LeasePolicy, f.RunStatus) && !f.ReleasePending:
		return cleanupStep{kind: receiptTermination}
	default:
		return cleanupStep{destroy: true}
	}
}

// stopOverUnsavedWork is the kind of receipt for a machine that is stopped and kept.
func stopOverUnsavedWork(f db.GetLeaseCleanupFactsRow) string {
	if f.Status == leaseRetained && f.FailureReason == failureUnsaved && !f.ReleasePending {
		return receiptRetained
	}
	return receiptRecoveryCleanup
}

// keepsMachine reports whether the policy wants a machine that is stopped, and not destroyed.
func keepsMachine(policy, runStatus string) bool {
	switch policy {
	case "reuse_by_environment", "reuse_by_execution_workspace":
		return true
	case "retain_on_failure":
		return runStatus != "succeeded" && runStatus != "cancelled"
	default:
		return false
	}
}

// CleanupDebt says how much is left to clean up, for those who watch.
type CleanupDebt struct {
	Pending         int64         // not tried yet, or no failure since the last step
	Failing         int64         // the last try failed
	HeldBack        int64         // waits for recovery, for the end of retention or of another run's use
	UnknownProvider int64         // nobody here can ask their provider
	Oldest          time.Duration // since when the oldest of the pending and failing is due
}

// CleanupDebt counts the leases of ended runs whose machines nobody proved to be cleaned up, also those
// that no sweep has seen yet.
func (s *Service) CleanupDebt(ctx context.Context) (CleanupDebt, error) {
	row, err := s.queries.GetLeaseCleanupDebt(ctx, s.pool)
	if err != nil {
		return CleanupDebt{}, fmt.Errorf("count what is to be cleaned up: %w", err)
	}
	return CleanupDebt{
		Pending: row.Pending, Failing: row.Failing, HeldBack: row.HeldBack, UnknownProvider: row.UnknownProvider,
		Oldest: time.Duration(row.OldestSeconds * float64(time.Second)),
	}, nil
}
