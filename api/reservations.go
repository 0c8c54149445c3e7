package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// ReserveRequest asks for a task's workspace, for a run.
type ReserveRequest struct {
	RunID               uuid.UUID  `json:"runId" format:"uuid" doc:"The run that becomes the writer."`
	AgentID             *uuid.UUID `json:"agentId,omitempty" format:"uuid" doc:"If given, the run must be this agent's."`
	EnvironmentID       *uuid.UUID `json:"environmentId,omitempty" format:"uuid" doc:"This and the next two are for a task that has no workspace yet."`
	ProjectID           *uuid.UUID `json:"projectId,omitempty" format:"uuid"`
	ProjectWorkspaceID  *uuid.UUID `json:"projectWorkspaceId,omitempty" format:"uuid"`
	ExistingWorkspaceID *uuid.UUID `json:"existingWorkspaceId,omitempty" format:"uuid" doc:"If given, the task must be bound to this workspace."`
	Source              *Object    `json:"source,omitempty" doc:"If given, the workspace must have been made from it; a new one is."`
	ExpectedEpoch       *int64     `json:"expectedEpoch,omitempty" minimum:"0" maximum:"9007199254740991" doc:"If given, the workspace must be at this epoch."`
	WaitSeconds         int        `json:"waitSeconds,omitempty" minimum:"0" maximum:"60" doc:"How long to wait for an unfinished writer, in line with others. 0: answer at once."`
}

// Reservation is a granted one.
type Reservation struct {
	Workspace ExecutionWorkspace `json:"workspace" doc:"With authority.epoch, which goes with each call of the writer."`
	Replayed  bool               `json:"replayed" doc:"The run was the writer already, and nothing changed."`
	Handover  OrNull[Handover]   `json:"handover" doc:"Whom the run follows, if the tenure before did not end by itself."`
}

// Handover tells a new writer whom it follows.
type Handover struct {
	Kind        HandoverKind `json:"kind"`
	FromRunID   uuid.UUID    `json:"fromRunId" format:"uuid"`
	FromEpoch   int64        `json:"fromEpoch" minimum:"0" maximum:"9007199254740991"`
	Unproven    bool         `json:"unproven" doc:"The run before was not proven stopped: an operator took the risk."`
	UnsavedWork bool         `json:"unsavedWork" doc:"The run before had work that was never saved."`
}

func handoverOf(h authority.Handover) Handover {
	return Handover{
		Kind: HandoverKind(h.Kind), FromRunID: h.FromRunID, FromEpoch: h.FromEpoch,
		Unproven: h.Unproven, UnsavedWork: h.UnsavedWork,
	}
}

func reservationOf(r authority.Reservation) Reservation {
	return Reservation{
		Workspace: workspaceOf(r.Workspace), Replayed: r.Replayed, Handover: orNull(r.Handover, handoverOf),
	}
}

// Explanation is what a reservation would be answered now.
type Explanation struct {
	Reservable  bool     `json:"reservable"`
	Code        *string  `json:"code" nullable:"true" maxLength:"100" doc:"The code of the refusal. Null when there would be none."`
	Detail      string   `json:"detail" maxLength:"2000"`
	Details     Object   `json:"details" doc:"As in the refusal."`
	NextActions []string `json:"nextActions" doc:"Operations, by operationId, that lead on from here."`
}

// ExplainQuery is a ReserveRequest as a query.
type ExplainQuery struct {
	RunID               QueryID  `query:"runId" doc:"Without it a run asks for itself, and everybody else for a run that would begin now, of an agent that may read the workspace."`
	AgentID             QueryID  `query:"agentId"`
	EnvironmentID       QueryID  `query:"environmentId"`
	ProjectID           QueryID  `query:"projectId"`
	ProjectWorkspaceID  QueryID  `query:"projectWorkspaceId"`
	ExistingWorkspaceID QueryID  `query:"existingWorkspaceId"`
	Source              string   `query:"source" maxLength:"10000" doc:"A JSON object."`
	ExpectedEpoch       QueryInt `query:"expectedEpoch" minimum:"0" maximum:"9007199254740991"`
}

