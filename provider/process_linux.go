package provider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lookAgain is how often Destroy looks whether a tree is gone.
const lookAgain = 20 * time.Millisecond

// OpenProcess makes this host answer for process trees that ran on it.
func OpenProcess() (*Process, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("read the boot id: %w", err)
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil, fmt.Errorf("read the space of process ids: %w", err)
	}
	machine, err := os.ReadFile("/etc/machine-id")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the machine id: %w", err)
	}
	host, err := hostIdentity(strings.TrimSpace(string(machine)))
	if err != nil {
		return nil, err
	}
	return &Process{
		host: host, boot: strings.TrimSpace(string(boot)), space: strings.Trim(space, "pid:[]"),
		user: os.Geteuid(), see: seeProcesses, signal: signalProcess,
	}, nil
}

// physical reports whether a network card belongs to the host for good; those of containers and bridges come and go.
func physical(card string) bool {
	_, err := os.Stat(filepath.Join("/sys/class/net", card, "device"))
	return err == nil
}

// end signals what is left of a tree. A kill is repeated until nothing is left.
func (p *Process) end(ctx context.Context, id string, kill bool) (Answer, error) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		wrapper, rest, answer, err := p.look(id)
		if err != nil || answer.State != StateRunning {
			return answer, err
		}
		targets := rest
		if wrapper != nil && (kill || len(rest) == 0) {
			targets = append(targets, *wrapper)
		} else if wrapper != nil {
			targets = []seen{*wrapper} // it hands the signal on, waits for the tree, and saves
		}
		for _, s := range targets {
			if err := p.signal(s, kill); err != nil {
				return answer, &Error{Kind: KindRefused, Cause: err}
			}
		}
		if !kill {
			return answer, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return answer, nil
		}
	}
}

// signalProcess signals that very process, and no later one with its id.
func signalProcess(s seen, kill bool) error {
	handle, err := unix.PidfdOpen(s.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", s.pid, err)
	}
	defer unix.Close(handle) //nolint:errcheck // nothing was written
	now, err := readProcess(s.pid)
	if err != nil || now.start != s.start {
		return nil //nolint:nilerr // it is gone
	}
	sig := unix.SIGTERM
	if kill {
		sig = unix.SIGKILL
	}
	if err := unix.PidfdSendSignal(handle, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", s.pid, err)
	}
	return nil
}

// seeProcesses lists the processes of this host. One that begins meanwhile may be missing, but not with its parent: a tree
// that is still growing has a process that is seen.
func seeProcesses() ([]seen, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []seen
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		s, err := readProcess(pid)
		if err == nil {
			all = append(all, s)
		} else if !gone(err) {
			return nil, err
		}
	}
	return all, nil
}

func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, errEnded)
}

// errEnded means that of a process only its exit code is left.
var errEnded = errors.New("the process ended")

func readProcess(pid int) (seen, error) {
	folder := filepath.Join("/proc", strconv.Itoa(pid))
	s := seen{pid: pid}
	var info unix.Stat_t
	if err := unix.Stat(folder, &info); err != nil {
		return s, err
	}
	s.user = int(info.Uid)
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return s, err
	}
	// The name is in parentheses and may hold anything, also those.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const state, start = 0, 19 // fields 3 and 22 of proc(5)
	if len(fields) <= start {
		return s, fmt.Errorf("the state of process %d does not read as proc(5) says", pid)
	}
	if fields[state][0] == 'Z' || fields[state][0] == 'X' {
		return s, errEnded
	}
	if s.start, err = strconv.ParseUint(string(fields[start]), 10, 64); err != nil {
		return s, fmt.Errorf("the start of process %d: %w", pid, err)
	}
	environment, err := os.ReadFile(filepath.Join(folder, "environ"))
	switch {
	case errors.Is(err, fs.ErrPermission):
		s.hidden = true
		return s, nil
	case err != nil:
		return s, err
	}
	for variable := range bytes.SplitSeq(environment, []byte{0}) {
		if value, found := bytes.CutPrefix(variable, []byte(RunVariable+"=")); found {
			s.run = string(value)
		}
	}
	return s, nil
}
