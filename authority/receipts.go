package authority

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// Receipt is the provider's confirmation that the machine of one lease stopped. It names that
// lease, its run, its provider and the provider's id; the database takes no other.
type Receipt struct {
	ID              uuid.UUID
	CompanyID       uuid.UUID
	LeaseID         uuid.UUID
	RunID           uuid.UUID
	Provider        string
	ProviderLeaseID string
	State           string // "stopped" or "destroyed"
	Kind            string // what became of the machine: see ReceiptInput
	RecordedBy      string
	ConfirmedAt     time.Time
}

func receiptOf(row db.TerminationReceipt) Receipt { return Receipt(row) }

// ReceiptInput is what the provider answered. RunID, when given, must be the lease's run.
//
// Kind says what became of the machine, and moves the lease: "termination" is its end (released when
// it stopped, expired when it was destroyed), "retained" that it stopped and is kept because its
// files are not saved yet, "recovery_cleanup" that it stopped and is still to be destroyed.
type ReceiptInput struct {
	ProviderLeaseID string
	State           string
	Kind            string
	RunID           *uuid.UUID
}

const (
	receiptTermination     = "termination"
	receiptRetained        = "retained"
	receiptRecoveryCleanup = "recovery_cleanup"

	stateStopped   = "stopped"
	stateDestroyed = "destroyed"
)

// ReceiptRejection are the details of ErrReceiptRejected.
type ReceiptRejection struct {
	Reason string // lease_without_run | provider_local | provider_lease_mismatch | lease_run_mismatch | state_not_final
}

// failureUnsaved is why a machine is retained: its work folder is yet to be saved. A retained
// lease proves a stop only with this reason.
const failureUnsaved = "work_folder_save_required"

// RecordReceipt stores the provider's confirmation that a lease's machine stopped, and moves the
// lease as the receipt's kind says. For operators. The same receipt again changes nothing and
// answers the first, with the lease as it is now; ErrLeaseForward says that the lease is past what
// the receipt tells.
//
// A lease of an ended writer may move on after a handover; it never touches the new writer.
func (s *Service) RecordReceipt(ctx context.Context, by Principal, lease uuid.UUID, in ReceiptInput) (Receipt, Lease, error) {
	if err := requireLeaseOperator(by); err != nil {
		return Receipt{}, Lease{}, err
	}
	if err := in.validate(); err != nil {
		return Receipt{}, Lease{}, err
	}
	var (
		receipt Receipt
		settled Lease
	)
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		row, err := s.lockLease(ctx, tx, lease)
		if err != nil {
			return err
		}
		if receipt, settled, err = s.recordReceipt(ctx, tx, by.Actor(), row, in); err != nil {
			return err
		}
		lease := []Lease{settled}
		err = s.addCleanups(ctx, tx, lease)
		settled = lease[0]
		return err
	})
	return receipt, settled, err
}

// recordReceipt stores a receipt about a locked lease, and moves the lease. Whoever brings a provider's
// word, an operator or a sweep, brings it here. The same receipt again changes nothing.
func (s *Service) recordReceipt(
	ctx context.Context, tx pgx.Tx, actor string, lease db.EnvironmentLease, in ReceiptInput,
) (Receipt, Lease, error) {
	if reason := in.rejected(lease); reason != "" {
		return Receipt{}, Lease{}, ErrReceiptRejected.With(ReceiptRejection{Reason: reason})
	}
	first, err := s.queries.FindReceipt(ctx, tx, db.FindReceiptParams{LeaseID: lease.ID, Kind: in.Kind, State: in.State})
	switch {
	case err == nil:
		return receiptOf(first), leaseOf(lease), nil
	case !errors.Is(err, pgx.ErrNoRows):
		return Receipt{}, Lease{}, fmt.Errorf("look for a receipt: %w", err)
	}
	return s.settle(ctx, tx, actor, lease, in)
}