func (q ExplainQuery) input(issue uuid.UUID) (authority.ReserveInput, error) {
	source, err := queryObject("query.source", q.Source)
	return authority.ReserveInput{
		IssueID: issue, RunID: q.RunID.ID, AgentID: q.AgentID.pointer(), EnvironmentID: q.EnvironmentID.pointer(),
		ProjectID: q.ProjectID.pointer(), ProjectWorkspaceID: q.ProjectWorkspaceID.pointer(),
		ExistingWorkspaceID: q.ExistingWorkspaceID.pointer(), Source: source.raw(), ExpectedEpoch: q.ExpectedEpoch.pointer(),
	}, err
}

func (s *server) reservations() {
	const path = "/api/issues/{issueId}/workspace/reservation"
	register(s, endpoint{
		id: "reserveWorkspace", method: http.MethodPost, path: path, tag: "reservations",
		summary: "Make a run the writer of its task's workspace",
		doc: "The answer's authority has the next epoch and this run as its writer; a task without a workspace gets a new one. " +
			"Asked again by the run that is the writer, it answers the same. With an Idempotency-Key it stands for one tenure: when that is over, 409 tenure_ended. " +
			"With waitSeconds the run takes a place in the workspace's line, in the order of arrival, and a 409 comes only when the time is over. A place lives for 60 s after its last request, and misses its turn when there is none for 15 s: ask again at once to go on waiting. " +
			"409 remote_workspace_writer_pending has in details: state (writer_running, writer_silent, writer_ended_dirty, writer_ended_unproven, others_wait), position in the line or null, holder {runId, issueId, epoch, since, runStatus, lastRenewedAt} or null, stopRequested {reason, deadline, state} or null, missingProof [{leaseId, provider, reason}] and retryAfterMs.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		IssuePath
		IdempotencyKey
		Body ReserveRequest
	},
	) (*Answer[Reservation], error) {
		b, x := in.Body, exchangeOf(ctx)
		reservation, turn, err := s.rules.ReserveOrWait(ctx, by, authority.ReserveInput{
			IssueID: in.IssueID, RunID: b.RunID, AgentID: b.AgentID, EnvironmentID: b.EnvironmentID, ProjectID: b.ProjectID,
			ProjectWorkspaceID: b.ProjectWorkspaceID, ExistingWorkspaceID: b.ExistingWorkspaceID,
			Source: b.Source.raw(), ExpectedEpoch: b.ExpectedEpoch, WaitSeconds: b.WaitSeconds,
		}, in.once(ctx), x.turn)
		if turn != nil {
			x.turn, x.waits = turn, true
			return &Answer[Reservation]{}, nil // which nobody gets: see inLine
		}
		return answer(reservation, err, reservationOf)
	})
	register(s, endpoint{
		id: "explainReservation", method: http.MethodGet, path: path, tag: "reservations",
		summary: "Ask what a reservation would be answered now",
		doc:     "The same decision as reserveWorkspace, with the same inputs. Nothing changes, and nothing is recorded.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		IssuePath
		ExplainQuery
	},
	) (*Answer[Explanation], error) {
		input, err := in.input(in.IssueID)
		if err != nil {
			return nil, err
		}
		explained, err := s.rules.Explain(ctx, by, input)
		if err != nil {
			return nil, err
		}
		return explanationOf(explained)
	})
}

func explanationOf(e authority.Explanation) (*Answer[Explanation], error) {
	details, err := detailsOf(e.Details)
	if err != nil {
		return nil, err
	}
	return &Answer[Explanation]{Body: Explanation{
		Reservable: e.Reservable, Code: (*string)(e.Code), Detail: e.Detail, Details: details,
		NextActions: append([]string{}, e.NextActions...),
	}}, nil
}
