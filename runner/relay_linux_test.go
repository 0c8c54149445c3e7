package runner

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

func (w *wrapper) send(sig syscall.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(sig); err != nil {
		w.t.Fatal(err)
	}
}

// write makes an empty file in the command's directory.
func (w *wrapper) write(name string) {
	w.t.Helper()
	if err := os.WriteFile(w.path(name), nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func TestSignalsToTheWrapperReachTheCommandsWholeGroup(t *testing.T) {
	t.Parallel()
	w := shell(t, `names='HUP INT QUIT TERM USR1 USR2 WINCH'
		for s in $names; do trap "echo x > parent.$s" $s; done
		sh -c 'for s in '"$names"'; do trap "echo x > child.$s" $s; done; echo x > ready
			while :; do sleep 0.02; done' &
		until [ -e go ]; do sleep 0.02; done
		kill -KILL $!; exit 0`)
	w.start()
	w.awaitFile("ready")
	w.awaitRelay()
	for name, sig := range map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1,
		"USR2": syscall.SIGUSR2, "WINCH": syscall.SIGWINCH, "TERM": syscall.SIGTERM,
	} {
		w.send(sig)
		// Background commands of a shell without job control ignore INT and QUIT.
		w.awaitFile("parent." + name)
		if name != "INT" && name != "QUIT" {
			w.awaitFile("child." + name)
		}
	}
	w.write("go")
	out, code := w.wait()
	if code != 0 || out.Exit.Passed == 0 {
		t.Fatalf("got %+v, wrapper exit %d; want the command's own 0, and to know that a signal was passed on", out, code)
	}
	w.requireNothingLeft()
}

func TestASignalThatEndsTheCommandIsTheExitCode(t *testing.T) {
	t.Parallel()
	for sig, code := range map[syscall.Signal]int{
		syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129, syscall.SIGQUIT: 131,
	} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			w := shell(t, `echo x > ready; ulimit -c 0; exec sleep 600`).start()
			w.awaitFile("ready")
			w.send(sig)
			out, got := w.wait()
			if got != code || out.Exit.Signal != sig || out.Exit.Passed != sig {
				t.Fatalf("got %+v, wrapper exit %d; want %d", out, got, code)
			}
		})
	}
}

func TestAStoppedCommandCanBeTerminated(t *testing.T) {
	t.Parallel()
	w := shell(t, `echo $$ > pid; exec sleep 600`).start()
	pid := w.awaitPID("pid")
	w.awaitRelay()
	w.send(syscall.SIGTSTP)
	eventually(t, 10*time.Second, "the command is stopped", func() bool {
		p, err := readProcess(pid)
		return err == nil && p.stopped()
	})
	w.send(syscall.SIGTERM)
	if out, code := w.wait(); code != 143 {
		t.Fatalf("got %+v, wrapper exit %d", out, code)
	}
}

func TestAnInterruptAfterTheCommandEndedSkipsTheGrace(t *testing.T) {
	t.Parallel()
	w := shell(t, `(`+stubborn+`) & until [ -s beat ]; do sleep 0.01; done; exit 3`)
	w.order.Grace = time.Hour
	w.start()
	w.awaitFile("beat")
	_, inner := w.supervisors()
	eventually(t, 10*time.Second, "the command has ended", func() bool {
		below, err := descendants(inner)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range below {
			if p.parent == inner && p.group == p.pid {
				return false // the command leads its group; what is left does not
			}
		}
		return len(below) > 0
	})
	w.send(syscall.SIGINT)
	out, code := w.wait()
	w.requireNothingLeft()
	if code != 3 || out.Err != "" || out.Exit.Ended == "" {
		t.Fatalf("got %+v, wrapper exit %d", out, code)
	}
}

func TestSignalsThatWereIgnoredBeforeStayIgnored(t *testing.T) {
	t.Parallel()
	w := shell(t, `grep SigIgn /proc/self/status > ignored; echo x > ready; until [ -e go ]; do sleep 0.01; done; exit 4`)
	w.cmd = exec.Command("sh", "-c", `trap '' HUP; exec "$0"`, w.cmd.Path)
	w.start()
	w.awaitFile("ready")
	w.send(syscall.SIGHUP)
	w.write("go")
	if out, code := w.wait(); code != 4 || out.Exit.Passed != 0 {
		t.Fatalf("got %+v, wrapper exit %d; want a hangup to change nothing", out, code)
	}
	if got := w.awaitFile("ignored"); got != "SigIgn:\t0000000000000001" {
		t.Fatalf("the command ignores %q; want SIGHUP alone", got)
	}
}
