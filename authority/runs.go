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

// Run is a heartbeat run: one execution of an agent, and the only kind of writer. BoundIssueID is
// the task that it is for: IssueID or, where that is nil, what ContextSnapshot names as "issueId".
type Run struct {
	ID              uuid.UUID
	CompanyID       uuid.UUID
	AgentID         uuid.UUID
	IssueID         *uuid.UUID
	Status          string
	RuntimeMode     string
	ContextSnapshot json.RawMessage // an object
	BoundIssueID    *uuid.UUID
	StartedAt       *time.Time
	FinishedAt      *time.Time
	FinishedBy      *string // who finished it, as an actor
	LastRenewedAt   *time.Time
	CreatedAt       time.Time
	UpdatedAt       time.Time
}

func runOf(row db.HeartbeatRun) Run { return Run(row) }

const runRunning = "running"

var (
	runStatuses  = append([]string{"queued", "scheduled_retry", runRunning}, terminalStatuses...)
	runtimeModes = []string{"legacy", "native"}
)

// RunInput is what a new run is made from. Empty strings and nil mean the default.
type RunInput struct {
	AgentID         uuid.UUID
	IssueID         *uuid.UUID
	Status          string          // "" means running; operators may record one that ended
	ContextSnapshot json.RawMessage // an object, nil means {}
	RuntimeMode     string          // "" means native
}

func (in RunInput) validate() error {
	refused := validation{}
	refused.oneOf("body.status", in.Status, runStatuses)
	refused.oneOf("body.runtimeMode", in.RuntimeMode, runtimeModes)
	refused.object("body.contextSnapshot", in.ContextSnapshot)
	return refused.err()
}

// CreateRun makes a run of an agent of the company, and returns the token by which the run acts. A
// replayed creation answers the first run with a token that is signed anew. Operators and writing
// members create runs; a run creates none.
func (s *Service) CreateRun(ctx context.Context, by Principal, company uuid.UUID, in RunInput, once Once) (Run, string, error) {
	if err := in.validate(); err != nil {
		return Run{}, "", err
	}
	run, _, err := createOnce(ctx, s, by, &company, once, func(tx pgx.Tx) (Run, error) {
		return s.createRun(ctx, tx, by, company, in)
	})
	if err != nil {
		return Run{}, "", err
	}
	token, _, err := s.signRunToken(ctx, run)
	return run, token, err
}

func (s *Service) createRun(ctx context.Context, tx pgx.Tx, by Principal, company uuid.UUID, in RunInput) (Run, error) {
	if err := s.requireCompanyWrite(ctx, tx, by, company); err != nil {
		return Run{}, err
	}
	row := db.InsertRunParams{
		ID: newID(), CompanyID: company, AgentID: in.AgentID, IssueID: in.IssueID, Status: in.Status,
		RuntimeMode: in.RuntimeMode, ContextSnapshot: in.ContextSnapshot, Actor: by.Actor(),
		Ended: terminal(in.Status),
	}
	if row.Status == "" {
		row.Status = runRunning
	}
	if row.RuntimeMode == "" {
		row.RuntimeMode = "native"
	}
	if row.ContextSnapshot == nil {
		row.ContextSnapshot = json.RawMessage("{}")
	}
	if row.Ended && by.Role != RoleOperator {
		return Run{}, ErrNotAllowed.Say("Only an operator records a run that ended already.")
	}
	if err := s.requireAgent(ctx, tx, company, in.AgentID); err != nil {
		return Run{}, err
	}
	if err := s.lockTaskOfRun(ctx, tx, by, company, in); err != nil {
		return Run{}, err
	}
	run, err := s.queries.InsertRun(ctx, tx, row)
	if err != nil {
		return Run{}, fmt.Errorf("insert a run: %w", err)
	}
	return runOf(run), nil
}

