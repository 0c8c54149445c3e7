package main

import (
	"context"
	"fmt"
	"io"

	client "berth/clients/go"
)

type releaseCommand struct {
	outputFlag
	tenureFlags
	Discard bool   `help:"Give unsaved work up. The history keeps that there was some."`
	Finish  string `placeholder:"STATUS" help:"End the run in the same step: succeeded, failed, cancelled, interrupted or timed_out."`
}

// Run lets the next writer in.
func (c releaseCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, held, err := c.open()
	if err != nil {
		return err
	}
	if c.Finish != "" {
		run, err := read[client.HeartbeatRun](s.UpdateHeartbeatRun(ctx, held.claim.RunID,
			client.RunUpdate{Status: client.RunStatus(c.Finish), Discard: &c.Discard}))
		if err != nil {
			return err
		}
		if c.json() {
			return printJSON(stdout, run.json)
		}
		fmt.Fprintf(stdout, "run %s is %s, and workspace %s is free\n", run.value.ID, run.value.Status, held.workspace)
		return nil
	}
	workspace, err := read[client.ExecutionWorkspace](s.ReleaseWorkspace(ctx, held.workspace, client.ReleaseRequest{
		RunID: held.claim.RunID, Epoch: held.claim.Epoch, Discard: &c.Discard,
	}))
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(stdout, workspace.json)
	}
	fmt.Fprintf(stdout, "workspace %s is free\n", workspace.value.ID)
	return nil
}
