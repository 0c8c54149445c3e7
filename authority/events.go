package authority

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"berth/db"
)

// Event is one thing that happened to a workspace. Kind is "<what>.<happened>", such as
// "tenure.started"; Actor is whom a Principal's Actor names.
type Event struct {
	ID          int64
	CompanyID   uuid.UUID
	Kind        string
	WorkspaceID *uuid.UUID
	IssueID     *uuid.UUID
	RunID       *uuid.UUID
	Epoch       *int64
	Actor       string
	Data        json.RawMessage
	At          time.Time
}

// recordEvent adds to the history what no trigger tells. Data nil means nothing more to say.
func (s *Service) recordEvent(ctx context.Context, tx db.DBTX, event db.InsertEventParams) error {
	if event.Data == nil {
		event.Data = json.RawMessage(`{}`)
	}
	if _, err := s.queries.InsertEvent(ctx, tx, event); err != nil {
		return fmt.Errorf("record %s: %w", event.Kind, err)
	}
	return nil
}

// ListEvents returns what happened to a workspace, newest first.
func (s *Service) ListEvents(ctx context.Context, by Principal, workspace uuid.UUID, page Page) (List[Event], error) {
	w, err := s.readableWorkspace(ctx, s.pool, by, workspace)
	if err != nil {
		return List[Event]{}, err
	}
	before, err := page.before()
	if err != nil {
		return List[Event]{}, err
	}
	rows, err := s.queries.ListEventsByWorkspace(ctx, s.pool, db.ListEventsByWorkspaceParams{
		CompanyID: w.CompanyID, WorkspaceID: w.ID, BeforeID: before, Rows: page.rows(),
	})
	if err != nil {
		return List[Event]{}, fmt.Errorf("list events: %w", err)
	}
	return numberedPage(page, rows, func(row db.Event) Event { return Event(row) }, func(row db.Event) int64 { return row.ID }), nil
}

// before decodes the cursor of a list that counts down by a number: an event's id, or an epoch.
func (p Page) before() (*int64, error) {
	if p.Cursor == "" {
		return nil, nil //nolint:nilnil // no cursor is the beginning, not a failure
	}
	n, err := strconv.ParseInt(p.Cursor, 10, 64)
	if err != nil {
		return nil, ErrValidation.At("query.cursor", "is not a cursor of this list: start without one")
	}
	return &n, nil
}

// numberedPage cuts rows to a List whose cursor is the last item's number.
func numberedPage[Row, T any](p Page, rows []Row, convert func(Row) T, number func(Row) int64) List[T] {
	list := List[T]{Items: make([]T, 0, len(rows))}
	for i, row := range rows {
		if i == p.size() {
			cursor := strconv.FormatInt(number(rows[i-1]), 10)
			list.NextCursor = &cursor
			break
		}
		list.Items = append(list.Items, convert(row))
	}
	return list
}
