package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// HeartbeatRun is one execution of an agent on a task.
type HeartbeatRun struct {
	ID              uuid.UUID   `json:"id" format:"uuid"`
	CompanyID       uuid.UUID   `json:"companyId" format:"uuid"`
	AgentID         uuid.UUID   `json:"agentId" format:"uuid"`
	IssueID         *uuid.UUID  `json:"issueId" format:"uuid" nullable:"true"`
	Status          RunStatus   `json:"status"`
	RuntimeMode     RuntimeMode `json:"runtimeMode"`
	ContextSnapshot Object      `json:"contextSnapshot" doc:"What the run was started with. Its issueId is the run's task when issueId is null."`
	StartedAt       *Time       `json:"startedAt" nullable:"true"`
	FinishedAt      *Time       `json:"finishedAt" nullable:"true"`
	FinishedBy      *string     `json:"finishedBy" nullable:"true" maxLength:"200" doc:"run:<id> or token:<id>."`
	LastRenewedAt   *Time       `json:"lastRenewedAt" nullable:"true" doc:"When the run last said that it is there."`
	CreatedAt       Time        `json:"createdAt"`
	UpdatedAt       Time        `json:"updatedAt"`
}

func runOf(r authority.Run) HeartbeatRun {
	return HeartbeatRun{
		ID: r.ID, CompanyID: r.CompanyID, AgentID: r.AgentID, IssueID: r.IssueID, Status: RunStatus(r.Status),
		RuntimeMode: RuntimeMode(r.RuntimeMode), ContextSnapshot: Object(r.ContextSnapshot),
		StartedAt: timeOf(r.StartedAt), FinishedAt: timeOf(r.FinishedAt), FinishedBy: r.FinishedBy,
		LastRenewedAt: timeOf(r.LastRenewedAt), CreatedAt: Time(r.CreatedAt), UpdatedAt: Time(r.UpdatedAt),
	}
}

// RunCreate makes a run.
type RunCreate struct {
	AgentID         uuid.UUID   `json:"agentId" format:"uuid"`
	IssueID         *uuid.UUID  `json:"issueId,omitempty" format:"uuid"`
	Status          RunStatus   `json:"status,omitempty" default:"running"`
	ContextSnapshot *Object     `json:"contextSnapshot,omitempty" doc:"Any object. Its issueId names the run's task when issueId is absent."`
	RuntimeMode     RuntimeMode `json:"runtimeMode,omitempty" default:"native"`
}

// CreatedRun is a new run with the token that it acts by.
type CreatedRun struct {
	Run   HeartbeatRun `json:"run"`
	Token string       `json:"token" maxLength:"4096" doc:"The run's own bearer token."`
}

// RunUpdate moves a run on.
type RunUpdate struct {
	Status  RunStatus `json:"status" doc:"running, or one of the five that are final."`
	Discard bool      `json:"discard,omitempty" doc:"Give unsaved work up. The history keeps that there was some."`
}

// RunPath names a run.
type RunPath struct {
	RunID uuid.UUID `path:"runId" format:"uuid"`
}

// RunFilter narrows a list of runs.
type RunFilter struct {
	AgentID QueryID   `query:"agentId"`
	IssueID QueryID   `query:"issueId"`
	Status  RunStatus `query:"status"`
}

func (s *server) runs() {
	register(s, endpoint{
		id: "listHeartbeatRuns", method: http.MethodGet, path: "/api/companies/{companyId}/heartbeat-runs", tag: "runs",
		summary: "List the runs of a company that the caller may read",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		RunFilter
		PageQuery
	},
	) (*Answer[List[HeartbeatRun]], error) {
		list, err := s.rules.ListRuns(ctx, by, in.CompanyID, authority.RunFilter{
			AgentID: in.AgentID.pointer(), IssueID: in.IssueID.pointer(), Status: text(in.Status),
		}, in.page())
		return listOf(list, err, runOf)
	})
	register(s, endpoint{
		id: "createHeartbeatRun", method: http.MethodPost, path: "/api/companies/{companyId}/heartbeat-runs", tag: "runs",
		status: http.StatusCreated, summary: "Create a run, and get its token",
		doc: "With an Idempotency-Key that is used again, the run is the same and its token a new one.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		IdempotencyKey
		Body RunCreate
	},
	) (*Answer[CreatedRun], error) {
		run, token, err := s.rules.CreateRun(ctx, by, in.CompanyID, authority.RunInput{
			AgentID: in.Body.AgentID, IssueID: in.Body.IssueID, Status: string(in.Body.Status),
			ContextSnapshot: in.Body.ContextSnapshot.raw(), RuntimeMode: string(in.Body.RuntimeMode),
		}, in.once(ctx))
		return answer(run, err, func(r authority.Run) CreatedRun { return CreatedRun{Run: runOf(r), Token: token} })
	})
	register(s, endpoint{
		id: "getHeartbeatRun", method: http.MethodGet, path: "/api/heartbeat-runs/{runId}", tag: "runs",
		summary: "Read a run",
	}, func(ctx context.Context, by authority.Principal, in *struct{ RunPath }) (*Answer[HeartbeatRun], error) {
		run, err := s.rules.GetRun(ctx, by, in.RunID)
		return answer(run, err, runOf)
	})
	register(s, endpoint{
		id: "updateHeartbeatRun", method: http.MethodPatch, path: "/api/heartbeat-runs/{runId}", tag: "runs",
		summary: "Start a waiting run, or end a run",
		doc: "By the run's own token its clean tenure is released with it; with unsaved work it is refused with 409 workspace_dirty, unless discard is true. " +
			"By anyone else only the run ends: it stays the writer until it is proven stopped, or an operator takes over. Ending it again with the same status changes nothing.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		RunPath
		Body RunUpdate
	},
	) (*Answer[HeartbeatRun], error) {
		run, err := s.rules.FinishRun(ctx, by, in.RunID, authority.FinishInput{
			Status: string(in.Body.Status), Discard: in.Body.Discard,
		})
		return answer(run, err, runOf)
	})
}
