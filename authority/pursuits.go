package authority

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// pursuit is the search for proof that the writer of one tenure stopped. Its provider calls hold no lock, so
// each step that follows one looks again, under locks, whether the search still has a point.
type pursuit struct {
	company   uuid.UUID
	workspace uuid.UUID
	epoch     int64
	run       uuid.UUID
	actor     string     // in whose name receipts are recorded and the run is finished
	stops     bool       // asks the machines to stop; else only what became of them
	heardAt   *time.Time // if set, a run that was heard of after it is left alone

	// settle closes the record of the pursuit, in the transaction that brings it to its end. Zero rows: the
	// attempt took too long, and another one has the record now.
	settle func(tx pgx.Tx, how ending) (int64, error)
}

// ending is how a pursuit comes to its end.
type ending string

const (
	endingProven ending = "proven" // every machine is proven stopped, and the run is finished
	endingOver   ending = "over"   // the run is not the writer any more
	endingHeard  ending = "heard"  // the run was heard of again
)

// Why an attempt proved nothing, beside the kinds of provider.Kind and the codes of refused receipts.
const (
	missingMachine       = "no_machine"    // the run has no lease, and so nobody can be asked
	missingProviderID    = "cannot_prove"  // the lease names no provider, or no id
	missingProofOfALease = "proof_missing" // a receipt is there, and the lease does not fit it
)

// hopeless reports whether asking again is of little use before somebody changed something.
func hopeless(missing string) bool {
	return slices.Contains([]string{
		missingMachine, missingProviderID, missingProofOfALease, heldByUnknownProvider, heldByUse, failedByOtherMachine,
		"misconfigured", "elsewhere", "unauthorized",
	}, missing)
}

// pursuitTime bounds an attempt, so that it ends while its claim is its own: see ClaimStopRequest.
const pursuitTime = 90 * time.Second

// pursue makes one attempt. It returns "" when the pursuit came to its end, and else why nothing was proven.
func (s *Service) pursue(ctx context.Context, p pursuit) (missing string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pursuitTime)
	defer cancel()
	signs, err := s.queries.GetWriterSigns(ctx, s.pool, p.signs())
	if err != nil {
		return "", fmt.Errorf("look for a writer: %w", err)
	}
	if p.ended(signs) == "" {
		if missing, err = s.proveMachines(ctx, p); err != nil {
			return "", err
		}
	}
	ended, err := s.endProven(ctx, p)
	switch {
	case errors.Is(err, errClaimLost):
		return "", nil
	case err != nil || ended:
		return "", err
	case missing == "":
		return missingProofOfALease, nil
	}
	return missing, nil
}

func (p pursuit) signs() db.GetWriterSignsParams {
	return db.GetWriterSignsParams{CompanyID: p.company, WorkspaceID: p.workspace, Epoch: p.epoch, RunID: p.run}
}

// ended says how the pursuit ended without proof, or "".
func (p pursuit) ended(signs db.GetWriterSignsRow) ending {
	switch {
	case !signs.StillWriter:
		return endingOver
	case p.heardAt != nil && signs.HeardAt.After(*p.heardAt):
		return endingHeard
	case p.heardAt != nil && signs.FinishedAt != nil:
		return endingOver
	default:
		return ""
	}
}

// proveMachines asks about every machine of the run that is not proven stopped, all at once. It returns
// why one stays without proof, or "".
func (s *Service) proveMachines(ctx context.Context, p pursuit) (string, error) {
	machines, err := s.queries.ListMachinesOfRun(ctx, s.pool, db.ListMachinesOfRunParams{CompanyID: p.company, RunID: p.run})
	if err != nil {
		return "", fmt.Errorf("list a run's machines: %w", err)
	}
	if len(machines) == 0 {
		return missingMachine, nil
	}
	missing, errs := make([]string, len(machines)), make([]error, len(machines))
	var all sync.WaitGroup
	for i, m := range machines {
		if m.Missing == "" {
			continue
		}
		all.Go(func() { missing[i], errs[i] = s.proveMachine(ctx, p, m) })
	}
	all.Wait()
	for _, why := range missing {
		if why != "" {
			return why, errors.Join(errs...)
		}
	}
	return "", errors.Join(errs...)
}

