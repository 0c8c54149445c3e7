package authority

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
	"berth/snapshot"
)

var emptySource = json.RawMessage(`{"kind": "empty"}`)

// storeProvider is how a snapshot's location names the store that the service was started with.
const storeProvider = "berth"

// reserveNew makes a workspace for a task that has none, binds the task to it and reserves it, in
// one transaction. It reports false when the task was bound meanwhile: decide again.
func (s *Service) reserveNew(ctx context.Context, asking reservationFacts) (Reservation, bool, error) {
	workspace := newID()
	// The bytes come first: the document never names what is not there. When the transaction fails
	// they are an orphan to collect.
	first, err := s.putEmptySnapshot(ctx, asking.company, workspace, 0)
	if err != nil {
		return Reservation{}, false, err
	}
	first.CreatedBy = asking.by.Actor()
	var reserved db.ExecutionWorkspace
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		if _, err := s.queries.LockIssueForBinding(ctx, tx, db.LockIssueForBindingParams{
			CompanyID: asking.company, IssueID: asking.asked.IssueID,
		}); err != nil {
			return fmt.Errorf("lock the task: %w", err)
		}
		var reads db.Pipeline
		queueReservationLocks(&reads, asking, true)
		queued := queueReservationReads(&reads, asking)
		if err := reads.Run(ctx, tx); err != nil {
			return fmt.Errorf("read the facts of a reservation: %w", err)
		}
		facts := queued.answered()
		if decide(facts).grant != grantCreate {
			return errBoundMeanwhile
		}
		reserved, err = s.createBound(ctx, tx, facts, workspace, first)
		return err
	})
	if errors.Is(err, errBoundMeanwhile) {
		return Reservation{}, false, nil
	}
	return Reservation{Workspace: workspaceOf(reserved)}, err == nil, err
}

// errBoundMeanwhile never leaves the package: the facts changed, and the reservation decides again.
var errBoundMeanwhile = errors.New("the facts of the reservation changed")

func (s *Service) createBound(
	ctx context.Context, tx pgx.Tx, f reservationFacts, workspace uuid.UUID, first db.InsertSnapshotParams,
) (db.ExecutionWorkspace, error) {
	var none db.ExecutionWorkspace
	created, err := s.insertWorkspace(ctx, tx, newWorkspace(f, workspace), first)
	if err != nil {
		return none, err
	}
	if _, err := s.queries.BindIssueToNewWorkspace(ctx, tx, db.BindIssueToNewWorkspaceParams{
		WorkspaceID: workspace, CompanyID: f.company, IssueID: f.asked.IssueID,
	}); err != nil {
		return none, fmt.Errorf("bind the task to its new workspace: %w", err)
	}
	if err := s.recordEvent(ctx, tx, db.InsertEventParams{
		CompanyID: f.company, Kind: "workspace.created", WorkspaceID: &workspace, IssueID: &f.asked.IssueID,
		RunID: &f.asked.RunID, Epoch: &created.Epoch, Actor: f.by.Actor(),
	}); err != nil {
		return none, err
	}
	reserved, err := s.queries.ReserveWorkspace(ctx, tx, db.ReserveWorkspaceParams{
		RunID: f.asked.RunID, CompanyID: f.company, WorkspaceID: workspace,
		Epoch: created.Epoch, LifecycleGeneration: created.LifecycleGeneration,
	})
	if err != nil {
		return none, fmt.Errorf("reserve the new workspace: %w", err)
	}
	if _, err := s.queries.OpenTenure(ctx, tx, f.tenure(workspace, reserved.Epoch, nil)); err != nil {
		return none, fmt.Errorf("begin the tenure: %w", err)
	}
	return reserved, nil
}

// newWorkspace is the one that a task without any gets.
func newWorkspace(f reservationFacts, id uuid.UUID) db.InsertWorkspaceParams {
	params := db.InsertWorkspaceParams{
		ID: id, CompanyID: f.company, SourceIssueID: &f.asked.IssueID,
		ProjectID: f.found.IssueProjectID, ProjectWorkspaceID: f.found.IssueProjectWorkspaceID,
		Name: *f.found.IssueIdentifier, Mode: "isolated_workspace",
		StrategyType: "task_directory", ProviderType: "cloud_sandbox",
		Status: "active", Source: emptySource,
	}
	if f.asked.ProjectID != nil {
		params.ProjectID = f.asked.ProjectID
	}
	if f.asked.ProjectWorkspaceID != nil {
		params.ProjectWorkspaceID = f.asked.ProjectWorkspaceID
	}
	if f.asked.Source != nil {
		params.Source = f.asked.Source
	}
	return params
}

// insertWorkspace records a workspace together with its saved state, and lets it name that.
func (s *Service) insertWorkspace(
	ctx context.Context, tx pgx.Tx, params db.InsertWorkspaceParams, first db.InsertSnapshotParams,
) (db.ExecutionWorkspace, error) {
	var none db.ExecutionWorkspace
	if _, err := s.queries.InsertWorkspace(ctx, tx, params); err != nil {
		return none, fmt.Errorf("record the workspace: %w", err)
	}
	if _, err := s.queries.InsertSnapshot(ctx, tx, first); err != nil {
		return none, fmt.Errorf("record its first snapshot: %w", err)
	}
	named, err := s.queries.NameFirstSnapshot(ctx, tx, db.NameFirstSnapshotParams{
		SnapshotID: first.ID, CompanyID: params.CompanyID, WorkspaceID: params.ID, Epoch: params.Epoch,
	})
	if err != nil {
		return none, fmt.Errorf("name its first snapshot: %w", err)
	}
	return named, nil
}

// putEmptySnapshot stores the archive of an empty tree for a workspace that is about to be made,
// and returns the row that records it.
func (s *Service) putEmptySnapshot(ctx context.Context, company, workspace uuid.UUID, epoch int64) (db.InsertSnapshotParams, error) {
	archive, summary := snapshot.Empty()
	id := newID()
	key := snapshot.Key(company, workspace, epoch, id)
	if err := s.store.Put(ctx, key, bytes.NewReader(archive), summary.Digest()); err != nil {
		return db.InsertSnapshotParams{}, s.storeError(ctx, "store an empty snapshot", err)
	}
	provider := storeProvider
	return db.InsertSnapshotParams{
		ID: id, CompanyID: company, WorkspaceID: workspace, Epoch: epoch, State: "committed",
		LocationProvider: &provider, LocationKey: &key,
		Size: &summary.Size, FileCount: &summary.FileCount, Sha256: &summary.SHA256,
	}, nil
}

// storeError tells a store that is full or out of reach, and so may answer later, from one that failed.
func (s *Service) storeError(ctx context.Context, doing string, err error) error {
	switch {
	case errors.Is(err, snapshot.ErrStoreFull):
		s.log.WarnContext(ctx, "the snapshot store is full", "doing", doing, "error", err)
		return ErrUnavailable.Say("The snapshot store is full; the call is safe to repeat once there is room.")
	case errors.Is(err, snapshot.ErrStoreUnavailable):
		s.log.WarnContext(ctx, "the snapshot store is out of reach", "doing", doing, "error", err)
		return ErrUnavailable.Say("The snapshot store is out of reach; the call is safe to repeat.")
	}
	return fmt.Errorf("%s: %w", doing, err)
}
