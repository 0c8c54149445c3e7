package authority

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// TakeoverInput says why an operator ends a tenure by hand, and whether without proof that its
// machines stopped.
type TakeoverInput struct {
	Reason     string
	AcceptRisk bool
}

// TakeoverProof is the details of ErrTakeoverNeedsProof: the machines without proof. It is empty
// when the run has no machine at all.
type TakeoverProof struct {
	MissingProof []MissingProof
}

// Takeover ends the tenure of a workspace's writer: the old epoch is dead at once, unsaved work is
// given up, and the next reservation is told. Without proof that the writer stopped it is
// ErrTakeoverNeedsProof, unless the operator accepts that risk, which stays on record.
func (s *Service) Takeover(ctx context.Context, by Principal, workspace uuid.UUID, in TakeoverInput) (Workspace, error) {
	readable, err := s.readableWorkspace(ctx, s.pool, by, workspace)
	if err != nil {
		return Workspace{}, err
	}
	if err := by.requireOperator(); err != nil {
		return Workspace{}, err
	}
	if strings.TrimSpace(in.Reason) == "" {
		return Workspace{}, ErrValidation.At("body.reason", "is empty: history keeps why the tenure was ended")
	}
	var freed db.ExecutionWorkspace
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		held, err := s.lockWriter(ctx, tx, readable.CompanyID, workspace)
		if err != nil {
			return err
		}
		leases, err := s.leaseProofs(ctx, tx, readable.CompanyID, *held.WriterRunID)
		if err != nil {
			return err
		}
		if !provenStopped(leases) && !in.AcceptRisk {
			return ErrTakeoverNeedsProof.With(TakeoverProof{MissingProof: missingProof(leases)})
		}
		freed, err = s.takeOver(ctx, tx, held, takingOver{by: by, reason: in.Reason, leases: leases})
		return err
	})
	if err != nil {
		return Workspace{}, err
	}
	return workspaceOf(freed), nil
}

// lockWriter locks a workspace and then its writer, which may get no further lease until the commit.
func (s *Service) lockWriter(ctx context.Context, tx pgx.Tx, company, workspace uuid.UUID) (db.ExecutionWorkspace, error) {
	held, err := s.queries.LockWorkspace(ctx, tx, db.LockWorkspaceParams{CompanyID: company, WorkspaceID: workspace})
	if err != nil {
		return held, fmt.Errorf("lock the workspace: %w", err)
	}
	if held.WriterRunID == nil {
		return held, ErrNoWriter
	}
	if _, err := s.queries.ShareLockRun(ctx, tx, db.ShareLockRunParams{CompanyID: company, RunID: *held.WriterRunID}); err != nil {
		return held, fmt.Errorf("lock the writer's run: %w", err)
	}
	return held, nil
}

func (s *Service) leaseProofs(ctx context.Context, q db.DBTX, company, run uuid.UUID) ([]LeaseProof, error) {
	rows, err := s.queries.ListLeaseProofsByRun(ctx, q, db.ListLeaseProofsByRunParams{CompanyID: company, RunID: run})
	if err != nil {
		return nil, fmt.Errorf("list the run's leases: %w", err)
	}
	return leaseProofsOf(rows), nil
}

func leaseProofsOf(rows []db.ListLeaseProofsByRunRow) []LeaseProof {
	leases := make([]LeaseProof, 0, len(rows))
	for _, p := range rows {
		leases = append(leases, leaseProofOf(p.LeaseID, p.Provider, p.ReceiptID, p.ProofKind, p.Missing))
	}
	return leases
}

type takingOver struct {
	by     Principal
	reason string
	leases []LeaseProof
}

func (s *Service) takeOver(ctx context.Context, tx pgx.Tx, held db.ExecutionWorkspace, t takingOver) (db.ExecutionWorkspace, error) {
	if held.Epoch >= maximumEpoch {
		return held, ErrEpochExhausted.Say("The workspace is at its last epoch, and a takeover needs one more: the run releases it.")
	}
	freed, err := s.queries.TakeOverWorkspace(ctx, tx, db.TakeOverWorkspaceParams{
		CompanyID: held.CompanyID, WorkspaceID: held.ID, Epoch: held.Epoch, RunID: *held.WriterRunID,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return held, ErrNoWriter
	}
	if err != nil {
		return held, fmt.Errorf("take over: %w", err)
	}
	unproven := !provenStopped(t.leases)
	_, err = s.queries.CloseTenure(ctx, tx, db.CloseTenureParams{
		CompanyID: held.CompanyID, WorkspaceID: held.ID, Epoch: held.Epoch, RunID: *held.WriterRunID,
		EndedHow: "takeover", EndedBy: t.by.Actor(), EndedReason: &t.reason,
		UnsavedWork: held.Dirty, Unproven: unproven, Proof: proofDocument(t.leases),
	})
	if err != nil {
		return held, fmt.Errorf("close the tenure: %w", err)
	}
	data, _ := json.Marshal(map[string]any{ // plain values always marshal
		"fromRunId": held.WriterRunID, "fromEpoch": held.Epoch, "reason": t.reason,
		"unproven": unproven, "unsavedWork": held.Dirty,
	})
	return freed, s.recordEvent(ctx, tx, db.InsertEventParams{
		CompanyID: held.CompanyID, Kind: "workspace.taken_over", WorkspaceID: &held.ID, RunID: held.WriterRunID,
		Epoch: &freed.Epoch, Actor: t.by.Actor(), Data: data,
	})
}
