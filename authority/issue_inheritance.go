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

// Preferences that Berth writes; a caller's own are kept as they come.
const preferReuse = "reuse_existing"

// setProject gives the task its project, which is its origin's when the input names none.
func (d *issueDraft) setProject(ctx context.Context) error {
	if d.row.ProjectID == nil && d.origin != nil {
		d.row.ProjectID = d.origin.ProjectID
	}
	if d.row.ProjectID != nil {
		if _, err := d.service.projectIn(ctx, d.tx, d.by, d.company, *d.row.ProjectID); err != nil {
			return err
		}
	}
	if d.row.ProjectWorkspaceID == nil {
		return nil
	}
	_, err := d.service.sourceFor(ctx, d.tx, d.by, sourceQuestion{
		company: d.company, project: d.row.ProjectID, source: *d.row.ProjectWorkspaceID,
	})
	return err
}

// setWorkspace binds the task to the workspace that it names or inherits. Where it gets none, its
// source is its origin's, or its project's default: what its first reservation makes a workspace
// from. The binding that a task is created with is revision 0; only a change of it counts.
func (d *issueDraft) setWorkspace(ctx context.Context) error {
	isolated, err := d.service.queries.AreWorkspacesIsolated(ctx, d.tx)
	if err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	in := &d.in
	if !isolated {
		in.ExecutionWorkspaceID, in.ExecutionWorkspacePreference, in.ExecutionWorkspaceSettings = nil, nil, nil
	}
	d.row.ExecutionWorkspacePreference, d.row.ExecutionWorkspaceSettings = in.ExecutionWorkspacePreference, in.ExecutionWorkspaceSettings
	explicit := in.ExecutionWorkspaceID != nil || in.ExecutionWorkspacePreference != nil || in.ExecutionWorkspaceSettings != nil
	inherits := d.inherits()
	switch {
	case in.ExecutionWorkspaceID != nil:
		return d.bind(ctx, *in.ExecutionWorkspaceID)
	case inherits && !explicit && d.origin.ExecutionWorkspaceID != nil:
		err := d.bind(ctx, *d.origin.ExecutionWorkspaceID)
		if errors.Is(err, ErrWorkspaceNotFound) {
			return ErrWorkspaceNotFound.Say("The workspace that the task would inherit is not readable here: " +
				"create the task with inheritWorkspace false.")
		}
		return err
	case inherits && d.row.ProjectWorkspaceID == nil:
		d.row.ProjectWorkspaceID = d.origin.ProjectWorkspaceID
	}
	if d.row.ProjectWorkspaceID == nil && d.row.ProjectID != nil {
		d.row.ProjectWorkspaceID, err = d.service.defaultSource(ctx, d.tx, d.company, *d.row.ProjectID)
	}
	return err
}

// inherits reports whether the task takes source and workspace from its origin: it has one, was not
// told otherwise, and is of the same project. Whether the origin is done does not matter.
func (d *issueDraft) inherits() bool {
	optedOut := d.in.InheritWorkspace != nil && !*d.in.InheritWorkspace
	return d.origin != nil && !optedOut && sameID(d.row.ProjectID, d.origin.ProjectID)
}

// bind ties the new task to a workspace, which decides its source, even for none.
func (d *issueDraft) bind(ctx context.Context, workspace uuid.UUID) error {
	readersOf := d.row.ID
	if d.parent != nil && d.parent.Visibility == visibilityPrivate {
		readersOf = d.parent.ID
	}
	row, err := d.service.bindableWorkspace(ctx, d.tx, d.by, bindQuestion{
		company: d.company, workspace: workspace, issue: readersOf, private: d.row.Visibility == visibilityPrivate,
	})
	if err != nil {
		return err
	}
	binding := bindingTo(row, d.row.ExecutionWorkspaceSettings)
	d.row.ExecutionWorkspaceID, d.row.ProjectWorkspaceID = binding.workspace, binding.source
	d.row.ExecutionWorkspaceSettings = binding.settings
	if d.row.ExecutionWorkspacePreference == nil {
		d.row.ExecutionWorkspacePreference = binding.preference
	}
	return nil
}

// binding is the part of a task that says which workspace it has, or what its next one is made from.
type binding struct {
	workspace  *uuid.UUID
	source     *uuid.UUID
	preference *string
	settings   json.RawMessage
}

// bindingTo is the binding of a task to a workspace that is there.
func bindingTo(w db.ExecutionWorkspace, settings json.RawMessage) binding {
	preference := preferReuse
	return binding{
		workspace: &w.ID, source: w.ProjectWorkspaceID, preference: &preference, settings: withMode(settings, w.Mode),
	}
}