// lockTaskOfRun refuses a run for a task that the caller may not read. The task is locked: a change
// of its binding, which waits until no run of it is running, either sees this run or comes before it.
func (s *Service) lockTaskOfRun(ctx context.Context, tx pgx.Tx, by Principal, company uuid.UUID, in RunInput) error {
	issue := in.IssueID
	if issue == nil {
		named, err := issueInContext(in.ContextSnapshot)
		if err != nil || named == nil {
			return err
		}
		issue = named
	}
	locked, err := s.queries.LockIssueAsIs(ctx, tx, *issue)
	if _, err := found(locked, err, ErrIssueNotFound, "lock the issue of a run"); err != nil {
		return err
	}
	_, err = s.issueIn(ctx, tx, by, company, *issue)
	return err
}

// issueInContext is the task that a context names, nil for none. It reads the context as the column
// bound_issue_id does: what is written in another form than a UUID's usual one names no task that
// exists.
func issueInContext(document json.RawMessage) (*uuid.UUID, error) {
	var fields map[string]json.RawMessage // not a struct: its fields would match names in any case
	if document == nil {
		return nil, nil //nolint:nilnil // no context names no task
	}
	if err := json.Unmarshal(document, &fields); err != nil {
		return nil, ErrValidation.At("body.contextSnapshot", "is not a JSON object")
	}
	var text *string
	if err := json.Unmarshal(orNull(fields["issueId"]), &text); err != nil {
		return nil, ErrIssueNotFound
	}
	if text == nil {
		return nil, nil //nolint:nilnil // nor does one without an issueId
	}
	id, err := uuid.Parse(*text)
	if err != nil || len(*text) != len(uuid.Nil.String()) {
		return nil, ErrIssueNotFound
	}
	return &id, nil
}

func orNull(document json.RawMessage) json.RawMessage {
	if document == nil {
		return json.RawMessage("null")
	}
	return document
}

// GetRun returns a run. Its own token reads it always; others while they may read its task.
func (s *Service) GetRun(ctx context.Context, by Principal, id uuid.UUID) (Run, error) {
	row, err := s.queries.GetRun(ctx, s.pool, id)
	if row, err = found(row, err, ErrRunNotFound, "read a run"); err != nil {
		return Run{}, err
	}
	if by.Role == RoleRun && by.RunID == id {
		return runOf(row), nil
	}
	err = s.requireCompanyRead(ctx, s.pool, by, row.CompanyID)
	if err == nil && row.BoundIssueID != nil {
		_, err = s.readableIssue(ctx, s.pool, by, *row.BoundIssueID)
	}
	if errors.Is(err, ErrCompanyNotFound) || errors.Is(err, ErrIssueNotFound) {
		return Run{}, ErrRunNotFound
	}
	return runOf(row), err
}

// RunFilter narrows a list of runs to those that have every value that is given.
type RunFilter struct {
	AgentID *uuid.UUID
	IssueID *uuid.UUID // the task that they are for
	Status  *string
}

// ListRuns lists the runs of a company whose tasks the caller may read, the oldest first.
func (s *Service) ListRuns(ctx context.Context, by Principal, company uuid.UUID, filter RunFilter, page Page) (List[Run], error) {
	after, err := page.after()
	if err != nil {
		return List[Run]{}, err
	}
	if err := s.requireCompanyRead(ctx, s.pool, by, company); err != nil {
		return List[Run]{}, err
	}
	params := db.ListRunsParams{
		CompanyID: company, AgentID: filter.AgentID, IssueID: filter.IssueID, Status: filter.Status,
		OwnRunID: by.RunID, Rows: page.rows(),
	}
	params.AfterAt, params.AfterID = after.parts()
	params.ReaderType, params.ReaderID = by.reader()
	rows, err := s.queries.ListRuns(ctx, s.pool, params)
	if err != nil {
		return List[Run]{}, fmt.Errorf("list runs: %w", err)
	}
	return pageOf(page, rows, runOf, func(r db.HeartbeatRun) place { return place{At: r.CreatedAt, ID: r.ID} }), nil
}
