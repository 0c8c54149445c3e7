package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/google/uuid"

	client "berth/clients/go"
	"berth/runner"
)

// tenureFlags say in whose name, and at which epoch, a command writes. berth run
// and berth reserve hand them out as environment variables; the marker of a
// run's directory has them too.
type tenureFlags struct {
	connectionFlags
	claimFlags
	Dir string `placeholder:"DIR" help:"The run's directory: its marker has the three."`
}

// claimFlags are a tenure in so many words.
type claimFlags struct {
	WorkspaceID string `arg:"" optional:"" name:"workspace" env:"BERTH_WORKSPACE_ID" help:"The workspace, by id."`
	RunID       string `name:"run" env:"BERTH_RUN_ID" placeholder:"ID" help:"The run that holds it. The token has to be this run's."`
	Epoch       *int64 `placeholder:"N" help:"The epoch that it was granted."`
}

// tenure is the right to write that a command claims. Whether it stands is for
// the service to say.
type tenure struct {
	workspace uuid.UUID
	claim     client.Claim
}

func (f tenureFlags) tenure() (tenure, error) {
	if f.Dir != "" {
		return tenureOf(f.Dir)
	}
	return f.claimFlags.tenure()
}

func (f claimFlags) tenure() (tenure, error) {
	if f.WorkspaceID == "" || f.RunID == "" || f.Epoch == nil {
		return tenure{}, usageError{errors.New("whose tenure? Give the workspace, --run and --epoch " +
			"(or BERTH_WORKSPACE_ID, BERTH_RUN_ID and BERTH_EPOCH), or --dir")}
	}
	workspace, errWorkspace := uuid.Parse(f.WorkspaceID)
	run, errRun := uuid.Parse(f.RunID)
	if err := errors.Join(errWorkspace, errRun); err != nil {
		return tenure{}, usageError{fmt.Errorf("the workspace and --run are ids: %w", err)}
	}
	return tenure{workspace, client.Claim{RunID: run, Epoch: *f.Epoch}}, nil
}

// tenureOf is the tenure that a directory was last used under.
func tenureOf(dir string) (tenure, error) {
	marker, err := runner.ReadMarker(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return tenure{}, fmt.Errorf("%s is not the directory of a run: it has no marker", dir)
	}
	return tenure{marker.WorkspaceID, client.Claim{RunID: marker.RunID, Epoch: marker.Epoch}}, err
}

// open opens the session and finds the tenure.
func (f tenureFlags) open() (*session, tenure, error) {
	held, err := f.tenure()
	if err != nil {
		return nil, held, err
	}
	s, err := f.connectionFlags.open()
	return s, held, err
}
