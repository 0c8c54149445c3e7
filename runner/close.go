package runner

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	client "berth/clients/go"
)

// lostCodes are the refusals of a writer's calls that say that it is none.
var lostCodes = []string{codeTenureEnded, "stale_epoch", "run_identity_mismatch"}

// closing is the context of the last steps: neither the end of ctx nor a first
// Ctrl-C cuts them off, or the workspace would stay reserved for nobody.
func (s *session) closing(ctx context.Context, doing string) (context.Context, func()) {
	return s.Signals.insistent(ctx, func(syscall.Signal) {
		s.note("%s; interrupt once more to leave everything as it is", doing)
	})
}

// close is the one way out once the command may have written: save, then give the
// workspace back. err is why the command did not run, or not to a proven end.
func (s *session) close(ctx context.Context, exit Exit, err error) error {
	var survivors *SurvivorsError
	if errors.Is(err, ErrUnproven) || errors.As(err, &survivors) {
		// Something may still write: what would be saved is not the end of it, and
		// the next writer would not be alone.
		return s.unsaved(err, exit.runStatus())
	}
	if exit.SupervisorLost {
		s.note("a supervisor of the command was killed, and the command ended for that")
	}
	closing, stop := s.closing(ctx, "saving")
	defer stop()
	during, cancel := s.tenure.untilLost(closing)
	defer cancel()
	if lost := s.tenure.ended(); lost != nil {
		return s.lostTenure(closing, lost)
	}
	saved, saveErr := s.save(during)
	if saveErr = because(during, saveErr); saveErr != nil {
		if lost := s.lossIn(saveErr); lost != nil {
			return s.lostTenure(closing, lost)
		}
		return s.unsaved(saveErr, statusOf(exit, err))
	}
	s.note("saved %d files (%s) as snapshot %s", *saved.FileCount, bytesText(*saved.Size), saved.ID)
	if err := s.finishSaved(closing, statusOf(exit, err)); err != nil {
		return err
	}
	s.result.ExitCode = exit.exitCode()
	return err
}

// statusOf is how the run ends.
func statusOf(exit Exit, err error) client.RunStatus {
	var interrupted *Interruption
	switch {
	case err == nil:
		return exit.runStatus()
	case errors.As(err, &interrupted):
		return client.RunStatusCancelled
	default:
		return client.RunStatusFailed
	}
}

// finishSaved ends a run whose work is saved. That the run cannot be ended is no
// failure of the command's; it is said aloud, since the workspace stays reserved.
func (s *session) finishSaved(ctx context.Context, status client.RunStatus) error {
	s.reportMachineGone(ctx)
	err := s.finish(ctx, status)
	switch {
	case err == nil:
		return nil
	case refusedWith(err, codeWorkspaceDirty):
		// Somebody with the run's token said that there is more to save.
		if noteErr := WriteMarker(s.dir.Path(), s.marker(s.result.Saved.ID, true, "")); noteErr != nil {
			err = errors.Join(err, noteErr)
		}
		return s.unsaved(err, status)
	case refusedWith(err, codeRunFinal):
		s.note("the work is saved, but somebody else ended the run meanwhile: workspace %s stays reserved until it is proven "+
			"that the run stopped, or an operator uses berth takeover (%v)", s.workspace.ID, err)
		return nil
	default:
		s.keepToken = true
		s.note("the work is saved, but the run is not ended and workspace %s stays reserved: %v\n"+
			"Next:\n%s --finish %s", s.workspace.ID, err, byHand(s.tokens.path(), "release", s.dir.Path()), status)
		return nil
	}
}

// finish ends the run in the service, which gives its workspace back in the same
// step.
func (s *session) finish(ctx context.Context, status client.RunStatus) error {
	s.stopRenewing() // a renewal after the end would be told that the tenure is over
	ended, err := brief(ctx, s.own, "end the run", func(ctx context.Context) (*client.HeartbeatRun, error) {
		reply, err := s.own.api.UpdateHeartbeatRunWithResponse(ctx, s.run.ID, client.RunUpdate{Status: status})
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	})
	if err != nil {
		return err
	}
	if ended.Status != status {
		return fmt.Errorf("end the run: the service says that it is %s", plain(string(ended.Status)))
	}
	s.result.Released = true
	return nil
}

// lossIn is the loss of the tenure that made a save fail, nil when something else
// did.
func (s *session) lossIn(err error) error {
	if lost := s.tenure.ended(); lost != nil {
		return lost
	}
	var refusal *Refusal
	if errors.As(err, &refusal) && refusedWith(err, lostCodes...) {
		return &LostError{Refusal: refusal}
	}
	return nil
}

// lostTenure is the end of a run that is not the writer any more: its files stay
// where they are, and are nobody's.
func (s *session) lostTenure(ctx context.Context, lost error) error {
	s.reportMachineGone(ctx)
	if refusedWith(lost, codeTenureEnded) {
		// The run itself may still count as running. It holds nothing, so ending
		// it gives nothing away, and that it fails does no harm.
		once, cancel := context.WithTimeout(ctx, s.pace.call)
		defer cancel()
		_ = s.finish(once, client.RunStatusInterrupted)
		s.result.Released = false
	}
	return &UnsavedError{Dir: s.dir.Path(), Err: lost}
}

// unsaved is the end of a run that still holds the workspace, for its work: it is
// not ended, and its token is kept for a save by hand.
func (s *session) unsaved(err error, status client.RunStatus) error {
	s.keepToken = true
	return &UnsavedError{Dir: s.dir.Path(), TokenFile: s.tokens.path(), Status: status, Err: err}
}
