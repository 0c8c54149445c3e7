package provider

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lookAgain is how often Destroy looks whether a tree is gone.
const lookAgain = 20 * time.Millisecond

// initialSpace is the space of process ids that the kernel starts with: whoever is in it is no container.
const initialSpace = "4026531836"

// OpenProcess makes this host answer for process trees that ran on it. It refuses where /proc does not show all of them.
func OpenProcess() (*Process, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("read the boot id: %w", err)
	}
	link, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil, fmt.Errorf("read the space of process ids: %w", err)
	}
	if err := checkProc(); err != nil {
		return nil, err
	}
	content, err := os.ReadFile("/etc/machine-id")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the machine id: %w", err)
	}
	machine, space := strings.TrimSpace(string(content)), strings.Trim(link, "pid:[]")
	host, cards, err := hostIdentity(machine)
	if err != nil {
		return nil, err
	}
	return &Process{
		host: host, boot: strings.TrimSpace(string(boot)), space: space,
		lasting: space == initialSpace && machine != "" && cards > 0,
		user:    os.Geteuid(), see: seeProcesses, signal: signalProcess,
	}, nil
}

// checkProc refuses a /proc that is another space's, or that does not show all processes of this one.
func checkProc() error {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return errors.Join(errors.New("/proc is of another space of process ids"), err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("read how /proc is mounted: %w", err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("read the own rights: %w", err)
	}
	if hidesProcesses(string(mounts)) && !maySeeAll(string(status)) {
		return errors.New("/proc is mounted with hidepid, and so need not show a process that is there")
	}
	return nil
}

// hidesProcesses reads mountinfo of proc(5), in which the last mount on a place counts.
func hidesProcesses(mountinfo string) (hides bool) {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) > 4 && fields[4] == "/proc" {
			options := "," + fields[len(fields)-1]
			hides = strings.Contains(options, ",hidepid=") &&
				!strings.Contains(options, ",hidepid=0") && !strings.Contains(options, ",hidepid=off")
		}
	}
	return hides
}

// maySeeAll reads from status of proc(5) whether the process may look into all others.
func maySeeAll(status string) bool {
	_, rest, _ := strings.Cut(status, "CapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	rights, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && rights&(1<<unix.CAP_SYS_PTRACE) != 0
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
		left, answer, err := p.look(id)
		if err != nil || answer.State != StateRunning {
			return answer, err
		}
		for _, s := range left.targets(kill) {
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

// targets are whom to signal: to stop, the wrapper, which hands it on, waits for the tree and saves; to kill, everybody,
// but the supervisors last, by whom the rest is known.
func (r remains) targets(kill bool) []seen {
	if r.wrapper != nil && !kill {
		return []seen{*r.wrapper}
	}
	watched := slices.DeleteFunc(slices.Clone(r.rest), func(s seen) bool { return kill && s.supervisor })
	if r.wrapper != nil {
		watched = append(watched, *r.wrapper)
	}
	if len(watched) == 0 {
		return r.rest
	}
	return watched
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
	now, err := readStat(s.pid)
	if err != nil || now.start != s.start {
		return nil
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
