package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// Place is where a run stands in the line of a workspace.
type Place struct {
	Position     int64      `json:"position" minimum:"1" doc:"The first has 1."`
	RunID        *uuid.UUID `json:"runId" format:"uuid" nullable:"true" doc:"This and the rest are null where the task is not for the reader to see."`
	IssueID      *uuid.UUID `json:"issueId" format:"uuid" nullable:"true"`
	ArrivedAt    *Time      `json:"arrivedAt" nullable:"true"`
	LastPolledAt *Time      `json:"lastPolledAt" nullable:"true" doc:"When the run last asked. While a request of it is open that is always a moment ago."`
}

func placeOf(p authority.Place) Place {
	out := Place{Position: p.Position}
	if w := p.Waiting; w != nil {
		out.RunID, out.IssueID = &w.RunID, &w.IssueID
		out.ArrivedAt, out.LastPolledAt = timeOf(&w.ArrivedAt), timeOf(&w.LastPolledAt)
	}
	return out
}

func (s *server) reservationPlaces() {
	const path = "/api/issues/{issueId}/workspace/reservation"
	register(s, endpoint{
		id: "listReservationQueue", method: http.MethodGet, path: path + "/queue", tag: "reservations",
		summary: "List who waits for a task's workspace",
		doc:     "From the head of the line on. Of tasks that the caller may not read only the position is shown.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		IssuePath
		PageQuery
	},
	) (*Answer[List[Place]], error) {
		list, err := s.rules.ListQueue(ctx, by, in.IssueID, in.page())
		return listOf(list, err, placeOf)
	})
	register(s, endpoint{
		id: "leaveReservationQueue", method: http.MethodDelete, path: path, tag: "reservations",
		summary: "Give up a run's place in line",
		doc:     "By the run itself, or by who may write in its company. An open request of the run is then answered 409. A run that does not wait is 204 as well.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		IssuePath
		RunID uuid.UUID `query:"runId" format:"uuid" required:"true"`
	},
	) (*Nothing, error) {
		if err := s.rules.LeaveQueue(ctx, by, in.IssueID, in.RunID); err != nil {
			return nil, err
		}
		return &Nothing{}, nil
	})
}
