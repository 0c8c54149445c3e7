package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"

	"github.com/google/uuid"

	client "berth/clients/go"
)

type listCommand struct {
	Companies    listCompaniesCommand    `cmd:"" help:"The companies."`
	Agents       listAgentsCommand       `cmd:"" help:"The agents of a company."`
	Projects     listProjectsCommand     `cmd:"" help:"The projects of a company."`
	Sources      listSourcesCommand      `cmd:"" help:"The configured sources (project workspaces) of a project."`
	Environments listEnvironmentsCommand `cmd:"" help:"The environments."`
	Issues       listIssuesCommand       `cmd:"" help:"The tasks of a company."`
	Workspaces   listWorkspacesCommand   `cmd:"" help:"The execution workspaces of a company, with their writers."`
	Runs         listRunsCommand         `cmd:"" help:"The heartbeat runs of a company."`
	Leases       listLeasesCommand       `cmd:"" help:"The environment leases of a company."`
	Snapshots    listSnapshotsCommand    `cmd:"" help:"The snapshots of a workspace."`
	Queue        listQueueCommand        `cmd:"" help:"The runs that wait for a task's workspace, in their order."`
}

// listFlags are what all lists have.
type listFlags struct {
	outputFlag
	Limit int `placeholder:"N" help:"At most so many items. All, unless given."`
}

// columns is how a list of T looks as a table.
type columns[T any] struct {
	headings []string
	row      func(T) []string
}

// show prints a list, for people or as the JSON of one whole list.
func show[T any](stdout io.Writer, flags listFlags, list iter.Seq2[item[T], error], c columns[T]) error {
	items := []json.RawMessage{}
	var rows [][]string
	for it, err := range list {
		if err != nil {
			return err
		}
		items, rows = append(items, it.json), append(rows, c.row(it.value))
		if len(items) == flags.Limit {
			break
		}
	}
	if !flags.json() {
		return table(stdout, c.headings, rows)
	}
	document, err := json.Marshal(page{Items: items})
	if err != nil {
		return err
	}
	return printJSON(stdout, document)
}

type listCompaniesCommand struct {
	listFlags
	connectionFlags
}

func (c listCompaniesCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	return show(stdout, c.listFlags, s.companies(ctx), columns[client.Company]{
		[]string{"ID", "PREFIX", "NAME", "STATUS"},
		func(c client.Company) []string {
			return []string{c.ID.String(), c.IssuePrefix, c.Name, string(c.Status)}
		},
	})
}

type listAgentsCommand struct {
	listFlags
	companyFlags
}

func (c listAgentsCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, company, err := c.openCompany(ctx)
	if err != nil {
		return err
	}
	return show(stdout, c.listFlags, s.agents(ctx, company), columns[client.Agent]{
		[]string{"ID", "NAME", "ADAPTER", "STATUS"},
		func(a client.Agent) []string {
			return []string{a.ID.String(), a.Name, a.AdapterType, string(a.Status)}
		},
	})
}

type listProjectsCommand struct {
	listFlags
	companyFlags
}

func (c listProjectsCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, company, err := c.openCompany(ctx)
	if err != nil {
		return err
	}
	return show(stdout, c.listFlags, s.projects(ctx, company), columns[client.Project]{
		[]string{"ID", "NAME", "VISIBILITY"},
		func(p client.Project) []string {
			return []string{p.ID.String(), p.Name, string(p.Visibility)}
		},
	})
}

type listSourcesCommand struct {
	listFlags
	companyFlags
	Project string `required:"" placeholder:"PROJECT" help:"The project, by name or id."`
}

func (c listSourcesCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	project, err := s.projectID(ctx, c.Project)
	if err != nil {
		return err
	}
	return show(stdout, c.listFlags, s.sources(ctx, project), columns[client.ProjectWorkspace]{
		[]string{"ID", "NAME", "TYPE", "PRIMARY", "WHERE"},
		func(w client.ProjectWorkspace) []string {
			where := none
			switch {
			case w.RepoURL != nil:
				where = *w.RepoURL
			case w.Cwd != nil:
				where = *w.Cwd
			}
			return []string{w.ID.String(), w.Name, string(w.SourceType), strconv.FormatBool(w.IsPrimary), where}
		},
	})
}

type listEnvironmentsCommand struct {
	listFlags
	connectionFlags
}

func (c listEnvironmentsCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	return show(stdout, c.listFlags, s.environments(ctx), columns[client.Environment]{
		[]string{"ID", "NAME", "DRIVER", "STATUS"},
		func(e client.Environment) []string {
			return []string{e.ID.String(), e.Name, string(e.Driver), string(e.Status)}
		},
	})
}

// filter is an optional flag as the API takes it.
func filter[T ~string](flag string) *T {
	if flag == "" {
		return nil
	}
	value := T(flag)
	return &value
}

// filterID is an optional flag that names a thing.
func filterID(ctx context.Context, name string, find func(context.Context, string) (uuid.UUID, error)) (*uuid.UUID, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // no filter
	}
	id, err := find(ctx, name)
	return &id, err
}

// openCompany opens a session and finds its company.
func (f companyFlags) openCompany(ctx context.Context) (*session, uuid.UUID, error) {
	s, err := f.open()
	if err != nil {
		return nil, uuid.Nil, err
	}
	company, err := s.companyID(ctx)
	return s, company, err
}

// writerOf tells in a word or two who may write.
func writerOf(a client.WorkspaceAuthority) string {
	switch {
	case a.WriterRunID == nil:
		return "free"
	case a.Dirty:
		return fmt.Sprintf("%s, unsaved work", a.WriterRunID)
	default:
		return a.WriterRunID.String()
	}
}
