package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/google/uuid"

	client "berth/clients/go"
	"berth/provider"
)

// Recover saves the directory that a dead run left, in that run's name: after its wrapper was killed, or its host was
// started anew. Options.Token is an operator's; its issue, agent and command do not count.
type Recover struct {
	Options
	// Reason is kept in the history.
	Reason string
	// AcceptRisk goes on without proof that every machine of the run stopped. The history keeps that, too.
	AcceptRisk bool

	host *provider.Process // answers for process trees; this host unless a test says otherwise
}

// Recovered is what became of a dead run's directory.
type Recovered struct {
	WorkspaceID uuid.UUID
	RunID       uuid.UUID
	Epoch       int64
	// Saved is the snapshot that has the work now, nil when nothing was unsaved.
	Saved *client.Snapshot
}

// errNothingProven means that a run has no machine that could be proven stopped.
var errNothingProven = errors.New("no machine of the run is registered, so nothing proves that it stopped: " +
	"add --accept-risk if you know that nothing of it is left")

// Do proves that the run's processes are gone from this host, ends the run, and saves its directory. Each step may be
// repeated, so a recovery that was cut off is made again.
//
// The error is a *DirError when the directory is no dead run's, an *UnsavedError when its work is still nowhere else.
func (r Recover) Do(ctx context.Context) (Recovered, error) {
	defer survivePipes()()
	s := &session{Options: r.withDefaults(), orphaned: true}
	marker, err := s.takeOrphan()
	if err != nil {
		return Recovered{}, err
	}
	defer s.dir.Close()
	done := Recovered{WorkspaceID: marker.WorkspaceID, RunID: marker.RunID, Epoch: marker.Epoch}
	if s.caller, err = connect(s.Options, s.Token); err != nil {
		return done, err
	}
	err = r.recover(ctx, s, marker)
	if err == nil && marker.Unsaved {
		done.Saved, err = s.save(ctx)
	}
	if err != nil && marker.Unsaved {
		err = &UnsavedError{Dir: s.dir.Path(), Err: err}
	}
	return done, err
}

// takeOrphan locks the directory and reads whose it was.
func (s *session) takeOrphan() (Marker, error) {
	marker, err := ReadMarker(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return marker, &DirError{Dir: s.Dir, Reason: "it has no files of a workspace", WayOut: "name the directory that the run had"}
	}
	if err != nil {
		return marker, err
	}
	if s.dir, err = LockDir(s.Dir); err != nil {
		return marker, err
	}
	// Whoever had the lock may have changed it until now.
	if marker, err = ReadMarker(s.dir.Path()); err != nil {
		return marker, errors.Join(err, s.dir.Close())
	}
	return marker, nil
}

// recover opens the dead run's tenure for a save in its name.
func (r Recover) recover(ctx context.Context, s *session, marker Marker) error {
	run, err := s.orphan(ctx, marker)
	if err != nil {
		return err
	}
	machines, err := r.prove(ctx, s)
	if err != nil {
		return err
	}
	holds := s.workspace.Authority.WriterRunID != nil && *s.workspace.Authority.WriterRunID == marker.RunID
	if holds && machines == 0 && !r.AcceptRisk {
		return errNothingProven
	}
	token, err := r.openRecovery(ctx, s)
	if refusedWith(err, lostCodes...) {
		return &LostError{Refusal: refusalIn(err)}
	}
	if refusedWith(err, codeRecoveryNeedsStop) && run.FinishedAt == nil && (r.AcceptRisk || !missesProof(err)) {
		if err := s.endOrphan(ctx); err != nil {
			return err
		}
		token, err = r.openRecovery(ctx, s)
	}
	if err != nil {
		return err
	}
	s.own, err = connect(s.Options, *token.Token)
	return err
}

// orphan reads what the service knows of the directory's run, and makes sure that it is the writer.
func (s *session) orphan(ctx context.Context, marker Marker) (client.HeartbeatRun, error) {
	run, err := brief(ctx, s.caller, "read the run", func(ctx context.Context) (*client.HeartbeatRun, error) {
		reply, err := s.caller.api.GetHeartbeatRunWithResponse(ctx, marker.RunID)
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	})
	if err != nil {
		return client.HeartbeatRun{}, err
	}
	workspace, err := brief(ctx, s.caller, "read the workspace", func(ctx context.Context) (*client.ExecutionWorkspace, error) {
		reply, err := s.caller.api.GetExecutionWorkspaceWithResponse(ctx, marker.WorkspaceID)
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	})
	if err != nil {
		return *run, err
	}
	s.run, s.workspace = *run, *workspace
	authority := workspace.Authority
	s.workspace.Authority.Epoch = marker.Epoch // what is claimed, whatever became of it since
	if authority.WriterRunID == nil || *authority.WriterRunID != marker.RunID || authority.Epoch != marker.Epoch {
		return *run, nil // which the service refuses, and says why
	}
	return *run, s.followOrphan(ctx, marker)
}

// followOrphan finds what the save follows: what the directory began as, or what its run saved since by itself.
func (s *session) followOrphan(ctx context.Context, marker Marker) error {
	current := s.workspace.Authority.SnapshotID
	if current == nil {
		return errors.New("the workspace has no saved state to follow")
	}
	s.parent.ID = *current
	if sameSnapshot(current, marker.SnapshotID) {
		return nil
	}
	snapshot, err := currentSnapshot(ctx, s.caller, s.workspace)
	switch {
	case err != nil:
		return err
	case snapshot.RunID == nil || *snapshot.RunID != marker.RunID || snapshot.Epoch != marker.Epoch:
		return fmt.Errorf("the workspace was saved as snapshot %s since, which is not this run's: what is in the directory is older or another's", snapshot.ID)
	}
	return nil
}

// endOrphan marks the run as ended, which frees nothing.
func (s *session) endOrphan(ctx context.Context) error {
	_, err := brief(ctx, s.caller, "end the run", func(ctx context.Context) (*client.HeartbeatRun, error) {
		reply, err := s.caller.api.UpdateHeartbeatRunWithResponse(ctx, s.run.ID, client.RunUpdate{Status: client.RunStatusInterrupted})
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	})
	if refusedWith(err, codeRunFinal) {
		return nil // as something else already
	}
	return err
}

func (r Recover) openRecovery(ctx context.Context, s *session) (*client.RecoveryToken, error) {
	body := client.RecoveryTokenCreate{Epoch: s.workspace.Authority.Epoch, AcceptRisk: &r.AcceptRisk}
	if r.Reason != "" {
		body.Reason = &r.Reason
	}
	return brief(ctx, s.caller, "open the recovery", func(ctx context.Context) (*client.RecoveryToken, error) {
		reply, err := s.caller.api.CreateRecoveryTokenWithResponse(ctx, s.workspace.ID, &client.CreateRecoveryTokenParams{}, body)
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON201, reply.HTTPResponse, reply.Body)
	})
}

func refusalIn(err error) *Refusal {
	var refusal *Refusal
	errors.As(err, &refusal)
	return refusal
}

// missesProof tells whether a refusal names a machine without proof.
func missesProof(err error) bool {
	var refusal *Refusal
	var d struct {
		MissingProof []any `json:"missingProof"`
	}
	return !errors.As(err, &refusal) || !detailsInto(refusal.Problem.Details, &d) || len(d.MissingProof) > 0
}
