package main

import (
	"context"
	"fmt"
	"io"

	client "berth/clients/go"
)

type takeoverCommand struct {
	outputFlag
	workspaceArgument
	Reason     string `required:"" placeholder:"TEXT" help:"Why. The history keeps it."`
	AcceptRisk bool   `help:"Go on without proof that the writer stopped: it may still change files, though nothing that it saves will count."`
}

// Run ends a tenure by hand. For operators.
func (c takeoverCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, id, err := c.openWorkspace(ctx)
	if err != nil {
		return err
	}
	workspace, err := read[client.ExecutionWorkspace](s.TakeOverWorkspace(ctx, id, client.TakeoverRequest{
		Reason: c.Reason, AcceptRisk: &c.AcceptRisk,
	}))
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(stdout, workspace.json)
	}
	fmt.Fprintf(stdout, "workspace %s is free, at epoch %d; the next writer is told of the takeover\n",
		workspace.value.ID, workspace.value.Authority.Epoch)
	return nil
}
