package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	client "berth/clients/go"
	"berth/snapshot"
)

// currentSnapshot reads what is saved of a workspace.
func currentSnapshot(ctx context.Context, from *service, w client.ExecutionWorkspace) (*client.Snapshot, error) {
	if w.Authority.SnapshotID == nil {
		return nil, fmt.Errorf("workspace %s has no saved state to restore", w.ID)
	}
	return brief(ctx, from, "read the saved state", func(ctx context.Context) (*client.Snapshot, error) {
		reply, err := from.api.GetSnapshotWithResponse(ctx, w.ID, *w.Authority.SnapshotID)
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	})
}

// expected is what a directory of the workspace should have. What a workspace
// begins with, before any run has saved, does not count as saved.
func expected(w client.ExecutionWorkspace, current client.Snapshot) Expected {
	_, empty := snapshot.Empty()
	first := current.RunID == nil && current.Sha256 != nil && *current.Sha256 == empty.SHA256
	return Expected{WorkspaceID: w.ID, SnapshotID: &current.ID, Saved: !first}
}

// restore brings the files of the current snapshot into the directory, and notes
// there whose they are. On an error the directory is as it was, or beside itself
// under the name that was told.
func (s *session) restore(ctx context.Context) error {
	current, err := currentSnapshot(ctx, s.own, s.workspace)
	if err != nil {
		return err
	}
	s.parent = *current
	plan, err := s.dir.Check(ctx, expected(s.workspace, *current), s.Mode)
	if err != nil {
		return err
	}
	switch plan.Action {
	case ActionRestore, ActionReplace:
		if err := s.fetch(ctx, plan); err != nil {
			return fmt.Errorf("restore snapshot %s: %w", current.ID, err)
		}
	case ActionKeep:
		s.note("%s has the files of snapshot %s already", s.dir.Path(), current.ID)
	case ActionAdopt:
		s.note("the files in %s become the first content of the workspace", s.dir.Path())
		return nil // nothing has them saved: the marker comes with the command
	default:
		return fmt.Errorf("restore: no such plan as %d", plan.Action)
	}
	fingerprint, err := Fingerprint(ctx, s.dir.Path())
	if err != nil {
		return err
	}
	return WriteMarker(s.dir.Path(), s.marker(current.ID, false, fingerprint))
}

// fetch downloads the archive and unpacks it.
func (s *session) fetch(ctx context.Context, plan Plan) error {
	want, err := digestOf(s.parent)
	if err != nil {
		return err
	}
	prepared := false
	_, err = persistently(ctx, s.own, "download the files", func(ctx context.Context) (*snapshot.Summary, error) {
		archive, err := s.download(ctx, want)
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.Remove(archive) }()
		if !prepared {
			if err := s.prepare(plan); err != nil {
				return nil, err
			}
			prepared = true
		}
		summary, err := snapshot.Restore(ctx, archive, s.dir.Path(), want, snapshot.Limits{})
		var damaged *snapshot.MismatchError
		if err != nil && !errors.As(err, &damaged) { // by the network: again
			return nil, final(err)
		}
		return &summary, err
	})
	if err != nil {
		return err
	}
	return s.dir.Relock()
}

// prepare makes room, and says where what was there has gone.
func (s *session) prepare(plan Plan) error {
	aside, err := s.dir.Prepare(plan)
	if aside != "" {
		reason := ""
		if plan.Changed {
			reason = ", since they were changed without a run after they had been saved"
		}
		s.note("the files that were in %s are now in %s%s", s.dir.Path(), aside, reason)
	}
	return final(err)
}

// digestOf is what the archive of a snapshot must have.
func digestOf(of client.Snapshot) (snapshot.Digest, error) {
	if of.State != client.SnapshotStateCommitted || of.Size == nil || of.Sha256 == nil {
		return snapshot.Digest{}, fmt.Errorf("its content is not here: it is %s; an operator can upload the content of one that was imported", plain(string(of.State)))
	}
	return snapshot.Digest{Size: *of.Size, SHA256: *of.Sha256}, nil
}

// download brings the archive into a file beside the directory, on whose file
// system there must be room for the files anyway.
func (s *session) download(ctx context.Context, want snapshot.Digest) (path string, err error) {
	ctx, watch := s.transfer(ctx, "restoring", want.Size)
	defer watch.stop()
	response, err := s.own.api.DownloadSnapshotContent(ctx, s.workspace.ID, s.parent.ID)
	if err != nil {
		return "", watch.blame(err)
	}
	if response.StatusCode != 200 {
		return "", refusalFrom(response)
	}
	defer response.Body.Close()
	file, err := os.CreateTemp(filepath.Dir(s.dir.Path()), snapshot.TemporaryPrefix+"download-")
	if err != nil {
		return "", final(err)
	}
	size, err := io.Copy(file, watch.reader(response.Body))
	err = errors.Join(watch.blame(err), file.Close())
	if err == nil && size != want.Size {
		err = fmt.Errorf("the archive came with %d bytes instead of %d", size, want.Size)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return file.Name(), nil
}
