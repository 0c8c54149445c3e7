package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/uuid"

	client "berth/clients/go"
	"berth/runner"
)

// reservationFlags are the inputs of a reservation, and of the question what one
// would get.
type reservationFlags struct {
	companyFlags
	RunID         string `name:"run" placeholder:"ID" help:"The run that is to write."`
	Agent         string `placeholder:"AGENT" help:"Whose run it is, by name or id."`
	Workspace     string `placeholder:"WORKSPACE" help:"The workspace that the task has to be bound to."`
	Environment   string `placeholder:"ENVIRONMENT" help:"Where the run executes, by name or id."`
	ExpectedEpoch *int64 `placeholder:"N" help:"The epoch that the workspace has to be at."`
}

// request is the reservation that the flags ask for, of a task, and the task's id.
func (f reservationFlags) request(ctx context.Context, s *session, name string) (issue uuid.UUID, request client.ReserveRequest, err error) {
	if issue, err = s.issueID(ctx, name); err != nil {
		return issue, request, err
	}
	task, err := read[client.Issue](s.GetIssue(ctx, issue))
	if err != nil {
		return issue, request, err
	}
	s.company = task.value.CompanyID.String() // the other names are of that company
	request.ExpectedEpoch = f.ExpectedEpoch
	var errAgent, errWorkspace, errEnvironment error
	request.AgentID, errAgent = filterID(ctx, f.Agent, s.agentID)
	request.ExistingWorkspaceID, errWorkspace = filterID(ctx, f.Workspace, s.workspaceID)
	request.EnvironmentID, errEnvironment = filterID(ctx, f.Environment, s.environmentID)
	if err := errors.Join(errAgent, errWorkspace, errEnvironment); err != nil {
		return issue, request, err
	}
	if f.RunID != "" {
		request.RunID, err = parseID("--run")(ctx, f.RunID)
	}
	return issue, request, err
}

type reserveCommand struct {
	outputFlag
	Issue string `required:"" placeholder:"ISSUE" help:"The task, by identifier or id."`
	reservationFlags
	Wait time.Duration `placeholder:"DURATION" help:"How long to wait in line when another run has the workspace, as in 10m; not at all unless given."`
	Key  string        `placeholder:"KEY" help:"Idempotency key: repeating the call with it never makes a second reservation."`
}

// Help is shown by berth reserve --help.
func (reserveCommand) Help() string {
	return "Without --run it makes a run first, of --agent, else of the task's assignee, else of the company's only agent. " +
		"Prints what the other commands of a tenure need as shell variables, so that a script goes on with " +
		"export $(berth reserve --issue ACME-2), berth restore, berth save and berth release --finish succeeded. " +
		"BERTH_TOKEN is then the run's. Exit code 73 when the reservation is refused."
}

// reserved is what berth reserve prints as JSON.
type reserved struct {
	Reservation json.RawMessage      `json:"reservation"`
	Run         *client.HeartbeatRun `json:"run"`
	Token       *string              `json:"token"`
}

func (c reserveCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	issue, request, err := c.request(ctx, s, c.Issue)
	if err != nil {
		return err
	}
	var result reserved
	if c.RunID == "" {
		created, err := s.createRun(ctx, issue, request.AgentID)
		if err != nil {
			return err
		}
		result.Run, result.Token = &created.Run, &created.Token
		request.RunID = created.Run.ID
		if s, err = (connectionFlags{URL: c.URL, Token: created.Token}).open(); err != nil {
			return err
		}
	}
	reservation, err := c.inLine(ctx, s, issue, request)
	if err != nil {
		return s.refused(ctx, err, result.Run)
	}
	result.Reservation = reservation.json
	noteHandover(os.Stderr, reservation.value.Handover)
	if c.json() {
		document, err := json.Marshal(result)
		if err != nil {
			return err
		}
		return printJSON(stdout, document)
	}
	return printTenure(stdout, reservation.value.Workspace, result.Token)
}

