package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stubborn ignores whatever can be ignored and writes as long as it lives.
const stubborn = `trap '' TERM HUP INT QUIT; while :; do echo x >> beat; sleep 0.02; done`

// daemon leaves its parent, its group and its session: setsid, and a second
// fork whose parent ends at once.
const daemon = `setsid sh -c '(` + `trap "" TERM HUP INT; while :; do echo x >> daemon; sleep 0.02; done` + `) & echo $! > daemon.pid' &`

func TestExitCodeAndSignalOfTheCommandPassThrough(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		code         int
		signal       syscall.Signal
	}{
		{"zero", "exit 0", 0, 0},
		{"a code", "exit 42", 42, 0},
		{"255", "exit 255", 255, 0},
		{"SIGINT", "kill -INT $$", 130, syscall.SIGINT},
		{"SIGKILL", "kill -KILL $$", 137, syscall.SIGKILL},
		{"SIGTERM", "kill -TERM $$", 143, syscall.SIGTERM},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, code := shell(t, c.script).start().wait()
			if out.Err != "" || code != c.code || out.Exit.Code != c.code || out.Exit.Signal != c.signal || out.Exit.SupervisorLost {
				t.Fatalf("got %+v, wrapper exit %d; want code %d, signal %v", out, code, c.code, c.signal)
			}
		})
	}
}

func TestStreamsAreTheCommandsOwn(t *testing.T) {
	t.Parallel()
	w := shell(t, `read line; echo "out $line"; echo "err $line" >&2; ls -l /proc/self/fd | grep -c socket`)
	w.cmd.Stdin = strings.NewReader("hello\n")
	w.start().wait()
	if got := w.stdout.String(); got != "out hello\n0\n" {
		t.Errorf("stdout %q: want the line, and no socket of the supervisors among the open files", got)
	}
	if got := w.stderr.String(); got != "err hello\n" {
		t.Errorf("stderr %q", got)
	}
}

func TestArgumentsAndEnvironmentArriveByteForByte(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree, err := StartTree(context.Background(), Command{
		Path: "sh", Args: []string{"-c", `printf %s "$1$V$PWD" > got`, "sh", "\xff\xfe 'a'\n"},
		Dir: dir, Env: []string{"V=\x80", "PATH=" + os.Getenv("PATH")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := tree.Wait(); err != nil || exit.Code != 0 {
		t.Fatalf("%+v, %v", exit, err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "got")); err != nil || string(got) != "\xff\xfe 'a'\n\x80"+dir {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestACommandThatCannotRunIsReportedAsAShellWould(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("plain", "#!/bin/sh\n", 0o644)
	write("garbage", "\x00\x01\x02\x03", 0o755)
	write("lost", "#!/no/such/interpreter\n", 0o755)
	for path, code := range map[string]int{
		"no-such-command-anywhere": 127,
		"./no-such-file":           127,
		"":                         127,
		"./plain/below-a-file":     127,
		"./plain":                  126,
		"./garbage":                126,
		"./lost":                   126,
		"./":                       126,
	} {
		_, err := StartTree(context.Background(), Command{Path: path, Dir: dir})
		var refused *StartError
		if !errors.As(err, &refused) || refused.Code != code {
			t.Errorf("%q: got %v, want a StartError with %d", path, err, code)
		}
	}
	if _, err := StartTree(context.Background(), Command{Path: "true", Dir: filepath.Join(dir, "absent")}); err == nil || !strings.Contains(err.Error(), "working directory") {
		t.Errorf("an absent working directory: got %v", err)
	}
}

func TestARelativePathIsTakenFromTheCommandsDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hello"), []byte("#!/bin/sh\nexit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	tree, err := StartTree(context.Background(), Command{Path: "./hello", Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := tree.Wait(); err != nil || exit.Code != 7 {
		t.Fatalf("%+v, %v", exit, err)
	}
}

func TestWhatOutlivesTheCommandIsEndedBeforeWaitReturns(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"a background process":             `(while :; do echo x >> beat; sleep 0.02; done) & `,
		"one that ignores SIGTERM":         `(` + stubborn + `) & `,
		"a daemon":                         daemon,
		"a stopped one":                    `(echo x >> beat; kill -STOP $(sh -c 'echo $PPID'); echo x >> beat) & `,
		"a daemon that ignores everything": daemon + ` (` + stubborn + `) & `,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := shell(t, script+`until [ -s beat ] || [ -s daemon ]; do sleep 0.01; done; exit 3`)
			w.order.Grace = 300 * time.Millisecond
			w.start()
			out, code := w.wait()
			w.requireNothingLeft()
			if out.Err != "" || code != 3 || out.Exit.Code != 3 {
				t.Fatalf("got %+v, wrapper exit %d", out, code)
			}
		})
	}
}

