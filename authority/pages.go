package authority

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Page asks for a part of a list: at most Limit items (1 to 200; 0 means 50) after the place that
// Cursor names. A cursor is opaque, and comes from the list's last answer.
type Page struct {
	Limit  int
	Cursor string
}

// List is a part of a list. NextCursor is nil on the last part. Items is never nil.
type List[T any] struct {
	Items      []T
	NextCursor *string
}

const (
	defaultPageSize = 50
	maximumPageSize = 200
)

// size is how many items the page holds.
func (p Page) size() int {
	if p.Limit <= 0 {
		return defaultPageSize
	}
	return min(p.Limit, maximumPageSize)
}

// rows is how many rows to ask for: one more than the page holds tells whether there is a next.
func (p Page) rows() int32 { return int32(p.size()) + 1 } //nolint:gosec // at most 201

// place is where a page begins: behind the row with this time and id, in the list's order.
type place struct {
	At time.Time `json:"t"`
	ID uuid.UUID `json:"i"`
}

// parts is the place as statements take it: two nulls at the beginning of a list.
func (p *place) parts() (at *time.Time, id *uuid.UUID) {
	if p == nil {
		return nil, nil
	}
	return &p.At, &p.ID
}

// after decodes the cursor; the zero cursor is the list's beginning, and answers nil.
func (p Page) after() (*place, error) {
	if p.Cursor == "" {
		return nil, nil //nolint:nilnil // no cursor is the beginning, not a failure
	}
	raw, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err != nil {
		return nil, ErrValidation.At("query.cursor", "is not a cursor of this list: start without one")
	}
	var at place
	if err := json.Unmarshal(raw, &at); err != nil {
		return nil, ErrValidation.At("query.cursor", "is not a cursor of this list: start without one")
	}
	return &at, nil
}

// pageOf cuts rows, of which one more than the page holds was asked for, to a List; where says at
// which place an item stands.
func pageOf[Row, T any](p Page, rows []Row, convert func(Row) T, where func(Row) place) List[T] {
	list := List[T]{Items: make([]T, 0, len(rows))}
	for i, row := range rows {
		if i == p.size() {
			raw, _ := json.Marshal(where(rows[i-1])) // a time and a UUID always marshal
			cursor := base64.RawURLEncoding.EncodeToString(raw)
			list.NextCursor = &cursor
			break
		}
		list.Items = append(list.Items, convert(row))
	}
	return list
}
