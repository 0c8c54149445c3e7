// Package runner is what `berth run` does around a command: it reserves the
// workspace, brings its files, runs the command on them, and saves and gives
// back once everything that the command started has come to an end.
//
// # A run, step by step
//
// [Run] speaks to the service as any client does. Each step is safe to repeat
// and, when it has no answer, is repeated for a bounded time:
//
//	look ahead   refuses what needs no run to be refused; changes nothing
//	create       the run; from here on all calls go by the run's own token
//	apply        a choice of the workspace that waits for the next run
//	reserve      the run is the writer, at an epoch; renewals begin. Where another
//	             is, the run may wait in [Line]
//	restore      the current snapshot's files, unless the directory has them
//	register     the command's processes, as a machine of this host, so that their
//	             end can be proven without this wrapper
//	dirty        the service, and then the directory's [Marker], hear that the
//	             files may differ from what is saved: before they can
//	command      in a [Tree], with [Environment]
//	save         pack, announce, upload, commit
//	end          the run ends, which gives the workspace back in the same call
//
// What goes wrong before "dirty" ends the run as cancelled. After it the one way
// out is a save, however the command came to its end, since anything else would
// give the workspace back without the work. Where that is impossible the run
// keeps the workspace, the directory keeps the work, and a person is told how to
// go on:
//
//	the save fails              held, marked unsaved; save by hand with the run's token
//	the tree's end is unproven  the same, once nothing of it is left
//	the tenure is lost          the tree is ended at once; the files stay, saved nowhere
//	the wrapper is killed       the tree is ended; held, marked unsaved; [Recover]
//	                            proves the end and saves in the dead run's name
//
// Nobody gets a workspace because time passed. So a renewal that has no answer
// is no reason to end the command, however long the service is away; only an
// answer is, and then every refusal is, also one that this program does not
// know. Nothing here remembers "held": each call that writes shows run and epoch,
// and the service says at that moment whether they still count.
//
// A first signal cuts off what comes before the command, is passed on to the
// command, and cuts off nothing after it; the last steps have a context of their
// own, and only a second signal gives them up, aloud.
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
