package authority

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// ApplySelection makes the pending selection of a task its binding, at the admission of a run of
// the task: before it reserves. It answers false when nothing is pending. The caller is that run,
// or somebody who may choose for the task.
//
// Rights are asked for again: the caller and the run's agent must read the workspace, and who chose
// must still be allowed to. ErrTaskRunActive: another run of the task is running, or this one
// already holds a workspace. ErrPendingSelectionStale: the task's binding or the workspace changed
// since; the way out is another choice.
func (s *Service) ApplySelection(ctx context.Context, by Principal, issue, run uuid.UUID) (applied bool, revision int64, err error) {
	var prepared *sharedWorkspace
	apply := func(tx pgx.Tx) error {
		a := application{service: s, tx: tx, by: by, prepared: prepared}
		applied, revision, err = a.apply(ctx, issue, run)
		return err
	}
	err = s.inTx(ctx, apply)
	var needed *sharedWorkspaceNeeded
	if errors.As(err, &needed) {
		// Bytes are stored outside of transactions, and before the rows that name them.
		if prepared, err = s.prepareShared(ctx, by, needed.company); err == nil {
			err = s.inTx(ctx, apply)
		}
	}
	if err != nil {
		return false, 0, err
	}
	return applied, revision, nil
}

// application is a pending selection on its way to become the binding of its task.
type application struct {
	service  *Service
	tx       pgx.Tx
	by       Principal
	prepared *sharedWorkspace
	task     db.Issue
	run      db.HeartbeatRun
	pending  PendingSelection
}

func (a *application) apply(ctx context.Context, issue, run uuid.UUID) (bool, int64, error) {
	var err error
	if a.task, err = a.service.issueForChange(ctx, a.tx, a.by, issue); err != nil {
		return false, 0, err
	}
	if err := a.admit(ctx, run); err != nil {
		return false, 0, err
	}
	pending, err := decodeDocument[PendingSelection](a.task.WorkspacePendingSelection)
	if err != nil || pending == nil {
		return false, a.task.WorkspaceBindingRevision, err
	}
	a.pending = *pending
	if a.pending.ExpectedBindingRevision != a.task.WorkspaceBindingRevision {
		return false, 0, ErrPendingSelectionStale
	}
	if err := a.requireQuiet(ctx); err != nil {
		return false, 0, err
	}
	if err := a.requireChoosersRight(ctx); err != nil {
		return false, 0, err
	}
	bound, err := a.binding(ctx)
	if err != nil {
		return false, 0, err
	}
	// The run is locked after the workspace, as everywhere.
	locked, err := a.service.queries.ShareLockRun(ctx, a.tx, db.ShareLockRunParams{CompanyID: a.task.CompanyID, RunID: run})
	if err != nil {
		return false, 0, fmt.Errorf("lock the run: %w", err)
	}
	if locked.Status != runRunning {
		return false, 0, ErrRunIdentity
	}
	return a.write(ctx, bound)
}

// admit finds the run, which must be a running one of the task, and asks who calls for it.
func (a *application) admit(ctx context.Context, run uuid.UUID) error {
	if a.by.Role == RoleRun && a.by.RunID != run {
		return ErrNotAllowed.Say("A run applies the selection of its own task, for itself.")
	}
	if a.by.Role != RoleRun {
		if err := a.service.requireCompanyWrite(ctx, a.tx, a.by, a.task.CompanyID); err != nil {
			return err
		}
	}
	row, err := a.service.queries.GetRun(ctx, a.tx, run)
	if row, err = found(row, err, ErrRunNotFound, "read a run"); err != nil {
		return err
	}
	a.run = row
	switch {
	case row.CompanyID != a.task.CompanyID:
		return ErrRunNotFound
	case a.by.Role == RoleRun && !sameID(row.BoundIssueID, &a.task.ID):
		return ErrNotAllowed.Say("A run applies the selection of its own task.")
	case row.Status != runRunning || !sameID(row.BoundIssueID, &a.task.ID):
		return ErrRunIdentity
	}
	return nil
}

// requireQuiet refuses while files of the task may be in use. A new run of the task, and a
// reservation for one, wait for the task's row, so that the answer holds until commit.
func (a *application) requireQuiet(ctx context.Context) error {
	others, err := a.service.queries.IsTaskRunning(ctx, a.tx, db.IsTaskRunningParams{IssueID: a.task.ID, ButRunID: &a.run.ID})
	if err != nil {
		return fmt.Errorf("look for running runs: %w", err)
	}
	if others {
		return ErrTaskRunActive.Say("Another run of the task is running: wait until it ended.")
	}
	holds, err := a.service.queries.IsWriter(ctx, a.tx, db.IsWriterParams{CompanyID: a.task.CompanyID, RunID: a.run.ID})
	if err != nil {
		return fmt.Errorf("look for the run's workspace: %w", err)
	}
	if holds {
		return ErrTaskRunActive.Say("The run already holds a workspace: a selection is applied before it reserves.")
	}
	return nil
}

