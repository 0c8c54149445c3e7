// Command berth is all of Berth: the service, and the commands that talk to it.
//
// `berth serve`, `berth migrate` and `berth openapi` are the service's side and
// wire its layers together. All other commands are clients: they speak HTTP by
// package clients/go, with the rights of the token they are given.
package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/alecthomas/kong"
)

// commands is the command line: one field a command, each with a Run method in
// the file of its name.
type commands struct {
	Version kong.VersionFlag `env:"-" help:"Print the version."`

	Run runCommand `cmd:"" group:"run" help:"Run a command on a task's workspace: reserve, restore, run, save, release."`

	Create   createCommand   `cmd:"" group:"things" help:"Make a company, agent, project, source, environment, issue or workspace."`
	List     listCommand     `cmd:"" group:"things" help:"List things."`
	Show     showCommand     `cmd:"" group:"things" help:"Show one thing with all that is known of it."`
	History  historyCommand  `cmd:"" group:"things" help:"Tell what happened to a workspace."`
	Explain  explainCommand  `cmd:"" group:"things" help:"Say what a reservation would get, and what would free the workspace."`
	Stop     stopCommand     `cmd:"" group:"things" help:"Ask a workspace's writer to stop. For operators."`
	Name     nameCommand     `cmd:"" group:"things" help:"Name a snapshot, which is then kept."`
	Rollback rollbackCommand `cmd:"" group:"things" help:"Make an older snapshot the saved state again."`
	Recover  recoverCommand  `cmd:"" group:"things" help:"Save the directory that a dead run left. For operators."`
	Takeover takeoverCommand `cmd:"" group:"things" help:"End a writer's tenure by hand. For operators."`
	Token    tokenCommand    `cmd:"" group:"things" help:"Make, list and revoke tokens. For operators."`

	Reserve reserveCommand `cmd:"" group:"tenure" help:"Reserve a task's workspace for a run."`
	Restore restoreCommand `cmd:"" group:"tenure" help:"Bring the workspace's saved files into a directory."`
	Save    saveCommand    `cmd:"" group:"tenure" help:"Make a directory's files the workspace's saved state."`
	Renew   renewCommand   `cmd:"" group:"tenure" help:"Say that the run is still there."`
	Release releaseCommand `cmd:"" group:"tenure" help:"Give the workspace back."`

	Serve   serveCommand   `cmd:"" group:"service" help:"Run the service."`
	Migrate migrateCommand `cmd:"" group:"service" help:"Bring a database's schema up to date, or look at it."`
	OpenAPI openapiCommand `cmd:"" group:"service" name:"openapi" help:"Print the API's OpenAPI document."`
}

func main() {
	os.Exit(execute(os.Args[1:]))
}

// execute runs one command line and returns the exit code.
func execute(args []string) int {
	exit := exitOK
	exited := false
	parser, err := kong.New(&commands{},
		kong.Name("berth"),
		kong.Description(description),
		kong.DefaultEnvars("BERTH"),
		kong.ExplicitGroups(groups),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 120}),
		kong.Vars{"version": version()},
		kong.Exit(func(code int) { exit, exited = code, true }),
		kong.BindTo(context.Background(), (*context.Context)(nil)),
		kong.BindTo(os.Stdout, (*io.Writer)(nil)),
	)
	if err != nil {
		panic(err) // the structure above is wrong, whatever the arguments
	}
	parsed, err := parser.Parse(args)
	if exited { // --help and --version have printed what they are for
		return exit
	}
	var misunderstood *kong.ParseError
	switch {
	case errors.As(err, &misunderstood):
		return report(os.Stderr, misunderstood.Context, usageError{err})
	case err != nil:
		return report(os.Stderr, nil, usageError{err})
	}
	return report(os.Stderr, parsed, parsed.Run())
}