func TestWhatObeysSIGTERMHasTheGraceToFinish(t *testing.T) {
	t.Parallel()
	w := shell(t, `(trap 'sleep 0.3; echo done > saved; exit' TERM; echo x > ready; while :; do sleep 0.02; done) &
		until [ -s ready ]; do sleep 0.01; done`)
	w.start()
	if out, code := w.wait(); code != 0 || out.Err != "" {
		t.Fatalf("got %+v, wrapper exit %d", out, code)
	}
	if got := w.awaitFile("saved"); got != "done" {
		t.Fatalf("got %q", got)
	}
}

func TestAStoppedProcessIsContinuedToObey(t *testing.T) {
	t.Parallel()
	w := shell(t, `sh -c 'trap "echo done > saved; exit" TERM; echo x > ready; kill -STOP $$; while :; do sleep 0.02; done' &
		until [ -s ready ]; do sleep 0.01; done; sleep 0.2`)
	w.start()
	if out, code := w.wait(); code != 0 || out.Err != "" {
		t.Fatalf("got %+v, wrapper exit %d", out, code)
	}
	if got := w.awaitFile("saved"); got != "done" {
		t.Fatalf("got %q", got)
	}
}

// To many programs a second SIGTERM means: now, without care.
func TestAProcessIsAskedToEndOnlyOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree, err := StartTree(context.Background(), Command{
		Path: "sh", Dir: dir,
		Args: []string{"-c", `trap 'echo x >> asked' TERM; echo x > ready; while :; do sleep 0.02; done`},
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the command runs", func() bool {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err == nil
	})
	tree.End("enough", time.Second)
	tree.End("really enough", time.Second)
	if exit, err := tree.Wait(); err != nil || exit.Code != 137 {
		t.Fatalf("got %+v, %v", exit, err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "asked")); err != nil || string(got) != "x\n" {
		t.Fatalf("asked: %q, %v; want one SIGTERM", got, err)
	}
}

func TestEndLeavesNothingThatCouldStillWrite(t *testing.T) {
	t.Parallel()
	w := newWrapper(t) // for its marks and its directory only
	tree, err := StartTree(context.Background(), Command{
		Path: "sh", Args: []string{"-c", daemon + stubborn}, Dir: w.order.Dir,
		Env: []string{"PATH=" + os.Getenv("PATH"), markVariable + "=" + w.order.Mark},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.awaitFile("beat")
	w.awaitFile("daemon")
	tree.End("tenure ended", 100*time.Millisecond)
	tree.End("a later reason", time.Hour)
	exit, err := tree.Wait()
	w.requireNothingLeft()
	if err != nil || exit.Code != 137 || exit.Ended != "tenure ended" {
		t.Fatalf("got %+v, %v", exit, err)
	}
}

func TestTheEndOfTheContextEndsTheTree(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(context.Background())
	tree, err := StartTree(ctx, Command{Path: "sleep", Args: []string{"600"}})
	if err != nil {
		t.Fatal(err)
	}
	cancel(errors.New("had enough"))
	if exit, err := tree.Wait(); err != nil || exit.Code != 143 || exit.Ended != "had enough" {
		t.Fatalf("got %+v, %v", exit, err)
	}
	if _, err := StartTree(ctx, Command{Path: "true"}); err == nil {
		t.Error("a tree was started although its context had ended")
	}
}

func TestATreeThatForksWhileItIsKilledIsEnded(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		// Each generation is a new process with a new id; the parent is gone.
		"a chain": `cat > hop <<'X'
trap '' TERM
echo x >> beat
sh ./hop &
X
sh ./hop`,
		"a chain of new sessions": `cat > hop <<'X'
trap '' TERM
echo x >> beat
setsid sh ./hop &
X
sh ./hop`,
		"a growing tree": `cat > grow <<'X'
trap '' TERM
echo x >> beat
[ "$1" -lt 5 ] || exec sleep 600
for i in 1 2 3; do sh ./grow $(($1+1)) & done
for i in 1 2 3; do setsid sh ./grow $(($1+1)) & done
while :; do sh -c 'echo y >> beat' & sleep 0.05; done
X
sh ./grow 3 & wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := shell(t, script+"\nexec sleep 600")
			w.order.Grace = 200 * time.Millisecond
			w.start()
			w.awaitFile("beat")
			if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			out, _ := w.wait()
			w.requireNothingLeft()
			if out.Err != "" {
				t.Fatalf("got %+v", out)
			}
		})
	}
}
