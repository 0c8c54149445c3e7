package authority

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// RecoveryToken lets its holder save in the name of one writer that ended: for exactly that tenure, until it
// ends or a day is over. It reads that workspace and its snapshots, and does nothing else anywhere.
type RecoveryToken struct {
	ID           uuid.UUID
	CompanyID    uuid.UUID
	WorkspaceID  uuid.UUID
	Epoch        int64
	RunID        uuid.UUID
	Reason       *string
	RiskAccepted bool // it was given without proof that the writer stopped
	CreatedBy    string
	CreatedAt    time.Time
	ExpiresAt    time.Time
}

func recoveryTokenOf(row db.RecoveryToken) RecoveryToken {
	return RecoveryToken{
		ID: row.ID, CompanyID: row.CompanyID, WorkspaceID: row.WorkspaceID, Epoch: row.Epoch, RunID: row.RunID,
		Reason: row.Reason, RiskAccepted: row.RiskAccepted, CreatedBy: row.CreatedBy, CreatedAt: row.CreatedAt,
		ExpiresAt: row.ExpiresAt,
	}
}

// recoveryPrefix begins the secret of every recovery token, and of no other.
const recoveryPrefix = "berth_recovery_"

// RecoveryInput says which writer's work is to be saved: that of the current epoch. AcceptRisk goes on without
// proof that it stopped, which stays on record.
type RecoveryInput struct {
	Epoch      int64
	Reason     *string
	AcceptRisk bool
}

// RecoveryProof are the details of ErrRecoveryNeedsStop: what the writer's run is, and the machines without proof.
type RecoveryProof struct {
	RunID        uuid.UUID
	RunStatus    string
	MissingProof []MissingProof
}

// CreateRecoveryToken opens the recovery of a writer that ended, and returns the token's secret, this once: a
// replay of the same request gets the token and an empty secret. For operators.
//
// ErrRecoveryNeedsStop: the run is not finished, which no accepted risk replaces, or not every machine of it is
// proven stopped. ErrTenureEnded: the epoch's tenure is over. ErrStaleEpoch, ErrNoWriter: it never was one.
func (s *Service) CreateRecoveryToken(
	ctx context.Context, by Principal, workspace uuid.UUID, in RecoveryInput, once Once,
) (token RecoveryToken, secret string, err error) {
	readable, err := s.readableWorkspace(ctx, s.pool, by, workspace)
	if err != nil {
		return RecoveryToken{}, "", err
	}
	if err := by.requireOperator(); err != nil {
		return RecoveryToken{}, "", err
	}
	secret = generateSecret(recoveryPrefix)
	token, replayed, err := createOnce(ctx, s, by, &readable.CompanyID, once, func(tx pgx.Tx) (RecoveryToken, error) {
		held, missing, err := s.lockEndedWriter(ctx, tx, readable, in)
		if err != nil {
			return RecoveryToken{}, err
		}
		proof, _ := json.Marshal(missingProofRecord(missing)) // plain values always marshal
		row, err := s.queries.InsertRecoveryToken(ctx, tx, db.InsertRecoveryTokenParams{
			ID: newID(), CompanyID: held.CompanyID, WorkspaceID: held.ID, Epoch: held.Epoch, RunID: *held.WriterRunID,
			SecretHash: hashOfSecret(secret), Reason: in.Reason, CreatedBy: by.Actor(),
			RiskAccepted: missing != nil, MissingProof: proof,
		})
		if err != nil {
			return RecoveryToken{}, fmt.Errorf("insert a recovery token: %w", err)
		}
		return recoveryTokenOf(row), nil
	})
	if err != nil || replayed {
		return token, "", err
	}
	return token, secret, nil
}

