package runner

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// interruptible returns a context that ends with ctx, or with an *Interruption at
// the first signal that asks for the end. stop stops watching; signals that come
// after it wait for who reads them next.
func (s *Signals) interruptible(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stopWatching := s.watch(func(sig syscall.Signal) { cancel(&Interruption{Signal: sig}) })
	return ctx, func() {
		stopWatching()
		cancel(context.Canceled)
	}
}

// insistent is interruptible for the last steps, which one Ctrl-C must not cut off: the
// first signal is answered by warn, and the second one ends the context. Nor does
// it end when ctx does.
func (s *Signals) insistent(ctx context.Context, warn func(syscall.Signal)) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	warned := false
	stopWatching := s.watch(func(sig syscall.Signal) {
		if !warned {
			warned = true
			warn(sig)
			return
		}
		cancel(&Interruption{Signal: sig})
	})
	return ctx, func() {
		stopWatching()
		cancel(context.Canceled)
	}
}

// watch calls on for each signal that asks for the end, one at a time, until stop
// has returned. A nil s catches none.
func (s *Signals) watch(on func(syscall.Signal)) (stop func()) {
	if s == nil {
		return func() {}
	}
	quit, finished := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(finished)
		for {
			select {
			case sig := <-s.received:
				if asksForTheEnd(sig) {
					on(sig.(syscall.Signal))
				}
			case <-quit:
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(quit)
		<-finished
	})
}

// lingering returns a context that lives on for a while after ctx has ended. It
// is for calls that make something: given up in the middle, nobody would know
// whether it is there.
func lingering(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(context.Cause(ctx))
		case <-longer.Done():
		}
	})
	return longer, func() {
		stop()
		cancel(context.Canceled)
	}
}

// because names why ctx ended when that is what made a step fail: the steps that
// work on files know only that it did.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}

// survivePipes keeps a closed standard error (`2>&1 | head`) from ending this
// process in the middle of a run: a write to it fails instead. The command's own
// SIGPIPE is not touched.
func survivePipes() (stop func()) {
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	return func() { signal.Stop(pipes) }
}
