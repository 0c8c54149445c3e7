// Package runner is what `berth run` does around a command: it takes the
// directory, starts the command, and brings everything the command started to
// an end before anything is saved or released.
//
// # The process tree
//
// A tenure may only be given back when nothing of it can write any more. So a
// command is not a process here but a [Tree]: the command and everything that
// descends from it, daemons that left its group, its session and its terminal
// included. [Tree.Wait] returns without an error only when the kernel has said
// that no descendant is left.
//
// On Linux two small supervisors stand between the wrapper and the command,
// both of them the wrapper's own program, started anew:
//
//	berth run ── outer supervisor ── inner supervisor ── CMD ── …
//
// Both are child subreapers: a descendant whose parent ends becomes a child of
// the nearest one instead of a child of init, so nothing can leave the tree by
// forking twice. The inner one starts the command in a process group of its
// own, and when the command ends, or somebody asks, ends the rest: SIGTERM to
// every descendant, a grace period, then SIGKILL, again and again until
// wait(2) answers that there is no child. That answer is the proof: a list read
// from /proc may miss a process that is being forked, the kernel's own word
// does not.
//
// The outer one has the inner one as its only child and steps in when that is
// killed. Each of the two holds a socket whose other end is in the wrapper, and
// ends everything as soon as the wrapper is gone. What is killed with SIGKILL,
// and what follows:
//
//	the wrapper                  the inner supervisor ends the tree within 2 s
//	the inner supervisor         CMD dies with it; the outer one ends the rest
//	the outer supervisor         the wrapper has the inner one end the tree
//	the wrapper and either one   the supervisor that is left ends the tree
//	CMD alone                    the inner supervisor ends the rest
//	both supervisors             CMD dies with its parent, the rest may live:
//	                             Wait returns ErrUnproven
//	all three                    CMD dies with its parent, the rest may live;
//	                             nobody released the tenure, so nobody gets in
//
// What no parent link reaches is outside: work that CMD hands to a service which
// was running before (a container engine, systemd-run, cron, ssh to this host).
//
// Elsewhere than on Linux there are no supervisors: the process group stands
// for the tree. A descendant that makes a session of its own escapes it, and
// nothing ends the tree of a wrapper that was killed.
//
// A PID namespace or a control group would let the kernel end a tree by itself,
// but both need privileges that a wrapper in a container, or on a laptop,
// usually lacks; being a subreaper needs none.
package runner
