package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"berth/authority"
)

// Event is one thing that happened.
type Event struct {
	ID          string     `json:"id" maxLength:"20" doc:"Its number, as text. Later events have larger ones."`
	CompanyID   uuid.UUID  `json:"companyId" format:"uuid"`
	Kind        string     `json:"kind" maxLength:"100" doc:"What happened to what, as in tenure.started. New kinds may come."`
	WorkspaceID *uuid.UUID `json:"workspaceId" format:"uuid" nullable:"true"`
	IssueID     *uuid.UUID `json:"issueId" format:"uuid" nullable:"true"`
	RunID       *uuid.UUID `json:"runId" format:"uuid" nullable:"true"`
	Epoch       *int64     `json:"epoch" nullable:"true" minimum:"0" maximum:"9007199254740991"`
	Actor       string     `json:"actor" maxLength:"200" doc:"Who did it: run:<id>, token:<id>, or a part of the service."`
	Data        Object     `json:"data" doc:"What the kind has to say."`
	At          Time       `json:"at"`
}

func eventOf(e authority.Event) Event {
	return Event{
		ID: strconv.FormatInt(e.ID, 10), CompanyID: e.CompanyID, Kind: e.Kind, WorkspaceID: e.WorkspaceID,
		IssueID: e.IssueID, RunID: e.RunID, Epoch: e.Epoch, Actor: e.Actor, Data: Object(e.Data), At: Time(e.At),
	}
}

func (s *server) events() {
	register(s, endpoint{
		id: "listEvents", method: http.MethodGet, path: "/api/execution-workspaces/{workspaceId}/events", tag: "history",
		summary: "List what happened to a workspace", doc: "Newest first.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		WorkspacePath
		PageQuery
	},
	) (*Answer[List[Event]], error) {
		list, err := s.rules.ListEvents(ctx, by, in.WorkspaceID, in.page())
		return listOf(list, err, eventOf)
	})
}
