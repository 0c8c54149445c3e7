package main

import (
	"context"
	"fmt"
	"io"

	client "berth/clients/go"
)

type renewCommand struct {
	outputFlag
	tenureFlags
}

// Run says that the run is there. The answer tells whether it should end.
func (c renewCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, held, err := c.open()
	if err != nil {
		return err
	}
	renewal, err := read[client.Renewal](s.RenewTenure(ctx, held.workspace, held.claim))
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(stdout, renewal.json)
	}
	fmt.Fprintf(stdout, "renewed at %s\n", shortTime(renewal.value.LastRenewedAt))
	if stop := renewal.value.StopRequested; stop != nil {
		fmt.Fprintf(stdout, "asked to stop by %s: %s\n", shortTime(stop.Deadline), printable(stop.Reason))
	}
	if renewal.value.Token != nil {
		fmt.Fprintf(stdout, "the run's new token: %s\n", *renewal.value.Token)
	}
	return nil
}