// withMode sets the mode in a task's workspace settings and leaves the rest of them.
func withMode(settings json.RawMessage, mode string) json.RawMessage {
	fields := map[string]json.RawMessage{}
	if settings != nil {
		_ = json.Unmarshal(settings, &fields) // an object, by the checks of every way in
	}
	fields["mode"], _ = json.Marshal(mode) // a string always marshals
	changed, _ := json.Marshal(fields)     // and so do valid documents under string keys
	return changed
}

// bindQuestion asks whether a task may be bound to a workspace. The readers of issue all read the
// task: it is the task itself or, for one that is not in the database yet, its private parent.
type bindQuestion struct {
	company   uuid.UUID
	workspace uuid.UUID
	issue     uuid.UUID
	private   bool
}

// bindableWorkspace locks the workspace against closing and reserving, and returns it when the
// caller may bind the task to it: it is of the company and readable and, for a private task, not
// shared by open ones, which only an operator may shut out. A closed workspace can be bound; its
// reservation then tells that it is closed.
func (s *Service) bindableWorkspace(ctx context.Context, tx pgx.Tx, by Principal, ask bindQuestion) (db.ExecutionWorkspace, error) {
	locked, err := s.queries.LockWorkspaceForBinding(ctx, tx, db.LockWorkspaceForBindingParams{CompanyID: ask.company, ID: ask.workspace})
	if _, err := found(locked, err, ErrWorkspaceNotFound, "lock a workspace"); err != nil {
		return db.ExecutionWorkspace{}, err
	}
	row, err := s.readableWorkspace(ctx, tx, by, ask.workspace)
	if err != nil {
		return db.ExecutionWorkspace{}, err
	}
	return row, s.requireNobodyShutOut(ctx, tx, by, ask)
}

// requireNobodyShutOut lets only an operator bind a private task to a workspace that open tasks
// share: whoever reads only those could not use their files any more.
func (s *Service) requireNobodyShutOut(ctx context.Context, q db.DBTX, by Principal, ask bindQuestion) error {
	if !ask.private || by.Role == RoleOperator {
		return nil
	}
	shuts, err := s.queries.WouldShutOthersOut(ctx, q, db.WouldShutOthersOutParams{
		CompanyID: ask.company, WorkspaceID: ask.workspace, IssueID: ask.issue,
	})
	if err != nil {
		return fmt.Errorf("ask who shares a workspace: %w", err)
	}
	if shuts {
		return ErrNotAllowed.Say("Open tasks share that workspace, and a private task would shut their readers out: an operator may bind it.")
	}
	return nil
}

// projectIn returns a project of the company that the caller can read.
func (s *Service) projectIn(ctx context.Context, q db.DBTX, by Principal, company, id uuid.UUID) (db.Project, error) {
	row, err := s.readableProject(ctx, q, by, id)
	if err == nil && row.CompanyID != company {
		return db.Project{}, ErrProjectNotFound
	}
	return row, err
}

// sourceQuestion asks for a configured source that a task of a project, or of none, may use.
type sourceQuestion struct {
	company uuid.UUID
	project *uuid.UUID
	source  uuid.UUID
}

// sourceFor returns the source if it is the task's project's. A task without a project may use
// every source whose project the caller can read.
func (s *Service) sourceFor(ctx context.Context, q db.DBTX, by Principal, ask sourceQuestion) (db.ProjectWorkspace, error) {
	row, err := s.queries.GetSource(ctx, q, db.GetSourceParams{CompanyID: ask.company, ID: ask.source})
	if row, err = found(row, err, ErrProjectWorkspaceNotFound, "read a project workspace"); err != nil {
		return row, err
	}
	_, err = s.projectIn(ctx, q, by, ask.company, row.ProjectID)
	switch {
	case errors.Is(err, ErrProjectNotFound):
		return row, ErrProjectWorkspaceNotFound
	case err != nil:
		return row, err
	case ask.project != nil && *ask.project != row.ProjectID:
		return row, ErrProjectWorkspaceNotFound.Say("The task's project has no such project workspace.")
	}
	return row, nil
}

// defaultSource is the source of a project's tasks that name none, nil if the project has none.
func (s *Service) defaultSource(ctx context.Context, q db.DBTX, company, project uuid.UUID) (*uuid.UUID, error) {
	row, err := s.queries.FindDefaultSource(ctx, q, db.FindDefaultSourceParams{CompanyID: company, ProjectID: project})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // a project without sources is no failure
	}
	if err != nil {
		return nil, fmt.Errorf("find the default source of a project: %w", err)
	}
	return &row.ID, nil
}

func sameID(a, b *uuid.UUID) bool {
	return a == b || (a != nil && b != nil && *a == *b)
}
