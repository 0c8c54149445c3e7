package main

import (
	"context"
	"os"
	"time"

	"github.com/google/uuid"

	client "berth/clients/go"
	"berth/runner"
)

type runCommand struct {
	companyFlags
	Issue    string        `required:"" placeholder:"ISSUE" help:"The task, by identifier or id. Its workspace is reserved; its first run makes one."`
	Agent    string        `placeholder:"AGENT" help:"Whose run it is: the task's assignee or the company's only agent unless given."`
	Dir      string        `placeholder:"DIR" help:"Where the files go, and where the command runs; a directory here with the task's identifier unless given."`
	Adopt    bool          `xor:"files" help:"Take the files that are there as the first content of a workspace that has none saved."`
	Replace  bool          `xor:"files" help:"Move the directory that is there aside. Nothing is deleted."`
	Wait     time.Duration `placeholder:"DURATION" help:"How long to wait in line when another run has the workspace, as in 10m; not at all unless given."`
	Grace    time.Duration `default:"10s" placeholder:"DURATION" help:"What is left of the command's processes when it ends gets so long between SIGTERM and SIGKILL; ${default} unless given."`
	Patience time.Duration `default:"2m" placeholder:"DURATION" help:"How long to go on trying when the service does not answer; ${default} unless given."`
	Command  []string      `arg:"" name:"command" help:"The command with its arguments, after --."`
}

// Help is shown by berth run --help.
func (runCommand) Help() string {
	return "Makes a run, reserves, restores the files, runs the command, saves whatever its exit code, and gives the workspace back. " +
		"The command sees BERTH_URL, BERTH_RUN_ID, BERTH_ISSUE_ID, BERTH_WORKSPACE_ID, BERTH_EPOCH, BERTH_TOKEN (the run's own) and " +
		"BERTH_TOKEN_FILE, and no other variable of Berth's. " +
		"The exit code is the command's when its work was saved; 73 when the reservation was refused, and nothing ran; 75 when the " +
		"work could not be saved, and is in the directory; 130, 143 and so on after signals. It is never 0 when the command did not " +
		"run or its work is not saved."
}

// Run is a thin way into package runner.
func (c runCommand) Run(ctx context.Context) error {
	signals := runner.CatchSignals()
	defer signals.Stop()
	options, err := c.options(ctx)
	if err != nil {
		return err
	}
	options.Signals = signals
	result, err := runner.Run(ctx, options)
	if result.ExitCode == exitOK {
		return err
	}
	return &exitError{err, result.ExitCode}
}

func (c runCommand) options(ctx context.Context) (runner.Options, error) {
	s, err := c.open()
	if err != nil {
		return runner.Options{}, err
	}
	address, token, err := c.endpoint()
	if err != nil {
		return runner.Options{}, err
	}
	id, err := s.issueID(ctx, c.Issue)
	if err != nil {
		return runner.Options{}, err
	}
	task, err := read[client.Issue](s.GetIssue(ctx, id))
	if err != nil {
		return runner.Options{}, err
	}
	s.company = task.value.CompanyID.String()
	var agent uuid.UUID
	if c.Agent != "" {
		if agent, err = s.agentID(ctx, c.Agent); err != nil {
			return runner.Options{}, err
		}
	}
	dir := c.Dir
	if dir == "" {
		dir = task.value.Identifier
	}
	return runner.Options{
		URL: address, Token: token, IssueID: id, AgentID: agent,
		Dir: dir, Mode: modeOf(c.Adopt, c.Replace),
		Command: runner.Command{
			Path: c.Command[0], Args: c.Command[1:],
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Grace: c.Grace,
		},
		Wait: c.Wait, Patience: c.Patience, Notices: os.Stderr,
	}, nil
}

// modeOf is what the two flags about files that are there already say.
func modeOf(adopt, replace bool) runner.Mode {
	switch {
	case adopt:
		return runner.ModeAdopt
	case replace:
		return runner.ModeReplace
	default:
		return runner.ModeRefuse
	}
}