// inLine reserves, and waits for it as long as it may.
func (c reserveCommand) inLine(ctx context.Context, s *session, issue uuid.UUID, request client.ReserveRequest) (granted answer[client.Reservation], err error) {
	line := runner.Line{
		Wait: c.Wait,
		Note: func(format string, args ...any) { fmt.Fprintf(os.Stderr, "berth: "+format+"\n", args...) },
		Pending: func(err error) (client.Problem, bool) {
			var refusal *apiError
			if errors.As(err, &refusal) && refusal.Code == "remote_workspace_writer_pending" {
				return refusal.Problem, true
			}
			return client.Problem{}, false
		},
	}
	err = line.Ask(ctx, func(ctx context.Context, seconds int) (err error) {
		wait := int64(seconds)
		request.WaitSeconds = &wait
		granted, err = read[client.Reservation](s.ReserveWorkspace(ctx, issue,
			&client.ReserveWorkspaceParams{IdempotencyKey: filter[string](c.Key)}, request))
		return err
	})
	return granted, err
}

// refused ends the run that was made for a reservation that was not granted. A
// reservation whose answer got lost may have been granted, so then the run stays.
func (s *session) refused(ctx context.Context, err error, made *client.HeartbeatRun) error {
	var refusal *apiError
	if !errors.As(err, &refusal) {
		return err
	}
	if made != nil {
		_, errFinish := read[client.HeartbeatRun](s.UpdateHeartbeatRun(ctx, made.ID, client.RunUpdate{Status: client.RunStatusCancelled}))
		err = errors.Join(err, errFinish)
	}
	if refusal.Status == 401 || refusal.Status >= 500 {
		return err
	}
	return &exitError{err, exitRefused}
}

// createRun makes a run of the task that is running from the start.
func (s *session) createRun(ctx context.Context, issue uuid.UUID, agent *uuid.UUID) (client.CreatedRun, error) {
	task, err := read[client.Issue](s.GetIssue(ctx, issue))
	if err != nil {
		return client.CreatedRun{}, err
	}
	if agent == nil {
		agent = task.value.AssigneeAgentID
	}
	if agent == nil {
		id, err := only("agent", "--agent", s.agents(ctx, task.value.CompanyID), agentNames)
		if err != nil {
			return client.CreatedRun{}, err
		}
		agent = &id
	}
	running := client.RunStatusRunning
	created, err := read[client.CreatedRun](s.CreateHeartbeatRun(ctx, task.value.CompanyID, nil,
		client.RunCreate{AgentID: *agent, IssueID: &issue, Status: &running}))
	return created.value, err
}

// printTenure prints what the commands of a tenure need, as shell variables.
func printTenure(stdout io.Writer, workspace client.ExecutionWorkspace, token *string) error {
	fmt.Fprintf(stdout, "BERTH_WORKSPACE_ID=%s\nBERTH_RUN_ID=%s\nBERTH_EPOCH=%d\n",
		workspace.ID, idOrNone(workspace.Authority.WriterRunID), workspace.Authority.Epoch)
	if token != nil {
		fmt.Fprintf(stdout, "BERTH_TOKEN=%s\n", *token)
	}
	return nil
}

// noteHandover tells whom the new writer follows, where that matters for it.
func noteHandover(stderr io.Writer, h *client.Handover) {
	if h == nil {
		return
	}
	note := fmt.Sprintf("follows run %s (epoch %d)", h.FromRunID, h.FromEpoch)
	switch h.Kind {
	case client.HandoverKindProof:
		note += ", which is proven stopped"
	case client.HandoverKindTakeover:
		note += ", whose tenure an operator ended"
	default:
		note += " (" + string(h.Kind) + ")"
	}
	if h.UnsavedWork {
		note += "; work of it was not saved"
	}
	if h.Unproven {
		note += "; nobody has proven that it stopped"
	}
	fmt.Fprintf(stderr, "berth: %s\n", note)
}