func (in ReceiptInput) validate() error {
	refused := validation{}
	refused.text("body.kind", in.Kind)
	refused.oneOf("body.kind", in.Kind, []string{receiptTermination, receiptRetained, receiptRecoveryCleanup})
	if in.State == stateDestroyed && in.Kind != receiptTermination {
		refused.add("body.kind", "a destroyed machine is neither kept nor cleaned up later: its receipt is of kind termination")
	}
	return refused.err()
}

// rejected says why the receipt proves nothing about the lease, or "".
func (in ReceiptInput) rejected(lease db.EnvironmentLease) string {
	switch {
	case lease.HeartbeatRunID == nil:
		return "lease_without_run"
	case lease.Provider == nil || *lease.Provider == "" || *lease.Provider == "local":
		return "provider_local"
	case lease.ProviderLeaseID == nil || *lease.ProviderLeaseID == "" || *lease.ProviderLeaseID != in.ProviderLeaseID:
		return "provider_lease_mismatch"
	case in.RunID != nil && *in.RunID != *lease.HeartbeatRunID:
		return "lease_run_mismatch"
	case in.State != stateStopped && in.State != stateDestroyed:
		return "state_not_final"
	default:
		return ""
	}
}

// settle stores a receipt that is new, and moves the lease.
func (s *Service) settle(ctx context.Context, tx pgx.Tx, actor string, lease db.EnvironmentLease, in ReceiptInput) (Receipt, Lease, error) {
	move, err := in.move(lease)
	if err != nil {
		return Receipt{}, Lease{}, err
	}
	receipt, err := s.queries.InsertReceipt(ctx, tx, db.InsertReceiptParams{
		ID: newID(), CompanyID: lease.CompanyID, LeaseID: lease.ID, RunID: *lease.HeartbeatRunID,
		Provider: *lease.Provider, ProviderLeaseID: *lease.ProviderLeaseID, State: in.State, Kind: in.Kind,
		RecordedBy: actor,
	})
	if err != nil {
		return Receipt{}, Lease{}, fmt.Errorf("insert a receipt: %w", err)
	}
	row, err := s.queries.SettleLease(ctx, tx, move)
	if err != nil {
		return Receipt{}, Lease{}, fmt.Errorf("settle a lease: %w", err)
	}
	return receiptOf(receipt), leaseOf(row), nil
}

// move is what the receipt does to the lease. It refuses a step back: a machine that is cleaned
// away or about to be is not retained any more, and one that is cleaned away is not yet to be. The
// clean-up of a machine that already failed stays on record as failed.
func (in ReceiptInput) move(lease db.EnvironmentLease) (db.SettleLeaseParams, error) {
	cleaned := slices.Contains([]string{leaseReleased, leaseExpired}, lease.Status) &&
		lease.CleanupStatus != nil && *lease.CleanupStatus == cleanupSuccess
	move := db.SettleLeaseParams{
		ID: lease.ID, FromStatus: lease.Status, CleanupStatus: lease.CleanupStatus, FailureReason: lease.FailureReason,
	}
	success, pending, unsaved := cleanupSuccess, cleanupPending, failureUnsaved
	switch in.Kind {
	case receiptTermination:
		move.Status, move.CleanupStatus, move.Released = leaseReleased, &success, true
		if in.State == stateDestroyed || (cleaned && lease.Status == leaseExpired) {
			move.Status = leaseExpired
		}
	case receiptRetained:
		if cleaned || slices.Contains([]string{leaseReleased, leaseExpired, leasePendingCleanup}, lease.Status) {
			return move, ErrLeaseForward
		}
		move.Status, move.FailureReason = leaseRetained, &unsaved
	case receiptRecoveryCleanup:
		if cleaned {
			return move, ErrLeaseForward
		}
		move.Status = leasePendingCleanup
		if move.CleanupStatus == nil || *move.CleanupStatus != cleanupFailed {
			move.CleanupStatus = &pending
		}
	}
	return move, nil
}
