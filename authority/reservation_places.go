package authority

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// Place is where a run stands in the line of a workspace; the first has Position 1. Of a task that the reader may not
// read only the position is told, and Waiting is nil.
type Place struct {
	Position int64
	Waiting  *Waiting
}

// Waiting is who stands at a place.
type Waiting struct {
	RunID        uuid.UUID
	IssueID      uuid.UUID
	ArrivedAt    time.Time
	LastPolledAt time.Time
}

// ListQueue returns the line of the workspace that a task is bound to, from its head on. It is empty where nobody
// waits, and where the task has no workspace.
func (s *Service) ListQueue(ctx context.Context, by Principal, issue uuid.UUID, page Page) (List[Place], error) {
	task, err := s.readableIssue(ctx, s.pool, by, issue)
	if err != nil {
		return List[Place]{}, err
	}
	after, err := page.before() // a position, which counts up
	if err != nil {
		return List[Place]{}, err
	}
	if task.ExecutionWorkspaceID == nil {
		return List[Place]{Items: []Place{}}, nil
	}
	params := db.ListPlacesParams{CompanyID: task.CompanyID, WorkspaceID: *task.ExecutionWorkspaceID, Rows: page.rows()}
	params.ReaderType, params.ReaderID = by.reader()
	if after != nil {
		params.AfterPosition = *after
	}
	rows, err := s.queries.ListPlaces(ctx, s.pool, params)
	if err != nil {
		return List[Place]{}, fmt.Errorf("list a workspace's line: %w", err)
	}
	return numberedPage(page, rows, placeOf, func(row db.ListPlacesRow) int64 { return row.Position }), nil
}

func placeOf(row db.ListPlacesRow) Place {
	p := Place{Position: row.Position}
	if row.Readable {
		p.Waiting = &Waiting{RunID: row.RunID, IssueID: row.IssueID, ArrivedAt: row.ArrivedAt, LastPolledAt: row.LastPolledAt}
	}
	return p
}

// LeaveQueue gives up the place of a run in the line of its task's workspace, and lets the next have its turn. For the
// run itself, and for who may write in its company. A run without a place has none afterwards either.
func (s *Service) LeaveQueue(ctx context.Context, by Principal, issue, run uuid.UUID) error {
	company, err := s.mayLeave(ctx, by, issue, run)
	if err != nil {
		return err
	}
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		mine, err := s.queries.GetPlaceOfRun(ctx, tx, db.GetPlaceOfRunParams{CompanyID: company, IssueID: issue, RunID: run})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look for a place: %w", err)
		}
		if _, err := s.queries.LeavePlace(ctx, tx, db.LeavePlaceParams{CompanyID: company, RunID: run}); err != nil {
			return fmt.Errorf("leave a place: %w", err)
		}
		return s.queries.WakeLine(ctx, tx, mine.WorkspaceID)
	})
	if err == nil {
		s.waiting.dismiss(run)
	}
	return err
}

// mayLeave finds the company of a place for who may give it up.
func (s *Service) mayLeave(ctx context.Context, by Principal, issue, run uuid.UUID) (uuid.UUID, error) {
	if by.Role == RoleRun && by.RunID == run {
		return by.CompanyID, nil
	}
	task, err := s.readableIssue(ctx, s.pool, by, issue)
	if err != nil {
		return uuid.Nil, err
	}
	if by.Role == RoleRun {
		return uuid.Nil, ErrNotAllowed.Say("A run gives up its own place, and nobody else's.")
	}
	return task.CompanyID, s.requireCompanyWrite(ctx, s.pool, by, task.CompanyID)
}

// ForgetPlaces deletes the places that died, and returns how many there were. The line is right without it.
func (s *Service) ForgetPlaces(ctx context.Context) (int64, error) {
	n, err := s.queries.ForgetPlaces(ctx, s.pool)
	if err != nil {
		return n, fmt.Errorf("delete dead places: %w", err)
	}
	return n, nil
}
