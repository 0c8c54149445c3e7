package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"berth/db"
)

type migrateCommand struct {
	Up     migrateUpCommand     `cmd:"" help:"Bring the schema to this program's version."`
	Status migrateStatusCommand `cmd:"" help:"Say which version the schema has. Exit code 1 when it is not this program's."`
}

type migrateUpCommand struct {
	MigrateURL string `placeholder:"URL" help:"The database's URL for the role that owns the schema, straight to the server. Without it: the private Postgres of the data directory."`
	dataDirFlag
}

// Run brings the schema to this program's version.
func (c migrateUpCommand) Run(ctx context.Context, stdout io.Writer) error {
	return withOwner(ctx, c.MigrateURL, c.dataDirFlag, func(url string) error {
		if err := db.Migrate(ctx, url); err != nil {
			return err
		}
		status, err := db.MigrationStatus(ctx, url)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "The schema has version %d.\n", status.Current)
		return nil
	})
}

type migrateStatusCommand struct {
	DatabaseURL string `placeholder:"URL" help:"The database's URL, for any role that may read the schema's version."`
	MigrateURL  string `placeholder:"URL" help:"The same for the schema's owner. Without either: the private Postgres of the data directory."`
	dataDirFlag
}

// errSchemaDiffers is what scripts that ask for the status branch on.
var errSchemaDiffers = errors.New("the schema is not the one that this program works on")

// Run compares the schema with the one that this program works on.
func (c migrateStatusCommand) Run(ctx context.Context, stdout io.Writer) error {
	url := c.DatabaseURL
	if url == "" {
		url = c.MigrateURL
	}
	return withOwner(ctx, url, c.dataDirFlag, func(url string) error {
		status, err := db.MigrationStatus(ctx, url)
		if err != nil {
			return err
		}
		state := "up to date"
		switch {
		case status.Dirty:
			state = "interrupted: run berth migrate up"
		case status.Current < status.Newest:
			state = "behind: run berth migrate up"
		case status.Current > status.Newest:
			state = "ahead: run a newer version of Berth"
		case status.JobsCurrent < status.JobsNewest:
			state = "behind in the tables of background jobs: run berth migrate up"
		case status.JobsCurrent > status.JobsNewest:
			state = "ahead in the tables of background jobs: run a newer version of Berth"
		}
		fmt.Fprintf(stdout, "schema version %d, this program's %d: %s\n", status.Current, status.Newest, state)
		if !status.Fits() {
			return errSchemaDiffers
		}
		return nil
	})
}

// withOwner calls use with the URL that was given, or else with the owner's URL
// of the private server in the data directory, which it starts for the occasion.
func withOwner(ctx context.Context, url string, dir dataDirFlag, use func(url string) error) error {
	if url != "" {
		return use(url)
	}
	private, err := startPrivate(ctx, dir, quietLog())
	if err != nil {
		return err
	}
	return errors.Join(use(private.ownerURL()), private.server.Stop())
}
