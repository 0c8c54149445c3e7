package postgres

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The tests of the shell that stands in for Linux's death signal elsewhere. It
// runs here too.

const watchHelper = "BERTH_POSTGRES_TEST_WATCH"

func init() {
	if os.Getenv(watchHelper) == "" {
		return
	}
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if _, err := startWatched(cmd); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(cmd.Process.Pid)
	_ = cmd.Wait()
	os.Exit(0)
}

func TestAWatchedProcessDiesWithItsProgram(t *testing.T) {
	t.Parallel()
	program := exec.Command(os.Args[0])
	program.Env = append(os.Environ(), watchHelper+"=1")
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the program says %q", line)
	}
	if err := program.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = program.Wait()
	gone(t, pid)
}

func TestAWatchEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	release, err := startWatched(cmd)
	if err != nil {
		t.Fatal(err)
	}
	watch := strings.Fields(output(t, "pgrep", "-f", "kill -QUIT .* sh "+strconv.Itoa(cmd.Process.Pid)))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	release()
	if len(watch) == 0 {
		t.Fatal("found no shell that watches")
	}
	for _, pid := range watch {
		if n, err := strconv.Atoi(pid); err == nil {
			gone(t, n)
		}
	}
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Skipf("%s: %v", name, err)
	}
	return string(out)
}

// gone waits until a process has ended; a zombie has.
func gone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
		if err != nil || strings.HasPrefix(strings.TrimSpace(string(out)), "Z") {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("process %d is still there", pid)
		case <-ticker.C:
		}
	}
}
