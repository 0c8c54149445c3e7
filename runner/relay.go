package runner

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Signals are the ones that a wrapper gets, from CatchSignals on.
type Signals struct {
	received chan os.Signal
}

// CatchSignals keeps SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 and SIGUSR2 from
// ending this process; they can be read from C, or be passed on by
// Tree.RelaySignals. Call it before the command is started, or one that comes
// just then ends the wrapper alone. Signals that were ignored when this process
// was started (nohup) stay ignored.
func CatchSignals() *Signals {
	s := &Signals{received: make(chan os.Signal, 16)}
	s.catch(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	return s
}

// C delivers the signals while no tree relays them.
func (s *Signals) C() <-chan os.Signal { return s.received }

// Stop lets the signals act on this process as they did before.
func (s *Signals) Stop() { signal.Stop(s.received) }

func (s *Signals) catch(signals ...syscall.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(s.received, sig)
		}
	}
}

// jobSignals mean something to this process only while a command runs.
var jobSignals = []syscall.Signal{syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT}

// relay stands between whoever started the wrapper and the command: it passes
// signals on and does for the terminal what a shell does for a job.
type relay struct {
	tree     *Tree
	terminal *terminal // nil without a controlling terminal
	signals  *Signals
	lent     bool // the command's group has the terminal
	wants    bool // the command was stopped for using a terminal it did not have
}

// RelaySignals passes the signals that were caught on to the command's process
// group, those of terminal and job control too, until stop is called. Once the
// command itself has ended, an interrupt, quit or termination ends what is left
// of the tree at once.
//
// When standard input and output are the terminal that this process has in the
// foreground, the command's group gets it, so that Ctrl-C and full-screen
// programs work as if the command had been started by the shell. In a pipeline
// it gets the terminal when it first asks for it. A command that is stopped by
// Ctrl-Z stops this process too, so that the shell can have its prompt back;
// the tenure is not renewed meanwhile, which frees it for nobody.
//
// stop returns the terminal and waits until nothing is passed on any more.
func (t *Tree) RelaySignals(signals *Signals) (stop func()) {
	r := &relay{tree: t, terminal: openTerminal(), signals: signals}
	signals.catch(jobSignals...)
	if r.terminal.isForeground() && isTerminal(os.Stdin) && isTerminal(os.Stdout) {
		r.lend()
	}
	quit, finished := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(finished)
		r.run(quit)
	}()
	return sync.OnceFunc(func() {
		close(quit)
		<-finished
	})
}

func (r *relay) run(quit <-chan struct{}) {
	exited := r.tree.Exited()
	for {
		select {
		case sig := <-r.signals.received:
			r.pass(sig.(syscall.Signal))
		case sig := <-r.tree.stopped:
			r.commandStopped(sig)
		case <-exited:
			exited = nil
			r.takeBack()
		case <-quit:
			r.takeBack()
			for _, sig := range jobSignals {
				signal.Reset(sig)
			}
			r.terminal.close()
			return
		}
	}
}

func (r *relay) pass(sig syscall.Signal) {
	select {
	case <-r.tree.Exited():
		switch sig {
		case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
			r.tree.End("interrupted ("+sig.String()+") after the command had ended", 0)
		}
		return
	default:
	}
	if sig == syscall.SIGCONT && r.wants && r.terminal.isForeground() {
		r.lend()
	}
	_ = r.tree.Signal(sig)
}

// commandStopped is what a shell does when a job stops.
func (r *relay) commandStopped(sig syscall.Signal) {
	asked := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	r.wants = r.wants || asked || r.lent
	switch {
	case r.terminal == nil:
		return // no shell waits for this process to stop
	case asked && (r.lent || r.terminal.isForeground()):
		// Lent already: it asked before that, and the news came after.
		r.lend()
		_ = r.tree.Signal(syscall.SIGCONT)
		return
	case !asked && !r.lent && sig != syscall.SIGTSTP:
		return // somebody stopped the command alone, and can continue it
	}
	if !asked {
		sig = syscall.SIGTSTP
	}
	r.takeBack()
	// The group's other processes get the signal that the terminal would have
	// sent them; this one must not take it for one to pass on.
	signal.Ignore(sig)
	stopOwnGroup(sig) // returns when continued, or at once if nobody could continue it
	signal.Reset(sig)
	r.signals.catch(jobSignals...)
	if r.wants && r.terminal.isForeground() {
		r.lend()
	} else if asked {
		// It would stop for the same reason at once. SIGCONT tries again.
		return
	}
	_ = r.tree.Signal(syscall.SIGCONT)
}

func (r *relay) lend() {
	if r.terminal.give(r.tree.PID()) {
		r.lent, r.wants = true, false
	}
}

func (r *relay) takeBack() {
	if r.lent {
		r.terminal.takeBack()
		r.lent = false
	}
}
