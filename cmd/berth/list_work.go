package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	client "berth/clients/go"
)

type listIssuesCommand struct {
	listFlags
	companyFlags
	Status    string `placeholder:"STATUS" help:"Only those with this status."`
	Parent    string `placeholder:"ISSUE" help:"Only the children of this task."`
	Project   string `placeholder:"PROJECT" help:"Only those of this project."`
	Assignee  string `placeholder:"AGENT" help:"Only those of this agent."`
	Workspace string `placeholder:"WORKSPACE" help:"Only those that are bound to this workspace."`
}

func (c listIssuesCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, company, err := c.openCompany(ctx)
	if err != nil {
		return err
	}
	params := client.ListIssuesParams{Status: filter[client.IssueStatus](c.Status)}
	var errParent, errProject, errAssignee, errWorkspace error
	params.ParentID, errParent = filterID(ctx, c.Parent, s.issueID)
	params.ProjectID, errProject = filterID(ctx, c.Project, s.projectID)
	params.AssigneeAgentID, errAssignee = filterID(ctx, c.Assignee, s.agentID)
	params.ExecutionWorkspaceID, errWorkspace = filterID(ctx, c.Workspace, s.workspaceID)
	if err := errors.Join(errParent, errProject, errAssignee, errWorkspace); err != nil {
		return err
	}
	issues := pages[client.Issue](func(limit *int64, cursor *string) (*http.Response, error) {
		params.Limit, params.Cursor = limit, cursor
		return s.ListIssues(ctx, company, &params)
	})
	return show(stdout, c.listFlags, issues, columns[client.Issue]{
		[]string{"ID", "TASK", "STATUS", "WORKSPACE", "TITLE"},
		func(i client.Issue) []string {
			return []string{i.ID.String(), i.Identifier, string(i.Status), idOrNone(i.ExecutionWorkspaceID), printable(i.Title)}
		},
	})
}

type listWorkspacesCommand struct {
	listFlags
	companyFlags
	Status  string `placeholder:"STATUS" help:"Only those with this status."`
	Project string `placeholder:"PROJECT" help:"Only those of this project."`
}

func (c listWorkspacesCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, company, err := c.openCompany(ctx)
	if err != nil {
		return err
	}
	params := client.ListExecutionWorkspacesParams{Status: filter[client.WorkspaceStatus](c.Status)}
	if params.ProjectID, err = filterID(ctx, c.Project, s.projectID); err != nil {
		return err
	}
	workspaces := pages[client.ExecutionWorkspace](func(limit *int64, cursor *string) (*http.Response, error) {
		params.Limit, params.Cursor = limit, cursor
		return s.ListExecutionWorkspaces(ctx, company, &params)
	})
	return show(stdout, c.listFlags, workspaces, columns[client.ExecutionWorkspace]{
		[]string{"ID", "NAME", "STATUS", "EPOCH", "WRITER"},
		func(w client.ExecutionWorkspace) []string {
			return []string{w.ID.String(), printable(w.Name), string(w.Status), strconv.FormatInt(w.Authority.Epoch, 10), writerOf(w.Authority)}
		},
	})
}

type listRunsCommand struct {
	listFlags
	companyFlags
	Issue  string `placeholder:"ISSUE" help:"Only those of this task."`
	Agent  string `placeholder:"AGENT" help:"Only those of this agent."`
	Status string `placeholder:"STATUS" help:"Only those with this status."`
}

func (c listRunsCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, company, err := c.openCompany(ctx)
	if err != nil {
		return err
	}
	params := client.ListHeartbeatRunsParams{Status: filter[client.RunStatus](c.Status)}
	var errIssue, errAgent error
	params.IssueID, errIssue = filterID(ctx, c.Issue, s.issueID)
	params.AgentID, errAgent = filterID(ctx, c.Agent, s.agentID)
	if err := errors.Join(errIssue, errAgent); err != nil {
		return err
	}
	runs := pages[client.HeartbeatRun](func(limit *int64, cursor *string) (*http.Response, error) {
		params.Limit, params.Cursor = limit, cursor
		return s.ListHeartbeatRuns(ctx, company, &params)
	})
	return show(stdout, c.listFlags, runs, columns[client.HeartbeatRun]{
		[]string{"ID", "STATUS", "TASK", "STARTED", "LAST HEARD OF", "FINISHED"},
		func(r client.HeartbeatRun) []string {
			return []string{
				r.ID.String(), string(r.Status), idOrNone(r.IssueID), shortTimeOrNone(r.StartedAt),
				shortTimeOrNone(r.LastRenewedAt), shortTimeOrNone(r.FinishedAt),
			}
		},
	})
}

