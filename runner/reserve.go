package runner

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	client "berth/clients/go"
)

// afterInterrupt is how long a call that makes something may go on when the run
// is interrupted in the middle of it.
const afterInterrupt = 10 * time.Second

// open gets as far as the reservation. Whatever fails before the run exists has
// changed nothing.
func (s *session) open(ctx context.Context) error {
	issue, err := s.lookAhead(ctx)
	if err != nil {
		return err
	}
	agent, err := s.agent(ctx, issue)
	if err != nil {
		return err
	}
	if err := s.createRun(ctx, issue, agent); err != nil {
		return err
	}
	if err := s.applySelection(ctx); err != nil {
		return err
	}
	return s.reserve(ctx)
}

// lookAhead makes the refusals that need no run: of a service that is not there,
// of a task that is not readable, and of a directory with other files than the
// workspace's. It decides nothing: until the reservation all of it may change.
func (s *session) lookAhead(ctx context.Context) (*client.Issue, error) {
	// Once only: a person who mistyped an address should hear of it at once.
	first, cancel := context.WithTimeout(ctx, s.pace.call)
	defer cancel()
	reply, err := s.caller.api.GetIssueWithResponse(first, s.IssueID)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("read the task: %w", context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("reach the service: %w", err)
	}
	issue, err := answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	if err != nil {
		return nil, fmt.Errorf("read the task: %w", err)
	}
	bound, err := brief(ctx, s.caller, "read the task's workspace", func(ctx context.Context) (*client.TaskWorkspace, error) {
		reply, err := s.caller.api.GetTaskWorkspaceWithResponse(ctx, s.IssueID)
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	})
	if err != nil {
		return nil, err
	}
	if bound.PendingSelection != nil || (bound.Workspace == nil && issue.ExecutionWorkspaceID != nil) {
		return issue, nil // the reservation will tell which workspace it is, or refuse
	}
	var want Expected
	if bound.Workspace != nil {
		current, err := currentSnapshot(ctx, s.caller, *bound.Workspace)
		if err != nil {
			return nil, err
		}
		want = expected(*bound.Workspace, *current)
	}
	_, err = s.dir.Check(ctx, want, s.Mode)
	return issue, err
}

// agent is whose run it will be.
func (s *session) agent(ctx context.Context, issue *client.Issue) (uuid.UUID, error) {
	switch {
	case s.AgentID != uuid.Nil:
		return s.AgentID, nil
	case issue.AssigneeAgentID != nil:
		return *issue.AssigneeAgentID, nil
	}
	all := int64(200)
	list, err := brief(ctx, s.caller, "list the company's agents", func(ctx context.Context) (*client.AgentList, error) {
		reply, err := s.caller.api.ListAgentsWithResponse(ctx, issue.CompanyID, &client.ListAgentsParams{Limit: &all})
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	})
	if err != nil {
		return uuid.Nil, err
	}
	var found []client.Agent
	for _, agent := range list.Items {
		if agent.Status != client.AgentStatusTerminated {
			found = append(found, agent)
		}
	}
	if len(found) == 1 && list.NextCursor == nil {
		return found[0].ID, nil
	}
	if len(found) == 0 {
		return uuid.Nil, errors.New("no agent: the task has no assignee and its company no agent; create one, and name it with --agent")
	}
	return uuid.Nil, errors.New("which agent: the task has no assignee and its company several agents; name one with --agent")
}

