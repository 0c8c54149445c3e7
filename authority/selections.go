package authority

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// Selection is a choice of the workspace that a task is to have. The field tags are those of the
// documents in which a task keeps its choices.
//
//   - task_directory: a new workspace for the task alone, made by its next reservation.
//   - existing: the workspace WorkspaceID.
//   - configured_source: the source ProjectWorkspaceID. In mode shared it is the workspace that all
//     tasks of the source share; in mode managed_isolated a new one for the task alone.
type Selection struct {
	Kind               string     `json:"kind"`
	WorkspaceID        *uuid.UUID `json:"workspaceId,omitempty"`
	ProjectWorkspaceID *uuid.UUID `json:"projectWorkspaceId,omitempty"`
	Mode               string     `json:"mode,omitempty"`
}

// The kinds of a selection, and the modes of a configured source.
const (
	SelectTaskDirectory    = "task_directory"
	SelectExisting         = "existing"
	SelectConfiguredSource = "configured_source"

	SourceShared   = "shared"
	SourceIsolated = "managed_isolated"
)

// PendingSelection is a choice that waits for the task's next run: the document in a task's
// WorkspacePendingSelection. It is for the binding of one revision, and stale for any other.
type PendingSelection struct {
	RequestKey              string    `json:"requestKey"`
	ExpectedBindingRevision int64     `json:"expectedBindingRevision"`
	Selection               Selection `json:"selection"`
	ChosenBy                Chooser   `json:"chosenBy"`
}

// AppliedSelection is the choice that made the task's binding what it is: the document in a task's
// WorkspaceSelection. A binding that came by another way has none.
type AppliedSelection struct {
	PendingSelection
	BindingRevision int64     `json:"bindingRevision"` // that the choice led to
	RunID           uuid.UUID `json:"runId"`           // that it was applied for
}

// Chooser is who made a choice. Its rights are asked for again when the choice is applied.
type Chooser struct {
	Role    Role      `json:"role"`
	UserID  uuid.UUID `json:"userId,omitzero"`
	AgentID uuid.UUID `json:"agentId,omitzero"`
	Actor   string    `json:"actor"` // as history names it
}

func chooserOf(by Principal) Chooser {
	return Chooser{Role: by.Role, UserID: by.UserID, AgentID: by.AgentID, Actor: by.Actor()}
}

// SelectionInput asks for a choice. ExpectedBindingRevision is the binding that the caller saw;
// RequestKey is its name for this choice of this task, for as long as the task lives.
type SelectionInput struct {
	Selection               Selection
	ExpectedBindingRevision int64
	RequestKey              string
}

// SelectionAnswer says what became of a choice: "scheduled", or "applied" once a run was admitted
// with it. Applies is when that happens. BindingRevision is the task's now.
type SelectionAnswer struct {
	Kind            string
	Applies         string
	BindingRevision int64
}

const (
	choiceScheduled = "scheduled"
	choiceApplied   = "applied"

	// appliesNextAdmission is when every choice is applied.
	appliesNextAdmission = "next_normal_admission"

	eventScheduled = "selection.scheduled"
	eventApplied   = "selection.applied"
)

func (in SelectionInput) validate() error {
	refused := validation{}
	refused.text("body.requestKey", in.RequestKey)
	if in.ExpectedBindingRevision < 0 {
		refused.add("body.expectedBindingRevision", "is less than 0")
	}
	chosen := in.Selection
	refused.text("body.selection.kind", chosen.Kind)
	refused.oneOf("body.selection.kind", chosen.Kind, []string{SelectTaskDirectory, SelectExisting, SelectConfiguredSource})
	fits := func(field string, given bool, kind string) {
		switch {
		case given && chosen.Kind != kind:
			refused.add("body.selection."+field, "belongs to the kind "+kind)
		case !given && chosen.Kind == kind:
			refused.add("body.selection."+field, "is needed for the kind "+kind)
		}
	}
	fits("workspaceId", chosen.WorkspaceID != nil, SelectExisting)
	fits("projectWorkspaceId", chosen.ProjectWorkspaceID != nil, SelectConfiguredSource)
	fits("mode", chosen.Mode != "", SelectConfiguredSource)
	refused.oneOf("body.selection.mode", chosen.Mode, []string{SourceShared, SourceIsolated})
	return refused.err()
}

func (sel Selection) equals(other Selection) bool {
	return sel.Kind == other.Kind && sel.Mode == other.Mode && sameID(sel.WorkspaceID, other.WorkspaceID) &&
		sameID(sel.ProjectWorkspaceID, other.ProjectWorkspaceID)
}