type listLeasesCommand struct {
	listFlags
	companyFlags
	RunID  string `name:"run" placeholder:"RUN" help:"Only those of this run, by id."`
	Status string `placeholder:"STATUS" help:"Only those with this status."`
}

func (c listLeasesCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, company, err := c.openCompany(ctx)
	if err != nil {
		return err
	}
	params := client.ListEnvironmentLeasesParams{Status: filter[client.LeaseStatus](c.Status)}
	if params.HeartbeatRunID, err = filterID(ctx, c.RunID, parseID("--run")); err != nil {
		return err
	}
	leases := pages[client.EnvironmentLease](func(limit *int64, cursor *string) (*http.Response, error) {
		params.Limit, params.Cursor = limit, cursor
		return s.ListEnvironmentLeases(ctx, company, &params)
	})
	return show(stdout, c.listFlags, leases, columns[client.EnvironmentLease]{
		[]string{"ID", "STATUS", "CLEANUP", "PROVIDER", "MACHINE", "RUN"},
		func(l client.EnvironmentLease) []string {
			return []string{
				l.ID.String(), string(l.Status), textOrNone(l.CleanupStatus), textOrNone(l.Provider), textOrNone(l.ProviderLeaseID),
				idOrNone(l.HeartbeatRunID),
			}
		},
	})
}

type listSnapshotsCommand struct {
	listFlags
	workspaceArgument
}

func (c listSnapshotsCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, workspace, err := c.openWorkspace(ctx)
	if err != nil {
		return err
	}
	snapshots := pages[client.Snapshot](func(limit *int64, cursor *string) (*http.Response, error) {
		return s.ListSnapshots(ctx, workspace, &client.ListSnapshotsParams{Limit: limit, Cursor: cursor})
	})
	return show(stdout, c.listFlags, snapshots, columns[client.Snapshot]{
		[]string{"ID", "EPOCH", "STATE", "FILES", "BYTES", "CREATED", "NAME"},
		func(snapshot client.Snapshot) []string {
			return []string{
				snapshot.ID.String(), strconv.FormatInt(snapshot.Epoch, 10), string(snapshot.State),
				numberOrNone(snapshot.FileCount), numberOrNone(snapshot.Size), shortTime(snapshot.CreatedAt), textOrNone(snapshot.Name),
			}
		},
	})
}

type listQueueCommand struct {
	listFlags
	companyFlags
	Issue string `arg:"" help:"The task, by identifier or id."`
}

// Run prints the line of a task's workspace. Of tasks that the caller may not read only the position is known.
func (c listQueueCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	issue, err := s.issueID(ctx, c.Issue)
	if err != nil {
		return err
	}
	places := pages[client.Place](func(limit *int64, cursor *string) (*http.Response, error) {
		return s.ListReservationQueue(ctx, issue, &client.ListReservationQueueParams{Limit: limit, Cursor: cursor})
	})
	return show(stdout, c.listFlags, places, columns[client.Place]{
		[]string{"POSITION", "RUN", "TASK", "SINCE", "LAST ASKED"},
		func(p client.Place) []string {
			row := []string{strconv.FormatInt(p.Position, 10), idOrNone(p.RunID), idOrNone(p.IssueID)}
			for _, at := range []*time.Time{p.ArrivedAt, p.LastPolledAt} {
				if at == nil {
					row = append(row, none)
				} else {
					row = append(row, shortTime(*at))
				}
			}
			return row
		},
	})
}
