package runner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// identity tells a process from a later one with the same id.
type identity struct {
	pid   int
	start uint64 // clock ticks after boot
}

// process is one line of /proc.
type process struct {
	identity
	parent int
	group  int
	state  byte
	name   string
}

func (p process) zombie() bool { return p.state == 'Z' || p.state == 'X' }

func (p process) stopped() bool { return p.state == 'T' }

// descendants lists the processes below root, by their parent links. It is a
// picture of no single instant: a process forked meanwhile may be missing, and
// so may one whose parent ended meanwhile. Both are there the next time.
func descendants(root int) ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	byParent := map[int][]process{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil {
			byParent[p.parent] = append(byParent[p.parent], p)
		}
	}
	found := byParent[root]
	for i := 0; i < len(found); i++ {
		found = append(found, byParent[found[i].pid]...)
	}
	return found, nil
}

// ownChildren lists the children of the main thread, which are all that a
// supervisor has; nil where the kernel was built without that list.
func ownChildren() []int {
	self := strconv.Itoa(os.Getpid())
	raw, err := os.ReadFile(filepath.Join("/proc", self, "task", self, "children"))
	if err != nil {
		return nil
	}
	var pids []int
	for _, field := range bytes.Fields(raw) {
		if pid, err := strconv.Atoi(string(field)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// readProcess reads /proc/PID/stat. Its second field, the name in parentheses,
// may hold anything, parentheses and newlines included.
func readProcess(pid int) (process, error) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, err
	}
	open, end := bytes.IndexByte(raw, '('), bytes.LastIndexByte(raw, ')')
	if open < 0 || end < open {
		return process{}, fmt.Errorf("process %d: stat has no name", pid)
	}
	// From the third field on: state, parent, group, …; the 22nd is the start.
	fields := bytes.Fields(raw[end+1:])
	const startField = 22 - 3
	if len(fields) <= startField {
		return process{}, fmt.Errorf("process %d: stat is cut off", pid)
	}
	p := process{identity: identity{pid: pid}, name: string(raw[open+1 : end]), state: fields[0][0]}
	var errs [3]error
	p.parent, errs[0] = strconv.Atoi(string(fields[1]))
	p.group, errs[1] = strconv.Atoi(string(fields[2]))
	p.start, errs[2] = strconv.ParseUint(string(fields[startField]), 10, 64)
	return p, errors.Join(errs[:]...)
}

// signal sends a signal to this very process and not to one that got its id
// after it ended: a fork bomb can go through all ids in a moment.
func (p process) signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		// A kernel before 5.3, or a sandbox that forbids the call.
		return ignoreGone(unix.Kill(p.pid, sig))
	}
	defer unix.Close(fd)
	now, err := readProcess(p.pid)
	if err != nil || now.identity != p.identity {
		return nil
	}
	return ignoreGone(unix.PidfdSendSignal(fd, sig, nil, 0))
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
