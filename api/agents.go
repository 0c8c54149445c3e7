package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// Agent is a worker that acts through heartbeat runs.
type Agent struct {
	ID               uuid.UUID   `json:"id" format:"uuid"`
	CompanyID        uuid.UUID   `json:"companyId" format:"uuid"`
	Name             string      `json:"name" maxLength:"200"`
	AdapterType      string      `json:"adapterType" maxLength:"100" doc:"What executes the agent's runs."`
	Status           AgentStatus `json:"status"`
	ReportsToAgentID *uuid.UUID  `json:"reportsToAgentId" format:"uuid" nullable:"true"`
	CreatedAt        Time        `json:"createdAt"`
	UpdatedAt        Time        `json:"updatedAt"`
}

func agentOf(a authority.Agent) Agent {
	return Agent{
		ID: a.ID, CompanyID: a.CompanyID, Name: a.Name, AdapterType: a.AdapterType, Status: AgentStatus(a.Status),
		ReportsToAgentID: a.ReportsToAgentID, CreatedAt: Time(a.CreatedAt), UpdatedAt: Time(a.UpdatedAt),
	}
}

// AgentCreate makes an agent.
type AgentCreate struct {
	Name             string      `json:"name" minLength:"1" maxLength:"200"`
	AdapterType      string      `json:"adapterType" minLength:"1" maxLength:"100" doc:"What executes the agent's runs: any text." example:"claude_local"`
	Status           AgentStatus `json:"status,omitempty" default:"idle"`
	ReportsToAgentID *uuid.UUID  `json:"reportsToAgentId,omitempty" format:"uuid"`
}

func (s *server) agents() {
	register(s, endpoint{
		id: "listAgents", method: http.MethodGet, path: "/api/companies/{companyId}/agents", tag: "agents",
		summary: "List a company's agents",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		PageQuery
	},
	) (*Answer[List[Agent]], error) {
		list, err := s.rules.ListAgents(ctx, by, in.CompanyID, in.page())
		return listOf(list, err, agentOf)
	})
	register(s, endpoint{
		id: "createAgent", method: http.MethodPost, path: "/api/companies/{companyId}/agents", tag: "agents",
		status: http.StatusCreated, summary: "Create an agent", doc: "For operators.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		IdempotencyKey
		Body AgentCreate
	},
	) (*Answer[Agent], error) {
		agent, err := s.rules.CreateAgent(ctx, by, in.CompanyID, authority.AgentInput{
			Name: in.Body.Name, AdapterType: in.Body.AdapterType, Status: string(in.Body.Status),
			ReportsToAgentID: in.Body.ReportsToAgentID,
		}, in.once(ctx))
		return answer(agent, err, agentOf)
	})
}
