package authority

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// Agent is a worker of a company; it acts through heartbeat runs. AdapterType is the caller's own
// word for what runs it, and Status a note for whoever schedules work: Berth keeps both and decides
// nothing by them.
type Agent struct {
	ID               uuid.UUID
	CompanyID        uuid.UUID
	Name             string
	AdapterType      string
	Status           string
	ReportsToAgentID *uuid.UUID
	CreatedAt        time.Time
	UpdatedAt        time.Time
}

func agentOf(row db.Agent) Agent { return Agent(row) }

// AgentInput is what a new agent is made from.
type AgentInput struct {
	Name             string
	AdapterType      string
	Status           string     // "" means idle
	ReportsToAgentID *uuid.UUID // another agent of the company
}

var agentStatuses = []string{"active", "paused", "idle", "running", "error", "pending_approval", "terminated"}

// CreateAgent makes an agent. Operators only. ErrAgentNotFound: the company has no agent that the
// new one could report to by that id.
func (s *Service) CreateAgent(ctx context.Context, by Principal, company uuid.UUID, in AgentInput, once Once) (Agent, error) {
	if err := s.requireCompanyAdministration(ctx, s.pool, by, company); err != nil {
		return Agent{}, err
	}
	if in.Status == "" {
		in.Status = "idle"
	}
	refused := validation{}
	refused.text("body.name", in.Name)
	refused.text("body.adapterType", in.AdapterType)
	refused.oneOf("body.status", in.Status, agentStatuses)
	if err := refused.err(); err != nil {
		return Agent{}, err
	}
	agent, _, err := createOnce(ctx, s, by, &company, once, func(tx pgx.Tx) (Agent, error) {
		if in.ReportsToAgentID != nil {
			if err := s.requireAgent(ctx, tx, company, *in.ReportsToAgentID); err != nil {
				return Agent{}, err
			}
		}
		row, err := s.queries.InsertAgent(ctx, tx, db.InsertAgentParams{
			ID: newID(), CompanyID: company, Name: in.Name, AdapterType: in.AdapterType, Status: in.Status,
			ReportsToAgentID: in.ReportsToAgentID,
		})
		if err != nil {
			return Agent{}, fmt.Errorf("insert an agent: %w", err)
		}
		return agentOf(row), nil
	})
	return agent, err
}

// requireAgent refuses with ErrAgentNotFound an id that no agent of the company has.
func (s *Service) requireAgent(ctx context.Context, q db.DBTX, company, id uuid.UUID) error {
	known, err := s.queries.IsAgentInCompany(ctx, q, db.IsAgentInCompanyParams{CompanyID: company, ID: id})
	switch {
	case err != nil:
		return fmt.Errorf("look for an agent: %w", err)
	case !known:
		return ErrAgentNotFound
	default:
		return nil
	}
}

// ListAgents lists the agents of a company, the oldest first.
func (s *Service) ListAgents(ctx context.Context, by Principal, company uuid.UUID, page Page) (List[Agent], error) {
	after, err := page.after()
	if err != nil {
		return List[Agent]{}, err
	}
	if err := s.requireCompanyRead(ctx, s.pool, by, company); err != nil {
		return List[Agent]{}, err
	}
	params := db.ListAgentsParams{CompanyID: company, Rows: page.rows()}
	params.AfterAt, params.AfterID = after.parts()
	rows, err := s.queries.ListAgents(ctx, s.pool, params)
	if err != nil {
		return List[Agent]{}, fmt.Errorf("list agents: %w", err)
	}
	return pageOf(page, rows, agentOf, func(r db.Agent) place { return place{At: r.CreatedAt, ID: r.ID} }), nil
}