// proveMachine asks about one machine, and records the answer if it is proof.
func (s *Service) proveMachine(ctx context.Context, p pursuit, m db.ListMachinesOfRunRow) (string, error) {
	state, missing := s.askProvider(ctx, p, m)
	if missing != "" {
		return missing, nil
	}
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		lease, err := s.lockLease(ctx, tx, m.ID)
		if err != nil {
			return err
		}
		signs, err := s.queries.GetWriterSigns(ctx, tx, p.signs())
		if err != nil {
			return fmt.Errorf("look for a writer: %w", err)
		}
		if p.ended(signs) != "" {
			return nil // its machine is nobody's business any more
		}
		held, err := s.queries.GetWorkspaceHeldByRun(ctx, tx, db.GetWorkspaceHeldByRunParams{CompanyID: p.company, RunID: p.run})
		if err != nil {
			return fmt.Errorf("read the writer's workspace: %w", err)
		}
		_, _, err = s.recordReceipt(ctx, tx, p.actor, lease, ReceiptInput{
			ProviderLeaseID: m.ProviderLeaseID, State: string(state), RunID: &p.run,
			Kind: receiptKindFor(lease, string(state), held.Dirty),
		})
		return err
	})
	if refused, ok := AsRefusal(err); ok && refused.Code != ErrUnavailable.Code {
		return string(refused.Code), nil
	}
	return "", err
}

// receiptKindFor chooses what a provider's word makes of the lease of a writer that is to be interrupted.
//
// A destroyed machine is done with. One that only stopped has its files and its price still: with
// recovery_cleanup it is proven stopped and yet to be destroyed, so that unsaved work can be fetched from it, and
// the clean-up that follows does not forget it. It would, if the receipt said termination, which means that
// nothing is left to do: that is so where a machine with nothing unsaved on it is kept by its policy, and where
// the lease counts as cleaned up already.
func receiptKindFor(lease db.EnvironmentLease, state string, unsaved bool) string {
	if state == stateDestroyed || cleanedUp(lease) || (!unsaved && keepsMachine(lease.LeasePolicy, "interrupted")) {
		return receiptTermination
	}
	return receiptRecoveryCleanup
}

// errClaimLost never leaves the package: the attempt took longer than its claim, and what it would write is
// another one's to write.
var errClaimLost = errors.New("another attempt has the claim")

// endProven brings the pursuit to its end if it can: over the run's proven stop, or because it has no point
// any more. It reports false when the stop is not proven.
func (s *Service) endProven(ctx context.Context, p pursuit) (ended bool, err error) {
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		ended = false
		_, err := s.queries.LockWorkspace(ctx, tx, db.LockWorkspaceParams{CompanyID: p.company, WorkspaceID: p.workspace})
		if err != nil {
			return fmt.Errorf("lock the workspace: %w", err)
		}
		run, err := s.queries.LockRun(ctx, tx, db.LockRunParams{CompanyID: p.company, RunID: p.run})
		if err != nil {
			return fmt.Errorf("lock the writer's run: %w", err)
		}
		signs, err := s.queries.GetWriterSigns(ctx, tx, p.signs())
		if err != nil {
			return fmt.Errorf("look for a writer: %w", err)
		}
		how := p.ended(signs)
		if how == "" {
			leases, err := s.leaseProofs(ctx, tx, p.company, p.run)
			if err != nil || !provenStopped(leases) {
				return err
			}
			how = endingProven
			if run.FinishedAt == nil {
				if _, err := s.endRun(ctx, tx, run, "interrupted", p.actor); err != nil {
					return err
				}
			}
		}
		hit, err := p.settle(tx, how)
		switch {
		case err != nil:
			return fmt.Errorf("settle a pursuit: %w", err)
		case hit == 0:
			return errClaimLost
		}
		ended = true
		return nil
	})
	return ended, err
}

// The pause between attempts doubles from the shortest to the longest.
const (
	shortestPause = 30 * time.Second
	longestPause  = 30 * time.Minute
)

// pauseAfter is how long to wait after so many attempts, spread by a tenth so that many that began together do
// not stay in step.
func pauseAfter(attempts int) time.Duration {
	pause := longestPause
	if doublings := attempts - 1; doublings < 6 {
		pause = shortestPause << max(0, doublings)
	}
	spread := int64(pause / 10)
	return pause - time.Duration(rand.Int64N(spread)) //nolint:gosec // a pause, not a secret
}

// pursuitsAtOnce is how many providers a sweep waits for at a time: a slow one must not keep the others.
const pursuitsAtOnce = 4

// untilNothingIsDue calls attempt, some at once, until it finds nothing to do, or the context's deadline comes too near
// for another. It goes on after an attempt that failed, which has left its claim behind.
func (s *Service) untilNothingIsDue(ctx context.Context, attempt func(context.Context) (bool, error)) error {
	errs := make([]error, pursuitsAtOnce)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			for more := true; more && s.timeForAnotherTry(ctx); {
				var err error
				more, err = attempt(ctx)
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	all.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}
