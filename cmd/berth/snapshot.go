package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/uuid"

	client "berth/clients/go"
)

// origin finds what a branch is made from: a workspace, and a snapshot of it if one is named.
func (s *session) origin(ctx context.Context, from string) (workspace, snapshot *uuid.UUID, err error) {
	name, of, named := strings.Cut(from, "@")
	id, err := s.workspaceID(ctx, name)
	if err != nil || !named {
		return &id, nil, err
	}
	found, err := s.snapshotID(ctx, id, of)
	return &id, &found, err
}

// snapshotID finds a snapshot of a workspace by its name or id.
func (s *session) snapshotID(ctx context.Context, workspace uuid.UUID, nameOrID string) (uuid.UUID, error) {
	if id, err := uuid.Parse(nameOrID); err == nil {
		return id, nil
	}
	all := pages[client.Snapshot](func(limit *int64, cursor *string) (*http.Response, error) {
		return s.ListSnapshots(ctx, workspace, &client.ListSnapshotsParams{Limit: limit, Cursor: cursor})
	})
	for snapshot, err := range all {
		switch {
		case err != nil:
			return uuid.Nil, err
		case snapshot.value.Name != nil && *snapshot.value.Name == nameOrID:
			return snapshot.value.ID, nil
		}
	}
	return uuid.Nil, fmt.Errorf("no snapshot of the workspace is named %q: berth list snapshots has them all", nameOrID)
}

type nameCommand struct {
	outputFlag
	companyFlags
	Workspace string `arg:"" help:"The workspace, by name, task or id."`
	Snapshot  string `arg:"" help:"The snapshot, by its id or the name that it has."`
	Name      string `arg:"" optional:"" help:"The name that it gets; none takes the name away."`
}

// Help is shown by berth name --help.
func (nameCommand) Help() string {
	return "A named snapshot is kept for as long as it has the name; the others only while they are among the newest."
}

// Run names a snapshot.
func (c nameCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	workspace, err := s.workspaceID(ctx, c.Workspace)
	if err != nil {
		return err
	}
	snapshot, err := s.snapshotID(ctx, workspace, c.Snapshot)
	if err != nil {
		return err
	}
	named, err := read[client.Snapshot](s.UpdateSnapshot(ctx, workspace, snapshot, client.SnapshotUpdate{Name: filter[string](c.Name)}))
	if err != nil {
		return err
	}
	return made(stdout, c.outputFlag, named, named.value.ID)
}

type rollbackCommand struct {
	outputFlag
	companyFlags
	Issue    string `required:"" placeholder:"ISSUE" help:"The task, by identifier or id."`
	Snapshot string `required:"" placeholder:"SNAPSHOT" help:"The snapshot to go back to, by name or id."`
	Agent    string `placeholder:"AGENT" help:"Whose run does it: the task's assignee or the company's only agent unless given."`
}

// Help is shown by berth rollback --help.
func (rollbackCommand) Help() string {
	return "Makes an older snapshot of the task's workspace the saved state again, as a new one: nothing that was saved since is lost. " +
		"It is done by a run of its own that reserves the workspace, like every change. Exit code 73 when the reservation is refused."
}

// Run reserves, rolls back and releases.
func (c rollbackCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	issue, err := s.issueID(ctx, c.Issue)
	if err != nil {
		return err
	}
	task, err := read[client.Issue](s.GetIssue(ctx, issue))
	if err != nil {
		return err
	}
	s.company = task.value.CompanyID.String()
	agent, err := filterID(ctx, c.Agent, s.agentID)
	if err != nil {
		return err
	}
	if task.value.ExecutionWorkspaceID == nil {
		return errors.New("the task has no workspace, so there is nothing to go back to")
	}
	snapshot, err := s.snapshotID(ctx, *task.value.ExecutionWorkspaceID, c.Snapshot)
	if err != nil {
		return err
	}
	created, err := s.createRun(ctx, issue, agent)
	if err != nil {
		return err
	}
	own, err := (connectionFlags{URL: c.URL, Token: created.Token}).open()
	if err != nil {
		return err
	}
	made, err := own.rollBack(ctx, issue, created.Run, snapshot)
	if err != nil {
		return own.refused(ctx, err, &created.Run)
	}
	if _, err := read[client.HeartbeatRun](own.UpdateHeartbeatRun(ctx, created.Run.ID, client.RunUpdate{Status: client.RunStatusSucceeded})); err != nil {
		return fmt.Errorf("the workspace is rolled back, and giving it up failed: %w", err)
	}
	return saidOf(stdout, c.outputFlag, "rolled back to", &made)
}

// rollBack reserves as the run and goes back to the snapshot.
func (s *session) rollBack(ctx context.Context, issue uuid.UUID, run client.HeartbeatRun, snapshot uuid.UUID) (client.Snapshot, error) {
	granted, err := read[client.Reservation](s.ReserveWorkspace(ctx, issue, &client.ReserveWorkspaceParams{}, client.ReserveRequest{RunID: run.ID}))
	if err != nil {
		return client.Snapshot{}, err
	}
	w := granted.value.Workspace
	made, err := read[client.Snapshot](s.RollBackWorkspace(ctx, w.ID, snapshot, client.Claim{RunID: run.ID, Epoch: w.Authority.Epoch}))
	return made.value, err
}
