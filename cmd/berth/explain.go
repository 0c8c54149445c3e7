package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"

	client "berth/clients/go"
)

type explainCommand struct {
	outputFlag
	Name  string `arg:"" optional:"" placeholder:"NAME" help:"Who would come next is asked about: a workspace, by name or id, or a task."`
	Issue string `placeholder:"ISSUE" help:"A run of this task is asked about."`
	reservationFlags
}

// Help is shown by berth explain --help.
func (explainCommand) Help() string {
	return "Asks what the reservation would get, by the same rules and without changing anything: the verdict, who holds the " +
		"workspace, and what would free it. With --issue it asks for the run that --run names, else for the only running run of " +
		"the task; where there is none, and for a NAME, it asks for a run that would begin now."
}

// Run prints a verdict. A refusal is an answer too, so its exit code is 0.
func (c explainCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	name, err := c.task(ctx, s)
	if err != nil {
		return err
	}
	issue, request, err := c.request(ctx, s, name)
	if err != nil {
		return err
	}
	run := idUnlessZero(request.RunID)
	if run == nil && c.Issue != "" {
		if run, err = s.onlyRunningRun(ctx, issue); err != nil {
			return err
		}
	}
	explanation, err := read[client.Explanation](s.ExplainReservation(ctx, issue, &client.ExplainReservationParams{
		RunID: run, AgentID: request.AgentID, EnvironmentID: request.EnvironmentID,
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
		"updateHeartbeatRun":       "an operator marks its run as ended, which keeps what it did not save for a recovery (updateHeartbeatRun)",
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

// task is the task whose workspace is asked about.
func (c explainCommand) task(ctx context.Context, s *session) (string, error) {
	switch {
	case (c.Name == "") == (c.Issue == ""):
		return "", usageError{errors.New("name a workspace or a task, or a task with --issue")}
	case c.Issue != "":
		return c.Issue, nil
	case looksLikeIssue(c.Name):
		if issue, err := s.issueID(ctx, c.Name); err == nil {
			return issue.String(), nil
		}
	}
	id, err := s.workspaceID(ctx, c.Name)
	if err != nil {
		return "", err
	}
	workspace, err := read[client.ExecutionWorkspace](s.GetExecutionWorkspace(ctx, id))
	if err != nil {
		return "", err
	}
	one := int64(1)
	bound, err := read[struct {
		Items []client.Issue `json:"items"`
	}](s.ListIssues(ctx, workspace.value.CompanyID, &client.ListIssuesParams{ExecutionWorkspaceID: &id, Limit: &one}))
	switch {
	case err != nil:
		return "", err
	case len(bound.value.Items) == 0:
		return "", fmt.Errorf("no task is bound to workspace %s, and so nobody reserves it: berth show workspace %[1]s shows who has it", id)
	}
	return bound.value.Items[0].ID.String(), nil
}

func idUnlessZero(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// onlyRunningRun is the run that a person means who asks about a task, nil where none or several are running.
func (s *session) onlyRunningRun(ctx context.Context, issue uuid.UUID) (*uuid.UUID, error) {
	company, err := s.companyID(ctx)
	if err != nil {
		return nil, err
	}
	running, two := client.RunStatusRunning, int64(2)
	runs, err := read[struct {
		Items []client.HeartbeatRun `json:"items"`
	}](s.ListHeartbeatRuns(ctx, company, &client.ListHeartbeatRunsParams{IssueID: &issue, Status: &running, Limit: &two}))
	if err != nil || len(runs.value.Items) != 1 {
		return nil, err
	}
	return &runs.value.Items[0].ID, nil
}