// lockEndedWriter locks a workspace whose writer of the epoch ended and may be recovered, and its run. It returns
// what is not proven, nil when everything is.
func (s *Service) lockEndedWriter(
	ctx context.Context, tx pgx.Tx, w db.ExecutionWorkspace, in RecoveryInput,
) (held db.ExecutionWorkspace, missing []LeaseProof, err error) {
	held, err = s.queries.LockWorkspace(ctx, tx, db.LockWorkspaceParams{CompanyID: w.CompanyID, WorkspaceID: w.ID})
	if err != nil {
		return held, nil, fmt.Errorf("lock the workspace: %w", err)
	}
	if held.Epoch != in.Epoch || held.WriterRunID == nil {
		return held, nil, s.notTheWriter(ctx, tx, held, in.Epoch)
	}
	run, err := s.queries.ShareLockRun(ctx, tx, db.ShareLockRunParams{CompanyID: held.CompanyID, RunID: *held.WriterRunID})
	if err != nil {
		return held, nil, fmt.Errorf("lock the writer's run: %w", err)
	}
	leases, err := s.leaseProofs(ctx, tx, held.CompanyID, run.ID)
	if err != nil {
		return held, nil, err
	}
	if err := recoverable(run, leases, in.AcceptRisk); err != nil {
		return held, nil, err
	}
	if provenStopped(leases) {
		return held, nil, nil
	}
	return held, append([]LeaseProof{}, leases...), nil
}

// recoverable refuses to save in the name of a run that goes on, or that is not proven stopped, unless an
// operator accepts the latter.
func recoverable(run db.HeartbeatRun, leases []LeaseProof, acceptRisk bool) error {
	needs := ErrRecoveryNeedsStop.With(RecoveryProof{RunID: run.ID, RunStatus: run.Status, MissingProof: missingProof(leases)})
	switch proven := provenStopped(leases); {
	case run.FinishedAt == nil && proven:
		return needs.Say("The run is %s, though every machine of it is proven stopped: finish it as interrupted, and then recover its work.", run.Status)
	case run.FinishedAt == nil:
		return needs.Say("The run is %s: ask it to stop, or bring the receipts of its machines and finish it. Then recover its work.", run.Status)
	case !proven && !acceptRisk && len(leases) == 0:
		return needs.Say("The run has no machine, so nothing proves that it stopped: recover with acceptRisk if you know that it did.")
	case !proven && !acceptRisk:
		return needs
	default:
		return nil
	}
}

// notTheWriter says why there is no writer at the epoch.
func (s *Service) notTheWriter(ctx context.Context, q db.DBTX, w db.ExecutionWorkspace, epoch int64) error {
	t, err := s.queries.GetTenureAtEpoch(ctx, q, db.GetTenureAtEpochParams{CompanyID: w.CompanyID, WorkspaceID: w.ID, Epoch: epoch})
	switch {
	case errors.Is(err, pgx.ErrNoRows) && epoch == w.Epoch:
		return ErrNoWriter
	case errors.Is(err, pgx.ErrNoRows):
		return ErrStaleEpoch.Say("The workspace is at epoch %d, and nobody was its writer at %d.", w.Epoch, epoch)
	case err != nil:
		return fmt.Errorf("read the tenure: %w", err)
	case t.EndedAt == nil:
		return ErrUnavailable.Say("The tenure changed while it was looked at; the call is safe to repeat.")
	}
	return ErrTenureEnded.With(TenureEnding{EndedAt: *t.EndedAt, How: *t.EndedHow, By: *t.EndedBy, Reason: t.EndedReason})
}

// missingProofRecord is what history keeps of machines that were not proven stopped.
func missingProofRecord(leases []LeaseProof) any {
	type machine struct {
		LeaseID  uuid.UUID `json:"leaseId"`
		Provider string    `json:"provider"`
		Reason   string    `json:"reason"`
	}
	record := []machine{}
	for _, l := range missingProof(leases) {
		record = append(record, machine(l))
	}
	return record
}

// authenticateRecovery returns whom a recovery token lets save. Whether its tenure goes on is not asked here: a
// holder who comes too late is told how it ended.
func (s *Service) authenticateRecovery(ctx context.Context, secret string) (Principal, error) {
	row, err := s.queries.GetUsableRecoveryTokenByHash(ctx, s.pool, hashOfSecret(secret))
	if errors.Is(err, pgx.ErrNoRows) {
		return Principal{}, ErrUnauthenticated
	}
	if err != nil {
		return Principal{}, fmt.Errorf("look up a recovery token: %w", err)
	}
	return Principal{
		Role: RoleRecovery, TokenID: row.ID, TokenExpiresAt: row.ExpiresAt, CompanyID: row.CompanyID, RunID: row.RunID,
		WorkspaceID: row.WorkspaceID, Epoch: row.Epoch, RiskAccepted: row.RiskAccepted,
	}, nil
}
