package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// StopRequest asks the writer of one tenure to end by itself.
type StopRequest struct {
	ID            uuid.UUID        `json:"id" format:"uuid"`
	CompanyID     uuid.UUID        `json:"companyId" format:"uuid"`
	WorkspaceID   uuid.UUID        `json:"workspaceId" format:"uuid"`
	Epoch         int64            `json:"epoch" minimum:"0" maximum:"9007199254740991"`
	RunID         uuid.UUID        `json:"runId" format:"uuid" doc:"The writer that is asked."`
	Reason        string           `json:"reason" maxLength:"2000"`
	Deadline      Time             `json:"deadline" doc:"From when the providers of its machines are asked."`
	RequestedBy   string           `json:"requestedBy" maxLength:"200"`
	RequestedAt   Time             `json:"requestedAt"`
	State         StopRequestState `json:"state"`
	Attempts      int              `json:"attempts" minimum:"0" doc:"How often the providers were asked."`
	NextAttemptAt *Time            `json:"nextAttemptAt" nullable:"true" doc:"Null once nothing more is tried."`
	LastErrorKind *string          `json:"lastErrorKind" nullable:"true" maxLength:"100" doc:"Why the last attempt proved no stop: no_machine, unknown_provider, cannot_prove, machine_in_use, wrong_machine, still_running, or what kept the provider from an answer."`
	AlertedAt     *Time            `json:"alertedAt" nullable:"true" doc:"Since when people have to look."`
	SettledAt     *Time            `json:"settledAt" nullable:"true"`
}

func stopRequestOf(r authority.StopRequest) StopRequest {
	return StopRequest{
		ID: r.ID, CompanyID: r.CompanyID, WorkspaceID: r.WorkspaceID, Epoch: r.Epoch, RunID: r.RunID, Reason: r.Reason,
		Deadline: Time(r.Deadline), RequestedBy: r.RequestedBy, RequestedAt: Time(r.RequestedAt),
		State: StopRequestState(r.State), Attempts: r.Attempts, NextAttemptAt: timeOf(r.NextAttemptAt),
		LastErrorKind: r.LastErrorKind, AlertedAt: timeOf(r.AlertedAt), SettledAt: timeOf(r.SettledAt),
	}
}

// StopRequestCreate asks a writer to stop.
type StopRequestCreate struct {
	Reason   string `json:"reason" minLength:"1" maxLength:"2000" doc:"The writer is told, and the history keeps it."`
	Deadline Time   `json:"deadline" doc:"How long the writer has to end by itself. One in the past means at once."`
}

func (s *server) stopRequests() {
	const path = "/api/execution-workspaces/{workspaceId}"
	register(s, endpoint{
		id: "requestStop", method: http.MethodPost, path: path + "/stop-request", tag: "tenures", status: http.StatusCreated,
		summary: "Ask a workspace's writer to stop",
		doc: "For operators. Each renewal of the writer tells it, as stopRequested. From the deadline on the providers of its machines are asked to stop them, again and again; " +
			"when every one is proven stopped the run is finished as interrupted, and what it did not save can be recovered. Where no proof comes the request is in state alert, and nothing is freed. " +
			"A newer request about the same tenure supersedes it. 409 no_writer when there is nobody to ask.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		WorkspacePath
		IdempotencyKey
		Body StopRequestCreate
	},
	) (*Answer[StopRequest], error) {
		request, err := s.rules.RequestStop(ctx, by, in.WorkspaceID, authority.StopInput{
			Reason: in.Body.Reason, Deadline: *in.Body.Deadline.pointer(),
		}, in.once(ctx))
		return answer(request, err, stopRequestOf)
	})
	register(s, endpoint{
		id: "listStopRequests", method: http.MethodGet, path: path + "/stop-requests", tag: "history",
		summary: "List what writers of a workspace were asked", doc: "Newest first. One that is not settled is about the writer that there is.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		WorkspacePath
		PageQuery
	},
	) (*Answer[List[StopRequest]], error) {
		list, err := s.rules.ListStopRequests(ctx, by, in.WorkspaceID, in.page())
		return listOf(list, err, stopRequestOf)
	})
}
