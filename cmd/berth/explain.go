package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/google/uuid"

	client "berth/clients/go"
)

type explainCommand struct {
	outputFlag
	reservationFlags
}

// Help is shown by berth explain --help.
func (explainCommand) Help() string {
	return "Asks what the reservation would get, by the same rules and without changing anything: the verdict, who holds the " +
		"workspace, and what would free it. Without --run it asks for the only running run of the task."
}

// Run prints a verdict. A refusal is an answer too, so its exit code is 0.
func (c explainCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	issue, request, err := c.request(ctx, s)
	if err != nil {
		return err
	}
	if c.RunID == "" {
		if request.RunID, err = s.runningRun(ctx, issue); err != nil {
			return err
		}
	}
	explanation, err := read[client.Explanation](s.ExplainReservation(ctx, issue, &client.ExplainReservationParams{
		RunID: request.RunID, AgentID: request.AgentID, EnvironmentID: request.EnvironmentID,
		ExistingWorkspaceID: request.ExistingWorkspaceID, ExpectedEpoch: request.ExpectedEpoch,
	}))
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(stdout, explanation.json)
	}
	e := explanation.value
	if e.Reservable {
		fmt.Fprintf(stdout, "yes: %s\n", e.Detail)
	} else {
		fmt.Fprintf(stdout, "no: %s (%s)\n", e.Detail, textOrNone(e.Code))
	}
	for _, line := range describeDetails(e.Details) {
		fmt.Fprintln(stdout, line)
	}
	for _, action := range e.NextActions {
		fmt.Fprintf(stdout, "next: %s\n", describeAction(action))
	}
	return nil
}

// describeAction tells a person how to make a call of the API.
func describeAction(operation string) string {
	commands := map[string]string{
		"reserveWorkspace":         "reserve: berth run, or berth reserve",
		"explainReservation":       "wait, and ask again: berth explain",
		"takeOverWorkspace":        "an operator takes over: berth takeover",
		"requestStop":              "an operator asks the writer to stop: berth stop",
		"createRecoveryToken":      "an operator saves what the writer left: berth recover",
		"recordTerminationReceipt": "an operator brings the provider's receipt of each machine's end (recordTerminationReceipt)",
		"releaseWorkspace":         "release the other workspace: berth release",
		"getTaskWorkspace":         "look at the workspace: berth show workspace",
		"updateExecutionWorkspace": "reopen the workspace (updateExecutionWorkspace)",
		"selectWorkspace":          "choose a workspace for the task (selectWorkspace)",
		"applySelection":           "apply the choice that waits (applySelection)",
	}
	if command, known := commands[operation]; known {
		return command
	}
	return printable(operation)
}

// runningRun is the run that a person means who asks about a task.
func (s *session) runningRun(ctx context.Context, issue uuid.UUID) (uuid.UUID, error) {
	company, err := s.companyID(ctx)
	if err != nil {
		return uuid.Nil, err
	}
	running := client.RunStatusRunning
	runs := pages[client.HeartbeatRun](func(limit *int64, cursor *string) (*http.Response, error) {
		return s.ListHeartbeatRuns(ctx, company, &client.ListHeartbeatRunsParams{IssueID: &issue, Status: &running, Limit: limit, Cursor: cursor})
	})
	var found []uuid.UUID
	for run, err := range runs {
		if err != nil {
			return uuid.Nil, err
		}
		found = append(found, run.value.ID)
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return uuid.Nil, usageError{errors.New("no run of the task is running: name one with --run")}
	default:
		return uuid.Nil, usageError{fmt.Errorf("%d runs of the task are running: name one with --run, one of %v", len(found), found)}
	}
}
