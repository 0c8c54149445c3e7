package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	client "berth/clients/go"
	"berth/snapshot"
)

// packTries is how often a tree that does not hold still is read anew.
const packTries = 3

// save makes the directory's files the saved state of the workspace. It returns
// without an error only when the service has said that they are.
//
// The steps repeat by themselves what has no answer, for as long as the patience
// lasts: the announcement and the upload leave at worst a snapshot that nobody
// commits, and the commit answers the same again.
func (s *session) save(ctx context.Context) (*client.Snapshot, error) {
	fingerprint, err := Fingerprint(ctx, s.dir.Path())
	if err != nil {
		return nil, err
	}
	archive, summary, err := s.pack(ctx)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	s.warnOfSkipped(summary)

	saved, err := s.saveArchive(ctx, archive, summary)
	if refusedWith(err, codeSnapshotSuperseded) && !s.orphaned {
		// The command saved by itself, with the token that it has. What it left in
		// the directory is newer.
		if err := s.followNewerSave(ctx); err != nil {
			return nil, err
		}
		saved, err = s.saveArchive(ctx, archive, summary)
	}
	if err != nil {
		return nil, err
	}
	s.result.Saved = saved
	if err := WriteMarker(s.dir.Path(), s.marker(saved.ID, false, fingerprint)); err != nil {
		s.note("the work is saved as snapshot %s, but its directory is not marked so, and the next run will not use it: %v", saved.ID, err)
	}
	return saved, nil
}

// pack writes the archive to a file that has no name any more: whatever happens
// to this process, nothing of it stays behind.
func (s *session) pack(ctx context.Context) (*os.File, snapshot.Summary, error) {
	file, err := os.CreateTemp(filepath.Dir(s.dir.Path()), snapshot.TemporaryPrefix+"save-")
	if err != nil { // the directory above may well be read-only
		if file, err = os.CreateTemp("", snapshot.TemporaryPrefix+"save-"); err != nil {
			return nil, snapshot.Summary{}, fmt.Errorf("make a file for the archive: %w", err)
		}
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, snapshot.Summary{}, errors.Join(fmt.Errorf("unlink the file for the archive: %w", err), file.Close())
	}
	for try := 1; ; try++ {
		summary, err := snapshot.Pack(ctx, s.dir.Path(), file, snapshot.PackOptions{})
		if err == nil {
			return file, summary, nil
		}
		if !errors.Is(err, snapshot.ErrChanged) || try == packTries {
			return nil, snapshot.Summary{}, errors.Join(err, file.Close())
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return nil, snapshot.Summary{}, errors.Join(err, file.Close())
		}
		if err := file.Truncate(0); err != nil {
			return nil, snapshot.Summary{}, errors.Join(err, file.Close())
		}
	}
}

// maxSkippedNamed bounds how many skipped paths are named one by one.
const maxSkippedNamed = 20

func (s *session) warnOfSkipped(summary snapshot.Summary) {
	for i, skipped := range summary.Skipped {
		if i == maxSkippedNamed {
			s.note("not saved, besides: %d more", len(summary.Skipped)-i)
			return
		}
		s.note("not saved: %q, a %s: %s", skipped.Path, skipped.Kind, skipped.Reason)
	}
}

// saveArchive announces, uploads and commits one archive.
func (s *session) saveArchive(ctx context.Context, archive *os.File, summary snapshot.Summary) (*client.Snapshot, error) {
	announced, err := brief(ctx, s.own, "announce the save", func(ctx context.Context) (*client.Snapshot, error) {
		reply, err := s.own.api.CreateSnapshotWithResponse(ctx, s.workspace.ID, client.SnapshotCreate{
			RunID: s.run.ID, Epoch: s.workspace.Authority.Epoch, ParentSnapshotID: s.parent.ID,
			Sha256: summary.SHA256, Size: summary.Size, FileCount: summary.FileCount,
		})
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON201, reply.HTTPResponse, reply.Body)
	})
	if err != nil {
		return nil, err
	}
	_, err = persistently(ctx, s.own, "upload the files", func(ctx context.Context) (*client.Snapshot, error) {
		return s.upload(ctx, announced.ID, archive, summary.Size)
	})
	if err != nil {
		return nil, err
	}
	return s.commit(ctx, announced.ID, summary)
}

// upload sends the archive once. The service refuses before it takes any content
// when it does not want it.
func (s *session) upload(ctx context.Context, id uuid.UUID, archive *os.File, size int64) (*client.Snapshot, error) {
	ctx, watch := s.transfer(ctx, "saving", size)
	defer watch.stop()
	content := watch.reader(io.NewSectionReader(archive, 0, size))
	reply, err := s.own.api.UploadSnapshotContentWithBodyWithResponse(ctx, s.workspace.ID, id, "application/octet-stream", content,
		func(_ context.Context, request *http.Request) error {
			request.ContentLength = size
			request.Header.Set("Expect", "100-continue")
			return nil
		})
	if err != nil {
		return nil, watch.blame(err)
	}
	stored, err := answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	if refusedWith(err, codeContentMismatch, codeMalformedBody) {
		// Not what was sent: something on the way cut it off, or changed it.
		return nil, errors.New(err.Error())
	}
	return stored, err
}

// commit makes the snapshot the saved state, and believes it only of an answer
// that says so of these very bytes.
func (s *session) commit(ctx context.Context, id uuid.UUID, summary snapshot.Summary) (*client.Snapshot, error) {
	saved, err := brief(ctx, s.own, "commit the save", func(ctx context.Context) (*client.Snapshot, error) {
		claim := s.claim()
		reply, err := s.own.api.CommitSnapshotWithResponse(ctx, s.workspace.ID, id, client.SnapshotCommit{RunID: claim.RunID, Epoch: claim.Epoch})
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	})
	if err != nil {
		return nil, err
	}
	if digest, err := digestOf(*saved); err != nil || saved.ID != id || digest != summary.Digest() || saved.FileCount == nil {
		return nil, fmt.Errorf("commit the save: the service answered with snapshot %s, which is %s, and not with what was sent", saved.ID, plain(string(saved.State)))
	}
	return saved, nil
}

// followNewerSave lets the next announcement follow what is saved by now. The
// call that tells is one that only the writer may make.
func (s *session) followNewerSave(ctx context.Context) error {
	current, err := s.markDirty(ctx)
	if err != nil {
		return err
	}
	if current.Authority.SnapshotID == nil {
		return fmt.Errorf("workspace %s has no saved state to follow", current.ID)
	}
	s.parent.ID = *current.Authority.SnapshotID
	return nil
}
