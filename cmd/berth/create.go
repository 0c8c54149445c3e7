package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/google/uuid"

	client "berth/clients/go"
)

type createCommand struct {
	Company     createCompanyCommand     `cmd:"" help:"A company."`
	Agent       createAgentCommand       `cmd:"" help:"An agent of a company."`
	Project     createProjectCommand     `cmd:"" help:"A project of a company."`
	Source      createSourceCommand      `cmd:"" help:"A configured source of files (project workspace) of a project."`
	Environment createEnvironmentCommand `cmd:"" help:"An environment: a place where runs execute."`
	Issue       createIssueCommand       `cmd:"" help:"A task. A child takes its parent's workspace."`
	Workspace   createWorkspaceCommand   `cmd:"" help:"A workspace for a task, which is bound to it."`
}

// Help is shown by berth create --help.
func (createCommand) Help() string {
	return "Prints the id of what it made and nothing else, so that a shell can keep it: ID=$(berth create company Acme). " +
		"With --output json: the whole object."
}

// made prints what a create answered.
func made[T any](stdout io.Writer, output outputFlag, object answer[T], id uuid.UUID) error {
	if output.json() {
		return printJSON(stdout, object.json)
	}
	_, err := fmt.Fprintln(stdout, id)
	return err
}

type createCompanyCommand struct {
	outputFlag
	connectionFlags
	Name   string `arg:"" help:"Its name."`
	Prefix string `placeholder:"PREFIX" help:"How its tasks' identifiers begin, as in ACME-1. One is made of the name unless given."`
}

func (c createCompanyCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	company, err := read[client.Company](s.CreateCompany(ctx, nil, client.CompanyCreate{Name: c.Name, IssuePrefix: filter[string](c.Prefix)}))
	if err != nil {
		return err
	}
	return made(stdout, c.outputFlag, company, company.value.ID)
}

type createAgentCommand struct {
	outputFlag
	companyFlags
	Name    string `arg:"" help:"Its name."`
	Adapter string `default:"command" placeholder:"TYPE" help:"What executes its runs: any text; ${default} unless given."`
}

func (c createAgentCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, company, err := c.openCompany(ctx)
	if err != nil {
		return err
	}
	agent, err := read[client.Agent](s.CreateAgent(ctx, company, nil, client.AgentCreate{Name: c.Name, AdapterType: c.Adapter}))
	if err != nil {
		return err
	}
	return made(stdout, c.outputFlag, agent, agent.value.ID)
}

type createProjectCommand struct {
	outputFlag
	companyFlags
	Name    string `arg:"" help:"Its name."`
	Private bool   `help:"Only its members may read it."`
	Policy  string `placeholder:"JSON" help:"Its executionWorkspacePolicy, a JSON object."`
}

func (c createProjectCommand) Run(ctx context.Context, stdout io.Writer) error {
	body := client.ProjectCreate{Name: c.Name}
	if c.Private {
		private := client.VisibilityPrivate
		body.Visibility = &private
	}
	if err := parseObject("--policy", c.Policy, &body.ExecutionWorkspacePolicy); err != nil {
		return err
	}
	s, company, err := c.openCompany(ctx)
	if err != nil {
		return err
	}
	project, err := read[client.Project](s.CreateProject(ctx, company, nil, body))
	if err != nil {
		return err
	}
	return made(stdout, c.outputFlag, project, project.value.ID)
}

// parseObject reads a flag that is a JSON object.
func parseObject(flag, text string, into *map[string]any) error {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return usageError{fmt.Errorf("%s is not a JSON object: %w", flag, err)}
	}
	return nil
}

type createSourceCommand struct {
	outputFlag
	companyFlags
	Name    string `arg:"" help:"Its name."`
	Project string `required:"" placeholder:"PROJECT" help:"Its project, by name or id."`
	Type    string `required:"" placeholder:"TYPE" help:"local_path, git_repo, remote_managed, non_git_path or empty."`
	Cwd     string `placeholder:"DIR" help:"Where the files are, on the machines of the project."`
	RepoURL string `name:"repo-url" placeholder:"URL" help:"The git repository."`
	RepoRef string `name:"repo-ref" placeholder:"REF" help:"The branch, tag or commit in it."`
	Primary bool   `help:"Make it the project's primary source."`
}

func (c createSourceCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	project, err := s.projectID(ctx, c.Project)
	if err != nil {
		return err
	}
	source, err := read[client.ProjectWorkspace](s.CreateProjectWorkspace(ctx, project, nil, client.ProjectWorkspaceCreate{
		Name: c.Name, SourceType: client.SourceType(c.Type), Cwd: filter[string](c.Cwd),
		RepoURL: filter[string](c.RepoURL), RepoRef: filter[string](c.RepoRef), IsPrimary: &c.Primary,
	}))
	if err != nil {
		return err
	}
	return made(stdout, c.outputFlag, source, source.value.ID)
}

type createEnvironmentCommand struct {
	outputFlag
	connectionFlags
	Name   string `arg:"" help:"Its name."`
	Driver string `default:"local" placeholder:"DRIVER" help:"How runs get there: local, ssh, sandbox or plugin; ${default} unless given."`
	Config string `placeholder:"JSON" help:"What the driver needs to know, a JSON object. Only operators can read it."`
}

func (c createEnvironmentCommand) Run(ctx context.Context, stdout io.Writer) error {
	body := client.EnvironmentCreate{Name: c.Name, Driver: client.EnvironmentDriver(c.Driver)}
	if err := parseObject("--config", c.Config, &body.Config); err != nil {
		return err
	}
	s, err := c.open()
	if err != nil {
		return err
	}
	environment, err := read[client.Environment](s.CreateEnvironment(ctx, nil, body))
	if err != nil {
		return err
	}
	return made(stdout, c.outputFlag, environment, environment.value.ID)
}
