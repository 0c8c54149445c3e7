package snapshot_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Some promises hold for a process: that it may die, that it is not root, how much memory it takes. For those the test
// binary starts itself again in one of these roles. A role's result is printed.
var childRoles = map[string]func(args []string) (string, error){}

const childVariable = "BERTH_SNAPSHOT_TEST_CHILD"

func TestMain(m *testing.M) {
	role, isChild := os.LookupEnv(childVariable)
	if !isChild {
		os.Exit(m.Run())
	}
	result, err := childRoles[role](os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(result)
}

type child struct {
	command *exec.Cmd
	stdout  *bufio.Reader
}

func startChild(tb testing.TB, role string, args ...string) *child {
	tb.Helper()
	c, err := tryChild(tb, role, nil, args...)
	must(tb, err)
	return c
}

// tryChild starts a child with process attributes that the system may refuse.
func tryChild(tb testing.TB, role string, attributes *syscall.SysProcAttr, args ...string) (*child, error) {
	tb.Helper()
	if childRoles[role] == nil {
		tb.Fatalf("no role %q", role)
	}
	command := exec.CommandContext(tb.Context(), os.Args[0], args...)
	command.Env = append(os.Environ(), childVariable+"="+role)
	command.Stderr = os.Stderr
	command.SysProcAttr = attributes
	command.WaitDelay = 10 * time.Second
	stdout, err := command.StdoutPipe()
	must(tb, err)
	return &child{command: command, stdout: bufio.NewReader(stdout)}, command.Start()
}

// line waits for the next line that the child prints.
func (c *child) line(tb testing.TB) string {
	tb.Helper()
	line, err := c.stdout.ReadString('\n')
	if err != nil {
		tb.Fatalf("the child ended early: %v", errors.Join(err, c.command.Wait()))
	}
	return strings.TrimSuffix(line, "\n")
}

// result waits for the child's result and for its end.
func (c *child) result(tb testing.TB) string {
	tb.Helper()
	line := c.line(tb)
	must(tb, c.command.Wait())
	return line
}

// kill ends the child as a power cut would: it can do nothing about it.
func (c *child) kill(tb testing.TB) {
	tb.Helper()
	must(tb, c.command.Process.Kill())
	c.command.Wait() //nolint:errcheck // it says that the child was killed
}

// dropPrivileges makes a child that runs as root an ordinary user.
func dropPrivileges() error {
	if os.Geteuid() != 0 {
		return nil
	}
	const nobody = 65534
	return errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody))
}

// openToOthers gives a directory to everyone and lets others through the directories above, which t.TempDir makes for
// the owner alone.
func openToOthers(tb testing.TB, path string) {
	tb.Helper()
	must(tb, os.Chmod(path, 0o777))
	for parent := path; parent != os.TempDir() && parent != "/"; {
		parent = parent[:max(strings.LastIndexByte(parent, '/'), 1)]
		info, err := os.Stat(parent)
		must(tb, err)
		if info.Mode().Perm()&0o001 == 0 {
			must(tb, os.Chmod(parent, info.Mode().Perm()|fs.FileMode(0o011)))
		}
	}
}
