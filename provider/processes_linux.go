package provider

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// seeProcesses looks at the processes of this host. What was read in the look before is not read again, so that looks in
// a row get ever quicker, and one of them complete.
//
// Process ids are given out in rising order, and listed so: a tree that always has a process cannot slip by the list
// from child to child, unless the ids began again meanwhile. It can slip by between the list and the reading, which shows
// as a process that ended. And one that executes a program has no environment until that is loaded.
func seeProcesses(before sighting) (sighting, error) {
	first, err := lastID()
	if err != nil {
		return sighting{}, err
	}
	names, err := listProcesses()
	if err != nil {
		return sighting{}, fmt.Errorf("list processes: %w", err)
	}
	now := sighting{}
	if now.lastID, err = lastID(); err != nil {
		return sighting{}, err
	}
	now.complete = first <= now.lastID
	read := map[int]seen{}
	if before.lastID <= first && now.complete { // else an id may be another process's by now
		for _, s := range before.processes {
			read[s.pid] = s
		}
	}
	for _, name := range slices.Backward(names) { // the newest first, which may end the soonest
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		old, known := read[pid]
		if known && !old.hidden && !old.loading {
			now.processes = append(now.processes, old)
			continue
		}
		s, err := readProcess(pid)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
			now.complete = false
			continue
		case err != nil:
			return sighting{}, err
		case s.ended, s.loading: // one that was seen ended before is known above
			now.complete = false
		}
		now.processes = append(now.processes, s)
	}
	return now, nil
}

// listProcesses lists /proc in its own order, which is that of the ids.
func listProcesses() ([]string, error) {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return folder.Readdirnames(-1)
}

// lastID is the process id that was given out last.
func lastID() (int, error) {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, fmt.Errorf("read the last process id: %w", err)
	}
	fields := bytes.Fields(content)
	const last = 4
	if len(fields) <= last {
		return 0, errors.New("/proc/loadavg has no last process id")
	}
	id, err := strconv.Atoi(string(fields[last]))
	if err != nil {
		return 0, fmt.Errorf("read the last process id: %w", err)
	}
	return id, nil
}

func readProcess(pid int) (seen, error) {
	s, err := readStat(pid) // first: what it says of the environment is of the same program, or of one before
	if err != nil || s.ended || s.kernel {
		return s, err
	}
	folder := filepath.Join("/proc", strconv.Itoa(pid))
	var info unix.Stat_t
	if err := unix.Stat(folder, &info); err != nil {
		return s, err
	}
	s.users = []int{int(info.Uid)}
	environment, err := readEnvironment(folder, s.headless)
	switch {
	case errors.Is(err, fs.ErrPermission):
		s.hidden = true
		if real, err := realUser(folder); err == nil {
			s.users = append(s.users, real)
		}
		return s, nil
	case err != nil:
		return s, err
	}
	s.loading = len(environment) == 0 && !s.bare
	for variable := range bytes.SplitSeq(environment, []byte{0}) {
		if run, found := bytes.CutPrefix(variable, []byte(RunVariable+"=")); found {
			s.runs = append(s.runs, string(run))
		}
	}
	return s, nil
}

// readStat reads /proc/PID/stat, whose fields proc(5) numbers from 1.
func readStat(pid int) (seen, error) {
	s := seen{pid: pid}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return s, err
	}
	// The name is in parentheses and may hold anything, also those.
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	const state, parent, flags, threads, start, environment, environmentEnd = 3, 4, 9, 20, 22, 50, 51
	fields := bytes.Fields(stat[end+1:])
	if open < 0 || end < open || len(fields) <= environmentEnd-state {
		return s, fmt.Errorf("the state of process %d does not read as proc(5) says", pid)
	}
	field := func(number int) string { return string(fields[number-state]) }
	var errs [4]error
	var bits, count uint64
	s.parent, errs[0] = strconv.Atoi(field(parent))
	bits, errs[1] = strconv.ParseUint(field(flags), 10, 64)
	count, errs[2] = strconv.ParseUint(field(threads), 10, 64)
	s.start, errs[3] = strconv.ParseUint(field(start), 10, 64)
	s.bare = field(environment) != "0" && field(environment) == field(environmentEnd)
	const kernelThread = 0x00200000 // PF_KTHREAD
	s.kernel = bits&kernelThread != 0
	s.supervisor = string(stat[open+1:end]) == SupervisorName
	if field(state) == "Z" || field(state) == "X" {
		s.headless = count > 1
		s.ended = !s.headless
	}
	return s, errors.Join(errs[:]...)
}

// readEnvironment reads what a process was started with. One whose first thread ended shows it by the others alone.
func readEnvironment(folder string, headless bool) ([]byte, error) {
	if !headless {
		return os.ReadFile(filepath.Join(folder, "environ"))
	}
	threads, err := os.ReadDir(filepath.Join(folder, "task"))
	if err != nil {
		return nil, err
	}
	var last error
	for _, thread := range threads {
		environment, err := os.ReadFile(filepath.Join(folder, "task", thread.Name(), "environ"))
		if len(environment) > 0 {
			return environment, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
			last = err
		}
	}
	return nil, last
}

// realUser reads who started a process that may run as another.
func realUser(folder string) (int, error) {
	status, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(status, []byte("\nUid:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0, errors.New("a process's status has no user")
	}
	return strconv.Atoi(string(fields[0]))
}
