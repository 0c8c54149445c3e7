package postgres

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// processExists is true for every process number in use, also of other users
// and of processes that ended and were not waited for.
func processExists(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// isServerOf reports whether a process is a live Postgres server on the
// cluster in data: servers work in their data folder. A process whose folder
// cannot be read is another user's, and could not use the cluster, or ended
// already.
func isServerOf(pid int, data string) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	if _, err := os.Stat("/proc/self/comm"); err != nil {
		return isPostgresByPS(pid)
	}
	name, err := os.ReadFile(filepath.Join(proc, "comm"))
	if err != nil || strings.TrimSpace(string(name)) != "postgres" {
		return false
	}
	folder, err := os.Readlink(filepath.Join(proc, "cwd"))
	return err == nil && folder == data
}

// isPostgresByPS is the answer where there is no /proc. It cannot tell which
// cluster a server works on, and errs on the careful side.
func isPostgresByPS(pid int) bool {
	out, err := exec.Command("ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && filepath.Base(strings.TrimSpace(string(out))) == "postgres"
}