// createRun makes the run. Its key makes one run of many tries, so an answer that
// was lost leaves none behind.
func (s *session) createRun(ctx context.Context, issue *client.Issue, agent uuid.UUID) error {
	longer, cancel := lingering(ctx, afterInterrupt)
	defer cancel()
	key := uuid.NewString()
	created, err := brief(longer, s.caller, "create the run", func(ctx context.Context) (*client.CreatedRun, error) {
		reply, err := s.caller.api.CreateHeartbeatRunWithResponse(ctx, issue.CompanyID,
			&client.CreateHeartbeatRunParams{IdempotencyKey: &key},
			client.RunCreate{AgentID: agent, IssueID: &issue.ID})
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON201, reply.HTTPResponse, reply.Body)
	})
	if err != nil {
		return err
	}
	s.run = created.Run
	s.result.RunID = created.Run.ID
	if s.own, err = connect(s.Options, created.Token); err != nil {
		return err
	}
	if s.tokens, err = newTokenFile(s.tokensIn, created.Token); err != nil {
		return err
	}
	removeLeftovers(filepath.Dir(s.dir.Path()), filepath.Dir(s.tokens.dir))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// applySelection makes the task's pending choice of a workspace its binding.
func (s *session) applySelection(ctx context.Context) error {
	_, err := brief(ctx, s.own, "apply the task's choice of a workspace", func(ctx context.Context) (*client.ApplyAnswer, error) {
		reply, err := s.own.api.ApplySelectionWithResponse(ctx, s.IssueID, client.ApplyRequest{RunID: s.run.ID})
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	})
	return asRefused(err)
}

// reserve makes the run the writer, and waits in line for that as long as it may. Its key makes one tenure of many tries.
func (s *session) reserve(ctx context.Context) error {
	key := uuid.NewString()
	var granted *client.Reservation
	line := Line{Wait: s.Wait, Pending: pendingWriter, Note: s.note}
	err := line.Ask(ctx, func(ctx context.Context, seconds int) (err error) {
		granted, err = s.askForWorkspace(ctx, key, seconds)
		return err
	})
	if err != nil {
		return asRefused(err)
	}
	writer := granted.Workspace.Authority.WriterRunID
	if writer == nil || *writer != s.run.ID {
		return fmt.Errorf("the service answered the reservation with another writer than run %s: the command is not run", s.run.ID)
	}
	s.workspace = granted.Workspace
	s.result.WorkspaceID, s.result.Epoch = s.workspace.ID, s.workspace.Authority.Epoch
	s.note("run %s is the writer of workspace %s at epoch %d%s",
		s.run.ID, s.workspace.ID, s.workspace.Authority.Epoch, handoverNote(granted.Handover))
	return nil
}

// askForWorkspace is one reservation, which waits in line for so many seconds.
func (s *session) askForWorkspace(ctx context.Context, key string, seconds int) (*client.Reservation, error) {
	wait := int64(seconds)
	return persistently(ctx, s.own, "reserve the workspace", func(ctx context.Context) (*client.Reservation, error) {
		ctx, cancel := context.WithTimeout(ctx, s.pace.call+time.Duration(seconds)*time.Second)
		defer cancel()
		reply, err := s.own.api.ReserveWorkspaceWithResponse(ctx, s.IssueID,
			&client.ReserveWorkspaceParams{IdempotencyKey: &key}, client.ReserveRequest{RunID: s.run.ID, WaitSeconds: &wait})
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	})
}

// pendingWriter finds the refusal that waiting can turn.
func pendingWriter(err error) (client.Problem, bool) {
	var refusal *Refusal
	if errors.As(err, &refusal) && refusal.Problem.Code == codeWriterPending {
		return refusal.Problem, true
	}
	return client.Problem{}, false
}

// asRefused marks the refusals that mean that there is no workspace for the run.
func asRefused(err error) error {
	var refusal *Refusal
	if errors.As(err, &refusal) && !refusal.passing() {
		return &RefusedError{Refusal: refusal}
	}
	return err
}

// handoverNote says whom the run follows, when that is more than the usual end.
func handoverNote(h *client.Handover) string {
	if h == nil {
		return ""
	}
	note := fmt.Sprintf("; it follows run %s (epoch %d) by %s", h.FromRunID, h.FromEpoch, plain(string(h.Kind)))
	if h.Unproven {
		note += ", which is not proven stopped"
	}
	if h.UnsavedWork {
		note += ", and whose last work was never saved"
	}
	return note
}
