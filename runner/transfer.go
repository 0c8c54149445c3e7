package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// errStalled ends a transfer in which nothing moves.
var errStalled = errors.New("the transfer stood still")

// finalError is an error that another try would not mend.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func final(err error) error {
	if err == nil {
		return nil
	}
	return finalError{err}
}

// transfer watches over one large transfer: it may take as long as it takes, but
// not stand still, and it shows its progress.
type transfer struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
	bar    *progress
}

// transfer begins a transfer of so many bytes. Its context ends when the transfer
// stands still.
func (s *session) transfer(ctx context.Context, doing string, size int64) (context.Context, *transfer) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := &transfer{ctx: ctx, cancel: cancel, stall: s.pace.stall, bar: newProgress(s.Notices, doing, size)}
	t.timer = time.AfterFunc(t.stall, func() { cancel(errStalled) })
	return ctx, t
}

func (t *transfer) stop() {
	t.timer.Stop()
	t.cancel(context.Canceled)
	t.bar.clear()
}

// farEnd is how many times longer the other side may be silent when it has all:
// it makes sure then that the content is on its disk.
const farEnd = 10

// blame names the standstill when that was why a call failed.
func (t *transfer) blame(err error) error {
	if err != nil && errors.Is(context.Cause(t.ctx), errStalled) {
		return errStalled
	}
	return err
}

// reader passes content through, and takes each read as a sign of life.
func (t *transfer) reader(content io.Reader) io.Reader { return &watched{t, content} }

type watched struct {
	transfer *transfer
	content  io.Reader
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.content.Read(p)
	switch {
	case err != nil:
		w.transfer.timer.Reset(farEnd * w.transfer.stall)
	case n > 0:
		w.transfer.timer.Reset(w.transfer.stall)
	}
	w.transfer.bar.add(n)
	return n, err
}

// progress is a line on a terminal that says how far something is. It is nil
// where there is no terminal, and invisible for what is done at once.
type progress struct {
	terminal *os.File
	doing    string
	size     int64

	mu      sync.Mutex // a request's body is read by a goroutine of the transport
	done    int64
	shown   time.Time
	visible bool
	cleared bool
}

// How soon a transfer is worth a line, and how often it changes.
const progressPause = 500 * time.Millisecond

func newProgress(notices io.Writer, doing string, size int64) *progress {
	file, ok := notices.(*os.File)
	if !ok || !isTerminal(file) {
		return nil
	}
	return &progress{terminal: file, doing: doing, size: size, shown: time.Now()}
}

func (p *progress) add(n int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += int64(n)
	if p.cleared || time.Since(p.shown) < progressPause {
		return
	}
	p.shown, p.visible = time.Now(), true
	fmt.Fprintf(p.terminal, "\r\033[Kberth: %s, %s of %s (%d %%)", p.doing, bytesText(p.done), bytesText(p.size), 100*p.done/max(p.size, 1))
}

func (p *progress) clear() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleared = true
	if p.visible {
		fmt.Fprint(p.terminal, "\r\033[K")
	}
}

// bytesText is a size for people.
func bytesText(n int64) string {
	switch {
	case n < 1e3:
		return fmt.Sprintf("%d bytes", n)
	case n < 1e6:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1e9:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	default:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	}
}
