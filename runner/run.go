package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	client "berth/clients/go"
)

// Run runs a command on a task's workspace: it makes a run, reserves, restores,
// runs the command, saves what it did and gives the workspace back. The package
// comment has the steps, and what holds when one of them fails.
//
// The error is nil when the command ran and its work is saved, whatever the
// command's own exit code. Otherwise it is, or wraps, one of
//
//	*DirError, *StartError   the directory cannot be used, the command not be run
//	*RefusedError            the workspace was not granted
//	*Interruption            a signal came before the command had begun
//	*UnsavedError            the command's work is in the directory and nowhere else
//
// or says what else went wrong before the command had begun. Result.ExitCode is
// what to exit with in every case.
func Run(ctx context.Context, o Options) (Result, error) {
	defer survivePipes()()
	s := &session{Options: o.withDefaults()}
	err := s.do(ctx)
	if err != nil {
		s.result.ExitCode = exitCodeOf(err)
	}
	return s.result, err
}

// do is Run without the exit code of errors.
func (s *session) do(ctx context.Context) (err error) {
	if _, err := s.Command.find(); err != nil {
		return err
	}
	if s.caller, err = connect(s.Options, s.Token); err != nil {
		return err
	}
	if s.dir, err = LockDir(s.Dir); err != nil {
		return err
	}
	defer s.dir.Close()
	defer s.forgetToken()
	defer s.stopRenewing()

	begin, stop := s.Signals.interruptible(ctx)
	err = because(begin, s.getReady(begin))
	stop()
	if !s.dirty {
		return s.giveBack(ctx, err)
	}
	var exit Exit
	if err == nil {
		exit, err = s.runCommand(ctx)
	}
	return s.close(ctx, exit, err)
}

// getReady does everything that comes before the command.
func (s *session) getReady(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	s.tenure = newTenure(s.own, s.workspace.ID, s.claim(), s.takeToken)
	s.stopTenure = s.tenure.keep()
	ctx, cancel := s.tenure.untilAsked(ctx)
	defer cancel()
	return because(ctx, s.prepareCommand(ctx))
}

// prepareCommand makes the directory what the command expects, and lets the
// service know.
func (s *session) prepareCommand(ctx context.Context) error {
	if err := s.restore(ctx); err != nil {
		return err
	}
	if err := s.reportLocation(ctx); err != nil {
		return err
	}
	if err := s.checkProgram(); err != nil {
		return err
	}
	if err := s.registerMachine(ctx); err != nil {
		return err
	}
	return s.announceWork(ctx)
}

// checkProgram looks for a command that is named by its path, which may have come
// with the files. A name without a slash was looked up before anything else.
func (s *session) checkProgram() error {
	if !strings.Contains(s.Command.Path, "/") {
		return nil
	}
	spec, err := s.command().resolve()
	if err != nil {
		return err
	}
	path := spec.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(spec.Dir, path)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return spec.startError(syscall.ENOENT)
	}
	return nil // whatever else is wrong with it, the kernel says when it starts
}

func (s *session) reportLocation(ctx context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	_, err = brief(ctx, s.own, "say where the files are", func(ctx context.Context) (*client.ExecutionWorkspace, error) {
		reply, err := s.own.api.SetLocationWithResponse(ctx, s.workspace.ID, client.LocationReport{
			RunID: s.run.ID, Epoch: s.workspace.Authority.Epoch,
			Location: map[string]any{"host": host, "path": s.dir.Path()},
		})
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	})
	return err
}

// announceWork says to the service, and then in the directory, that the files may
// differ from what is saved: before they do.
func (s *session) announceWork(ctx context.Context) error {
	longer, cancel := lingering(ctx, afterInterrupt)
	defer cancel()
	s.dirty = true // also when the answer is lost
	if _, err := s.markDirty(longer); err != nil {
		var refusal *Refusal
		if errors.As(err, &refusal) && !refusal.passing() {
			s.dirty = false
		}
		return err
	}
	if err := WriteMarker(s.dir.Path(), s.marker(s.parent.ID, true, "")); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (s *session) markDirty(ctx context.Context) (*client.ExecutionWorkspace, error) {
	return brief(ctx, s.own, "say that the files will change", func(ctx context.Context) (*client.ExecutionWorkspace, error) {
		reply, err := s.own.api.MarkDirtyWithResponse(ctx, s.workspace.ID, s.claim())
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
	})
}

// command is what the tree starts from.
func (s *session) command() Command {
	c := s.Command
	c.Dir = s.dir.Path()
	if c.Env == nil {
		c.Env = os.Environ()
	}
	c.Env = Environment{
		URL: s.URL, RunID: s.run.ID, IssueID: s.IssueID, WorkspaceID: s.workspace.ID, Epoch: s.workspace.Authority.Epoch,
		Token: *s.own.token.Load(), TokenFile: s.tokens.path(),
	}.Apply(c.Env)
	return c
}

// runCommand runs the command until no process of it is left.
func (s *session) runCommand(ctx context.Context) (Exit, error) {
	tree, err := StartTree(ctx, s.command())
	if err != nil {
		return Exit{}, err
	}
	if s.Signals != nil {
		stop := tree.RelaySignals(s.Signals)
		defer stop()
	}
	s.attend(tree)
	return tree.Wait()
}

// leastGrace is what a command gets to end in whose deadline has passed already.
// Nobody gets in while it lasts: a deadline is a wish, and no proof.
const leastGrace = 2 * time.Second

// attend ends the tree when the tenure is over, or when somebody asks for it.
func (s *session) attend(tree *Tree) {
	lost := s.tenure.lost
	endAsAsked := func() {
		if request := s.tenure.stopRequested(); request != nil {
			s.note("the run is asked to end within %s, because %q", max(request.grace(), leastGrace).Round(time.Second), request.Reason)
			tree.End("asked to end: "+request.Reason, max(request.grace(), leastGrace))
		}
	}
	endAsAsked() // what came while the command was started
	for {
		select {
		case <-lost:
			tree.End(s.tenure.ended().Error(), s.pace.lost)
			lost = nil
		case <-s.tenure.asked:
			endAsAsked()
		case <-tree.Done():
			return
		}
	}
}

// takeToken keeps the token file up to date, for the command.
func (s *session) takeToken(token string) {
	if err := s.tokens.write(token); err != nil {
		s.note("the command does not get the run's new token: %v", err)
	}
}

func (s *session) stopRenewing() {
	if s.stopTenure != nil {
		s.stopTenure()
	}
}

func (s *session) forgetToken() {
	if !s.keepToken && s.tokens.dir != "" {
		s.tokens.remove()
	}
}

// giveBack ends a run whose command has not begun, and so cannot have left
// anything to save. The error is the one that it was ended for.
func (s *session) giveBack(ctx context.Context, cause error) error {
	if s.own == nil {
		return cause
	}
	closing, stop := s.closing(ctx, "ending the run")
	defer stop()
	s.reportMachineGone(closing)
	if err := s.finish(closing, client.RunStatusCancelled); err != nil {
		return fmt.Errorf("%w\n  and run %s is not ended: %w", cause, s.run.ID, err)
	}
	return cause
}