// requireChoosersRight asks whether who made the choice could still make it. That it was allowed
// once is not enough; that its run ended since does not matter.
func (a *application) requireChoosersRight(ctx context.Context) error {
	chooser := a.chooser()
	if chooser.Role == RoleMember {
		err := a.service.requireCompanyWrite(ctx, a.tx, chooser, a.task.CompanyID)
		if errors.Is(err, ErrCompanyNotFound) || errors.Is(err, ErrNotAllowed) {
			return errChooserLost
		}
		return err
	}
	return nil
}

var errChooserLost = ErrPendingSelectionStale.Say("Who chose may not choose for this task any more: choose again.")

func (a *application) chooser() Principal {
	c := a.pending.ChosenBy
	as := Principal{Role: c.Role, UserID: c.UserID, AgentID: c.AgentID, CompanyID: a.task.CompanyID}
	if c.Role == RoleRun {
		as.Role = roleAgent // its run may have ended since
	}
	return as
}

// binding is what the task will be bound to by the choice.
func (a *application) binding(ctx context.Context) (binding, error) {
	chosen, settings := a.pending.Selection, a.task.ExecutionWorkspaceSettings
	switch chosen.Kind {
	case SelectExisting:
		return a.bindTo(ctx, *chosen.WorkspaceID)
	case SelectTaskDirectory:
		return unbound(nil, settings), nil
	}
	if err := a.requireSource(ctx); err != nil {
		return binding{}, err
	}
	if chosen.Mode == SourceIsolated {
		return unbound(chosen.ProjectWorkspaceID, settings), nil
	}
	shared, err := a.shared(ctx, *chosen.ProjectWorkspaceID)
	if err != nil {
		return binding{}, err
	}
	return a.bindTo(ctx, shared)
}

// unbound is the binding of a task whose next reservation makes a workspace for it alone.
func unbound(source *uuid.UUID, settings json.RawMessage) binding {
	isolated := "isolated_workspace"
	return binding{source: source, preference: &isolated, settings: withMode(settings, isolated)}
}

// bindTo locks the workspace, so that it neither closes nor is reserved under the decision, and
// asks everybody whom the files will be open to.
func (a *application) bindTo(ctx context.Context, id uuid.UUID) (binding, error) {
	company := a.task.CompanyID
	locked, err := a.service.queries.LockWorkspaceForBinding(ctx, a.tx, db.LockWorkspaceForBindingParams{CompanyID: company, ID: id})
	if _, err := found(locked, err, ErrWorkspaceUnavailable, "lock a workspace"); err != nil {
		return binding{}, err
	}
	agent := Principal{Role: roleAgent, CompanyID: company, AgentID: a.run.AgentID}
	var row db.ExecutionWorkspace
	for _, user := range []Principal{a.by, agent} {
		row, err = a.service.readableWorkspace(ctx, a.tx, user, id)
		if errors.Is(err, ErrWorkspaceNotFound) {
			return binding{}, ErrWorkspaceUnavailable
		}
		if err != nil {
			return binding{}, err
		}
	}
	if !choosable(row.Status) {
		return binding{}, ErrPendingSelectionStale.Say("The workspace that was chosen is %s: choose another one.", row.Status)
	}
	err = a.service.requireNobodyShutOut(ctx, a.tx, a.chooser(), bindQuestion{
		company: company, workspace: id, issue: a.task.ID, private: a.task.Visibility == visibilityPrivate,
	})
	return bindingTo(row, a.task.ExecutionWorkspaceSettings), err
}

// write makes the choice the task's binding and tells it to the history.
func (a *application) write(ctx context.Context, bound binding) (bool, int64, error) {
	after := a.task
	after.ExecutionWorkspaceID, after.ProjectWorkspaceID = bound.workspace, bound.source
	after.ExecutionWorkspacePreference, after.ExecutionWorkspaceSettings = bound.preference, bound.settings
	after.WorkspaceBindingRevision++
	after.WorkspacePendingSelection = nil
	document, err := json.Marshal(AppliedSelection{
		PendingSelection: a.pending, BindingRevision: after.WorkspaceBindingRevision, RunID: a.run.ID,
	})
	if err != nil {
		return false, 0, fmt.Errorf("encode a selection: %w", err)
	}
	after.WorkspaceSelection = document
	if _, err := a.service.writeIssue(ctx, a.tx, a.task, after); err != nil {
		return false, 0, err
	}
	return true, after.WorkspaceBindingRevision, a.service.recordEvent(ctx, a.tx, db.InsertEventParams{
		CompanyID: a.task.CompanyID, Kind: eventApplied, IssueID: &a.task.ID, WorkspaceID: bound.workspace,
		RunID: &a.run.ID, Actor: a.by.Actor(), Data: document,
	})
}
