package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// AccessQuestion asks whether somebody may do something.
type AccessQuestion struct {
	Actor    *AccessActor   `json:"actor,omitempty" doc:"For operators: who is asked about. The caller, if absent."`
	Action   AccessAction   `json:"action"`
	Resource AccessResource `json:"resource"`
}

// AccessActor is somebody other than the caller.
type AccessActor struct {
	Type      PrincipalType `json:"type"`
	Source    string        `json:"source,omitempty" maxLength:"100" doc:"How the actor would show who it is: agent_jwt for a run's token."`
	CompanyID *uuid.UUID    `json:"companyId,omitempty" format:"uuid"`
	AgentID   *uuid.UUID    `json:"agentId,omitempty" format:"uuid"`
	UserID    *uuid.UUID    `json:"userId,omitempty" format:"uuid"`
	RunID     *uuid.UUID    `json:"runId,omitempty" format:"uuid"`
}

// AccessResource is what is asked about.
type AccessResource struct {
	Type        ResourceType `json:"type"`
	CompanyID   *uuid.UUID   `json:"companyId,omitempty" format:"uuid"`
	ProjectID   *uuid.UUID   `json:"projectId,omitempty" format:"uuid"`
	IssueID     *uuid.UUID   `json:"issueId,omitempty" format:"uuid"`
	WorkspaceID *uuid.UUID   `json:"workspaceId,omitempty" format:"uuid"`
}

func (q AccessQuestion) question() authority.AccessQuestion {
	out := authority.AccessQuestion{Action: string(q.Action), Resource: authority.AccessResource{
		Type: string(q.Resource.Type), CompanyID: q.Resource.CompanyID, ProjectID: q.Resource.ProjectID,
		IssueID: q.Resource.IssueID, WorkspaceID: q.Resource.WorkspaceID,
	}}
	if a := q.Actor; a != nil {
		out.Actor = &authority.AccessActor{
			Type: string(a.Type), Source: a.Source, CompanyID: a.CompanyID, AgentID: a.AgentID, UserID: a.UserID, RunID: a.RunID,
		}
	}
	return out
}

// AccessDecision is the answer.
type AccessDecision struct {
	Allowed     bool         `json:"allowed"`
	Action      AccessAction `json:"action"`
	Reason      string       `json:"reason" maxLength:"100" doc:"A stable word for the rule that decided."`
	Explanation string       `json:"explanation" maxLength:"1000" doc:"A sentence for people."`
}

func decisionOf(d authority.AccessDecision) AccessDecision {
	return AccessDecision{
		Allowed: d.Allowed, Action: AccessAction(d.Action), Reason: d.Reason, Explanation: d.Explanation,
	}
}

func (s *server) decisions() {
	register(s, endpoint{
		id: "decideAccess", method: http.MethodPost, path: "/api/access/decisions", tag: "access",
		summary: "Ask whether somebody may do something",
		doc:     "The same rules decide that decide when it is done. Nothing changes.",
	}, func(ctx context.Context, by authority.Principal, in *struct{ Body AccessQuestion }) (*Answer[AccessDecision], error) {
		decision, err := s.rules.DecideAccess(ctx, by, in.Body.question())
		return answer(decision, err, decisionOf)
	})
}
