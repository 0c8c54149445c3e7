package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/google/uuid"

	client "berth/clients/go"
	"berth/runner"
)

type saveCommand struct {
	outputFlag
	connectionFlags
	claimFlags
	Dir  string `required:"" placeholder:"DIR" help:"The directory, as berth restore or berth run prepared it. Unless given, the tenure is the one in its marker."`
	More bool   `help:"You go on working in the directory: the workspace stays marked as having unsaved work."`
}

// Run makes the directory's files the saved state of the workspace.
func (c saveCommand) Run(ctx context.Context, stdout io.Writer) error {
	held, err := c.or(c.Dir)
	if err != nil {
		return err
	}
	byHand, err := c.byHand(held, c.Dir, runner.ModeRefuse)
	if err != nil {
		return err
	}
	saved, err := interruptible(ctx, func(ctx context.Context) (*client.Snapshot, error) { return byHand.Save(ctx, c.More) })
	if err != nil {
		var coded *exitError
		if errors.As(err, &coded) {
			return err
		}
		return &exitError{err, exitUnsaved}
	}
	return saidOf(stdout, c.outputFlag, "saved", saved)
}

type restoreCommand struct {
	outputFlag
	connectionFlags
	claimFlags
	Dir     string `required:"" placeholder:"DIR" help:"Where the files go: a directory that is empty, not there yet, or has them already."`
	Adopt   bool   `xor:"files" help:"Take the files that are there as the first content of a workspace that has none saved."`
	Replace bool   `xor:"files" help:"Move the directory that is there aside. Nothing is deleted."`

	Snapshot string `xor:"files" placeholder:"SNAPSHOT" help:"Copy this snapshot of the workspace, by name or id, without a tenure: the directory is nobody's then."`
}

// Run brings the workspace's saved files into the directory.
func (c restoreCommand) Run(ctx context.Context, stdout io.Writer) error {
	if c.Snapshot != "" {
		return c.checkOut(ctx, stdout)
	}
	held, err := c.tenure()
	if err != nil {
		return err
	}
	byHand, err := c.byHand(held, c.Dir, modeOf(c.Adopt, c.Replace))
	if err != nil {
		return err
	}
	restored, err := interruptible(ctx, byHand.Restore)
	if err != nil {
		return err
	}
	return saidOf(stdout, c.outputFlag, "restored", restored)
}

// checkOut copies a saved state that nobody holds.
func (c restoreCommand) checkOut(ctx context.Context, stdout io.Writer) error {
	if c.WorkspaceID == "" {
		return usageError{errors.New("of which workspace? Give its id (or BERTH_WORKSPACE_ID)")}
	}
	workspace, err := uuid.Parse(c.WorkspaceID)
	if err != nil {
		return usageError{fmt.Errorf("the workspace is given by its id: %w", err)}
	}
	s, err := c.open()
	if err != nil {
		return err
	}
	snapshot, err := s.snapshotID(ctx, workspace, c.Snapshot)
	if err != nil {
		return err
	}
	where, token, err := c.endpoint()
	if err != nil {
		return err
	}
	options := runner.Options{URL: where, Token: token, Dir: c.Dir, Notices: os.Stderr}
	copied, err := interruptible(ctx, func(ctx context.Context) (*client.Snapshot, error) {
		return runner.Checkout(ctx, options, workspace, snapshot)
	})
	if err != nil {
		return err
	}
	return saidOf(stdout, c.outputFlag, "copied", copied)
}

// or is the tenure that was given, or else the one in the directory's marker.
func (f claimFlags) or(dir string) (tenure, error) {
	if f.WorkspaceID == "" && f.RunID == "" && f.Epoch == nil {
		return tenureOf(dir)
	}
	return f.tenure()
}

func (c connectionFlags) byHand(held tenure, dir string, mode runner.Mode) (runner.ByHand, error) {
	where, token, err := c.endpoint()
	return runner.ByHand{
		Options:     runner.Options{URL: where, Token: token, Dir: dir, Mode: mode, Notices: os.Stderr},
		WorkspaceID: held.workspace, RunID: held.claim.RunID, Epoch: held.claim.Epoch,
	}, err
}

// saidOf prints what a save or a restore had to do with.
func saidOf(stdout io.Writer, output outputFlag, verb string, s *client.Snapshot) error {
	if output.json() {
		document, err := json.Marshal(s)
		if err != nil {
			return err
		}
		return printJSON(stdout, document)
	}
	fmt.Fprintf(stdout, "%s snapshot %s: %s files, an archive of %s bytes\n", verb, s.ID, numberOrNone(s.FileCount), numberOrNone(s.Size))
	return nil
}

// interruptedError says which signal ended a command.
type interruptedError struct{ signal syscall.Signal }

func (e *interruptedError) Error() string { return "interrupted (" + e.signal.String() + ")" }

// interruptible runs a step that a signal must not end in the middle: it is told,
// and cleans up. The exit code is then the signal's.
func interruptible[T any](ctx context.Context, step func(context.Context) (*T, error)) (*T, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	go func() {
		select {
		case s := <-signals:
			if sig, ok := s.(syscall.Signal); ok {
				cancel(&interruptedError{sig})
			}
		case <-ctx.Done():
		}
	}()
	value, err := step(ctx)
	var interrupted *interruptedError
	if err != nil && errors.As(context.Cause(ctx), &interrupted) {
		return nil, &exitError{err, 128 + int(interrupted.signal)}
	}
	return value, err
}
