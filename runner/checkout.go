package runner

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	client "berth/clients/go"
)

// Checkout brings the files of any saved state into a directory that is empty or not there yet, for who may read the
// workspace. The directory is then nobody's: it has no marker, and no run goes on in it.
func Checkout(ctx context.Context, o Options, workspace, snapshot uuid.UUID) (*client.Snapshot, error) {
	s := &session{Options: o.withDefaults()}
	var err error
	if s.own, err = connect(s.Options, s.Token); err != nil {
		return nil, err
	}
	s.workspace.ID = workspace
	found, err := brief(ctx, s.own, "read the snapshot", func(ctx context.Context) (*client.Snapshot, error) {
		reply, err := s.own.api.GetSnapshotWithResponse(ctx, workspace, snapshot)
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	})
	if err != nil {
		return nil, err
	}
	s.parent = *found
	if s.dir, err = LockDir(s.Dir); err != nil {
		return nil, err
	}
	defer s.dir.Close()
	if empty, err := s.dir.empty(); err != nil {
		return nil, err
	} else if !empty {
		return nil, &DirError{Dir: s.dir.Path(), Reason: "it has files", WayOut: "name a directory that is empty or not there yet"}
	}
	if err := s.fetch(ctx, Plan{Action: ActionRestore}); err != nil {
		return nil, fmt.Errorf("restore snapshot %s: %w", found.ID, err)
	}
	return found, nil
}
