package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/google/uuid"

	client "berth/clients/go"
)

// ByHand is a tenure that a person or a script keeps, one command at a time,
// instead of Run. Options.Token is the run's own; its issue, agent and command do
// not count.
type ByHand struct {
	Options
	WorkspaceID uuid.UUID
	RunID       uuid.UUID
	Epoch       int64
}

// Restore brings the workspace's saved files into the directory and tells the
// service that they will change: what comes after it has to be saved, or given up.
func (h ByHand) Restore(ctx context.Context) (*client.Snapshot, error) {
	s, err := h.session(ctx)
	if err != nil {
		return nil, err
	}
	defer s.dir.Close()
	if err := s.restore(ctx); err != nil {
		return nil, err
	}
	if err := s.reportLocation(ctx); err != nil {
		return nil, err
	}
	if err := s.announceWork(ctx); err != nil {
		return nil, err
	}
	return &s.parent, nil
}

// Save makes the directory's files the saved state of the workspace. The
// directory is one that Restore, or Run, prepared for this tenure.
//
// With more, the caller goes on working in the directory, and the service hears
// so before Save returns: nobody else takes the saved state for all there is.
func (h ByHand) Save(ctx context.Context, more bool) (*client.Snapshot, error) {
	s, err := h.session(ctx)
	if err != nil {
		return nil, err
	}
	defer s.dir.Close()
	if err := s.followMarker(h); err != nil {
		return nil, err
	}
	saved, err := s.save(ctx)
	if err != nil || !more {
		return saved, err
	}
	s.parent = *saved
	return saved, s.announceWork(ctx)
}

// session takes the directory, and makes sure of the tenure by a renewal: a call
// that only the writer may make, and that changes nothing.
func (h ByHand) session(ctx context.Context) (*session, error) {
	s := &session{Options: h.withDefaults()}
	var err error
	if s.own, err = connect(s.Options, s.Token); err != nil {
		return nil, err
	}
	claim := client.Claim{RunID: h.RunID, Epoch: h.Epoch}
	_, err = brief(ctx, s.own, "make sure of the tenure", func(ctx context.Context) (*client.Renewal, error) {
		reply, err := s.own.api.RenewTenureWithResponse(ctx, h.WorkspaceID, claim)
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	})
	if err != nil {
		return nil, err
	}
	workspace, err := brief(ctx, s.own, "read the workspace", func(ctx context.Context) (*client.ExecutionWorkspace, error) {
		reply, err := s.own.api.GetExecutionWorkspaceWithResponse(ctx, h.WorkspaceID)
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	})
	if err != nil {
		return nil, err
	}
	s.run.ID, s.workspace = h.RunID, *workspace
	s.workspace.Authority.Epoch = h.Epoch // what is claimed, whatever became of it since
	s.dir, err = LockDir(s.Dir)
	return s, err
}

// followMarker makes sure that the directory has this tenure's files, and takes
// from its marker which saved state they began as.
func (s *session) followMarker(h ByHand) error {
	marker, err := ReadMarker(s.dir.Path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &DirError{Dir: s.dir.Path(), Reason: "it has no files of a workspace", WayOut: "begin with berth restore, which takes files that are there with --adopt"}
	case err != nil:
		return err
	case marker.WorkspaceID != h.WorkspaceID:
		return &DirError{Dir: s.dir.Path(), Reason: fmt.Sprintf("it has files of workspace %s", marker.WorkspaceID), WayOut: "name this workspace's directory"}
	case marker.RunID != h.RunID || marker.Epoch != h.Epoch:
		return &DirError{
			Dir: s.dir.Path(), Reason: fmt.Sprintf("it has files of run %s at epoch %d", marker.RunID, marker.Epoch),
			WayOut: "name the directory of this run, or begin with berth restore",
		}
	case marker.SnapshotID == nil:
		return &DirError{Dir: s.dir.Path(), Reason: "its marker names no saved state", WayOut: "begin with berth restore"}
	}
	s.parent.ID = *marker.SnapshotID
	return nil
}