// SelectWorkspace chooses another workspace for a task. It never changes the binding now: the
// choice waits for the task's next run, which applies it before it reserves. A newer choice takes
// the place of one that waits. The same request again answers what became of it, and changes
// nothing, even when a newer one took its place.
//
// Operators and writing members choose for the tasks that they read; a run for its own task. Who
// does not read the workspace that the task has now gets ErrWorkspaceNotFound.
func (s *Service) SelectWorkspace(ctx context.Context, by Principal, issue uuid.UUID, in SelectionInput) (SelectionAnswer, error) {
	if err := in.validate(); err != nil {
		return SelectionAnswer{}, err
	}
	var answer SelectionAnswer
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		task, err := s.issueForChange(ctx, tx, by, issue)
		if err != nil {
			return err
		}
		if err := s.requireChooser(ctx, tx, by, task); err != nil {
			return err
		}
		if task.ExecutionWorkspaceID != nil {
			if _, err := s.readableWorkspace(ctx, tx, by, *task.ExecutionWorkspaceID); err != nil {
				return err
			}
		}
		answer = SelectionAnswer{Applies: appliesNextAdmission, BindingRevision: task.WorkspaceBindingRevision}
		answer.Kind, err = s.recallSelection(ctx, tx, task.ID, in)
		if err != nil || answer.Kind != "" {
			return err
		}
		answer.Kind = choiceScheduled
		return s.schedule(ctx, tx, by, task, in)
	})
	return answer, err
}

// requireChooser lets operators, writing members, and the running run of the task choose.
func (s *Service) requireChooser(ctx context.Context, q db.DBTX, by Principal, task db.Issue) error {
	if by.Role != RoleRun {
		return s.requireCompanyWrite(ctx, q, by, task.CompanyID)
	}
	run, err := s.queries.GetRun(ctx, q, by.RunID)
	if run, err = found(run, err, ErrRunNotFound, "read a run"); err != nil {
		return err
	}
	if run.Status != runRunning || !sameID(run.BoundIssueID, &task.ID) {
		return ErrNotAllowed.Say("A run chooses for its own task, while it is running.")
	}
	return nil
}

// recallSelection says what became of a request that was made before, "" for a new one.
func (s *Service) recallSelection(ctx context.Context, q db.DBTX, issue uuid.UUID, in SelectionInput) (string, error) {
	events, err := s.queries.ListSelectionEvents(ctx, q, db.ListSelectionEventsParams{IssueID: issue, RequestKey: in.RequestKey})
	if err != nil {
		return "", fmt.Errorf("recall a selection: %w", err)
	}
	became := ""
	for _, event := range events {
		if event.Kind == eventApplied {
			became = choiceApplied
			continue
		}
		var first PendingSelection
		if err := json.Unmarshal(event.Data, &first); err != nil {
			return "", fmt.Errorf("decode the selection that was scheduled: %w", err)
		}
		if first.ExpectedBindingRevision != in.ExpectedBindingRevision || !first.Selection.equals(in.Selection) {
			return "", ErrSelectionKeyReused
		}
		became = choiceScheduled
	}
	return became, nil
}

// schedule makes a new request the task's pending selection.
func (s *Service) schedule(ctx context.Context, tx pgx.Tx, by Principal, task db.Issue, in SelectionInput) error {
	if in.ExpectedBindingRevision != task.WorkspaceBindingRevision {
		return ErrBindingChanged.Say("The task's binding is at revision %d, not %d: read it again, and choose with a new requestKey.",
			task.WorkspaceBindingRevision, in.ExpectedBindingRevision)
	}
	if err := s.checkSelection(ctx, tx, by, task, in.Selection); err != nil {
		return err
	}
	pending, err := json.Marshal(PendingSelection{
		RequestKey: in.RequestKey, ExpectedBindingRevision: in.ExpectedBindingRevision, Selection: in.Selection,
		ChosenBy: chooserOf(by),
	})
	if err != nil {
		return fmt.Errorf("encode a selection: %w", err)
	}
	after := task
	after.WorkspacePendingSelection = pending
	if _, err := s.writeIssue(ctx, tx, task, after); err != nil {
		return err
	}
	event := db.InsertEventParams{
		CompanyID: task.CompanyID, Kind: eventScheduled, IssueID: &task.ID, WorkspaceID: in.Selection.WorkspaceID,
		Actor: by.Actor(), Data: pending,
	}
	if by.Role == RoleRun {
		event.RunID = &by.RunID
	}
	return s.recordEvent(ctx, tx, event)
}

// checkSelection asks whether the caller may choose so, for that task.
func (s *Service) checkSelection(ctx context.Context, q db.DBTX, by Principal, task db.Issue, chosen Selection) error {
	switch chosen.Kind {
	case SelectExisting:
		return s.checkExisting(ctx, q, by, task, *chosen.WorkspaceID)
	case SelectConfiguredSource:
		return s.checkSource(ctx, q, by, task, chosen)
	default:
		return nil
	}
}

