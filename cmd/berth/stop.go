package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	client "berth/clients/go"
)

type stopCommand struct {
	outputFlag
	workspaceArgument
	Reason   string `required:"" placeholder:"TEXT" help:"Why. The writer is told, and the history keeps it."`
	Deadline string `default:"10m" placeholder:"10m" help:"How long the writer has to end by itself, as a duration from now on or as a time; ${default} unless given. Afterwards the providers of its machines are asked to stop them."`
}

// Help is shown by berth stop --help.
func (stopCommand) Help() string {
	return "The writer hears of it with its next renewal, and berth run then ends its command, saves and releases. After the deadline the " +
		"providers of its machines are asked, until every one is proven stopped; then the run counts as interrupted. Nothing is freed " +
		"because time passed. A second request takes the place of the first."
}

// Run asks the writer of a workspace to stop. For operators.
func (c stopCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, id, err := c.openWorkspace(ctx)
	if err != nil {
		return err
	}
	deadline, err := c.deadline(ctx, s, id)
	if err != nil {
		return err
	}
	request, err := read[client.StopRequest](s.RequestStop(ctx, id, nil, client.StopRequestCreate{Reason: c.Reason, Deadline: deadline}))
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(stdout, request.json)
	}
	r := request.value
	fmt.Fprintf(stdout, "run %s, epoch %d, is asked to stop by %s\nberth show workspace %s tells how it goes\n",
		r.RunID, r.Epoch, shortTime(r.Deadline), r.WorkspaceID)
	return nil
}

// deadline is the time that is meant. A duration begins now by the service's clock: this host's may be off.
func (c stopCommand) deadline(ctx context.Context, s *session, workspace uuid.UUID) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, c.Deadline); err == nil {
		return at, nil
	}
	left, err := time.ParseDuration(c.Deadline)
	if err != nil || left < 0 {
		return time.Time{}, usageError{fmt.Errorf("--deadline %q is neither a duration such as 10m nor a time such as 2026-01-02T15:04:05Z", c.Deadline)}
	}
	response, err := s.GetExecutionWorkspace(ctx, workspace)
	if err != nil {
		return time.Time{}, unreachable(err)
	}
	now, dateErr := http.ParseTime(response.Header.Get("Date"))
	if _, err := read[client.ExecutionWorkspace](response, nil); err != nil {
		return time.Time{}, err
	}
	if dateErr != nil {
		return time.Time{}, fmt.Errorf("the service does not say what time it is: give --deadline as a time: %w", dateErr)
	}
	return now.Add(left), nil
}

// openStopRequest is what the writer of a workspace is asked at the moment, nil for nothing.
func (s *session) openStopRequest(ctx context.Context, workspace uuid.UUID) (*client.StopRequest, error) {
	one := int64(1)
	list, err := read[struct {
		Items []client.StopRequest `json:"items"`
	}](s.ListStopRequests(ctx, workspace, &client.ListStopRequestsParams{Limit: &one}))
	if err != nil || len(list.value.Items) == 0 || list.value.Items[0].SettledAt != nil {
		return nil, err
	}
	return &list.value.Items[0], nil
}

// describeStopRequest tells how a request to stop goes.
func describeStopRequest(r client.StopRequest) string {
	line := fmt.Sprintf("asked to stop by %s (%s): %s", shortTime(r.Deadline), r.State, printable(r.Reason))
	if r.LastErrorKind != nil {
		line += fmt.Sprintf("\nits stop is not proven after %d attempts: %s", r.Attempts, printable(*r.LastErrorKind))
		if r.NextAttemptAt != nil {
			line += ", next attempt at " + shortTime(*r.NextAttemptAt)
		}
	}
	return line
}
