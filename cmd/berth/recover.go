package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/uuid"

	client "berth/clients/go"
	"berth/runner"
)

type recoverCommand struct {
	outputFlag
	connectionFlags
	Dir        string `required:"" placeholder:"DIR" help:"The directory that the run had."`
	Reason     string `placeholder:"TEXT" help:"Why, for the history."`
	AcceptRisk bool   `help:"Go on without proof that every machine of the run stopped. The history keeps it."`
}

// Help is shown by berth recover --help.
func (recoverCommand) Help() string {
	return "For operators, after a berth run was killed or its host started anew: proves on this host that the run's processes are gone, " +
		"ends the run, and saves the directory in its name. The workspace then goes to the next run that reserves it. " +
		"It may be repeated, and nothing is deleted. Exit code 75 when the work is still in the directory and nowhere else."
}

// recoveredObject is what berth recover prints as JSON.
type recoveredObject struct {
	WorkspaceID uuid.UUID        `json:"workspaceId"`
	RunID       uuid.UUID        `json:"runId"`
	Epoch       int64            `json:"epoch"`
	Snapshot    *client.Snapshot `json:"snapshot"`
}

// Run saves what a dead run left.
func (c recoverCommand) Run(ctx context.Context, stdout io.Writer) error {
	where, token, err := c.endpoint()
	if err != nil {
		return err
	}
	recovery := runner.Recover{
		Options: runner.Options{URL: where, Token: token, Dir: c.Dir, Notices: os.Stderr},
		Reason:  c.Reason, AcceptRisk: c.AcceptRisk,
	}
	done, err := interruptible(ctx, func(ctx context.Context) (*runner.Recovered, error) {
		done, err := recovery.Do(ctx)
		return &done, err
	})
	var unsaved *runner.UnsavedError
	var coded *exitError
	switch {
	case errors.As(err, &coded):
		return err
	case errors.As(err, &unsaved):
		return &exitError{err, exitUnsaved}
	case err != nil:
		return err
	}
	if c.json() {
		document, err := json.Marshal(recoveredObject{done.WorkspaceID, done.RunID, done.Epoch, done.Saved})
		if err != nil {
			return err
		}
		return printJSON(stdout, document)
	}
	if done.Saved == nil {
		fmt.Fprintf(stdout, "nothing of run %s was unsaved; workspace %s goes to the next run that reserves it\n", done.RunID, done.WorkspaceID)
		return nil
	}
	fmt.Fprintf(stdout, "saved %s files of run %s (epoch %d) as snapshot %s; workspace %s goes to the next run that reserves it\n",
		numberOrNone(done.Saved.FileCount), done.RunID, done.Epoch, done.Saved.ID, done.WorkspaceID)
	return nil
}