// checkExisting needs the workspace to be open, readable and free for the task's privacy. What the
// project's policy says about assigning tasks is no matter of files, and is not asked.
func (s *Service) checkExisting(ctx context.Context, q db.DBTX, by Principal, task db.Issue, workspace uuid.UUID) error {
	row, err := s.readableWorkspace(ctx, q, by, workspace)
	if errors.Is(err, ErrWorkspaceNotFound) {
		return ErrWorkspaceUnavailable
	}
	if err != nil {
		return err
	}
	if row.CompanyID != task.CompanyID || !choosable(row.Status) {
		return ErrWorkspaceUnavailable
	}
	return s.requireNobodyShutOut(ctx, q, by, bindQuestion{
		company: task.CompanyID, workspace: workspace, issue: task.ID, private: task.Visibility == visibilityPrivate,
	})
}

// choosable reports whether a workspace of that status may be chosen: one that is closed or under
// review may not.
func choosable(status string) bool { return status == "active" || status == "idle" }

// fetchableSources are the types of sources whose files Berth can provide: there is nothing to
// fetch for them. Any other would begin as an empty tree in the place of files that exist.
var fetchableSources = []string{"empty", "remote_managed"}

// checkSource needs the source to be the task's project's. The workspace that tasks share is the
// project's, and choosing it needs the right to write there.
func (s *Service) checkSource(ctx context.Context, q db.DBTX, by Principal, task db.Issue, chosen Selection) error {
	source, err := s.sourceFor(ctx, q, by, sourceQuestion{
		company: task.CompanyID, project: task.ProjectID, source: *chosen.ProjectWorkspaceID,
	})
	if err != nil {
		return err
	}
	if !slices.Contains(fetchableSources, source.SourceType) {
		return ErrSourceUnsupported.Say("Files of a source of type %s cannot be fetched yet.", source.SourceType)
	}
	if chosen.Mode != SourceShared {
		return nil
	}
	if task.Visibility == visibilityPrivate && by.Role != RoleOperator {
		return ErrNotAllowed.Say("A private task would shut others out of the workspace that they share: an operator may choose it.")
	}
	return s.requireProjectWorkspaceWrite(ctx, q, by, task, source.ProjectID)
}

// TaskWorkspace is what a task is bound to, and what it may be bound to next. Workspace is nil when
// there is none, or when the caller may not read it. Capabilities are what the caller may choose
// now, as "select_" and the kind of a selection, for a source also its mode.
type TaskWorkspace struct {
	IssueID          uuid.UUID
	BindingRevision  int64
	Selection        *AppliedSelection
	PendingSelection *PendingSelection
	Workspace        *Workspace
	Capabilities     []string
}

// GetTaskWorkspace returns the binding of a task that the caller may read.
func (s *Service) GetTaskWorkspace(ctx context.Context, by Principal, issue uuid.UUID) (TaskWorkspace, error) {
	task, err := s.readableIssue(ctx, s.pool, by, issue)
	if err != nil {
		return TaskWorkspace{}, err
	}
	answer := TaskWorkspace{IssueID: task.ID, BindingRevision: task.WorkspaceBindingRevision}
	if answer.Selection, err = decodeDocument[AppliedSelection](task.WorkspaceSelection); err != nil {
		return TaskWorkspace{}, err
	}
	if answer.PendingSelection, err = decodeDocument[PendingSelection](task.WorkspacePendingSelection); err != nil {
		return TaskWorkspace{}, err
	}
	hidden := false
	if task.ExecutionWorkspaceID != nil {
		row, err := s.readableWorkspace(ctx, s.pool, by, *task.ExecutionWorkspaceID)
		switch {
		case err == nil:
			workspace := workspaceOf(row)
			answer.Workspace = &workspace
		case errors.Is(err, ErrWorkspaceNotFound):
			hidden = true
		default:
			return TaskWorkspace{}, err
		}
	}
	answer.Capabilities, err = s.capabilities(ctx, by, task, hidden)
	return answer, err
}

// capabilities are empty for whoever may not choose at all. hidden says that the caller does not
// read the workspace that the task has.
func (s *Service) capabilities(ctx context.Context, by Principal, task db.Issue, hidden bool) ([]string, error) {
	err := s.requireChooser(ctx, s.pool, by, task)
	if hidden || errors.Is(err, ErrNotAllowed) {
		return []string{}, nil
	}
	if err != nil {
		return nil, err
	}
	may := []string{"select_task_directory", "select_existing", "select_configured_source_managed_isolated"}
	if task.ProjectID == nil || (task.Visibility == visibilityPrivate && by.Role != RoleOperator) {
		return may, nil
	}
	err = s.requireProjectWorkspaceWrite(ctx, s.pool, by, task, *task.ProjectID)
	switch {
	case err == nil:
		return append(may, "select_configured_source_shared"), nil
	case errors.Is(err, ErrNotAllowed), errors.Is(err, ErrProjectNotFound):
		return may, nil
	default:
		return nil, err
	}
}

// decodeDocument reads a document that a task keeps, nil for none.
func decodeDocument[T any](document json.RawMessage) (*T, error) {
	if document == nil {
		return nil, nil //nolint:nilnil // a task without such a document
	}
	var decoded T
	if err := json.Unmarshal(document, &decoded); err != nil {
		return nil, fmt.Errorf("decode a selection: %w", err)
	}
	return &decoded, nil
}
