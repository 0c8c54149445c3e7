package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
)

// ProcessName is the provider name of leases whose machine is a tree of processes on some host.
const ProcessName = "process"

// RunVariable is the environment variable that every process of a run's tree has from its start, whatever it does with
// sessions, groups and parents later.
const RunVariable = "BERTH_RUN_ID"

// ProcessTree names one run's processes on one host, as the id of a lease: the wrapper that started the run, and every
// process that carries the run's id in its environment.
//
// The host, its boot and its space of process ids are part of the name, so that only somebody who can see those
// processes, or knows that the host began anew, says anything about them.
type ProcessTree struct {
	Host  string // of the machine id, the host name and the network cards: a copy of the host is another
	Boot  string // the kernel's boot id
	Space string // the space of process ids
	User  int    // who the wrapper ran as; 0 is root
	PID   int    // the wrapper
	Start uint64 // when it started, in clock ticks after the boot: a later process with its id is another
	Run   string // the run's id
}

const processForm = "berth1"

// String is the tree's name, as ParseProcessTree reads it.
func (t ProcessTree) String() string {
	return strings.Join([]string{
		processForm, t.Host, t.Boot, t.Space, strconv.Itoa(t.User),
		strconv.Itoa(t.PID) + "." + strconv.FormatUint(t.Start, 10), t.Run,
	}, "/")
}

// ParseProcessTree reads the name of a tree.
func ParseProcessTree(id string) (ProcessTree, error) {
	parts := strings.Split(id, "/")
	if len(parts) != 7 || parts[0] != processForm || slices.Contains(parts, "") {
		return ProcessTree{}, fmt.Errorf("%q is not the id of a process tree: it has the form %s/HOST/BOOT/SPACE/USER/PID.START/RUN", id, processForm)
	}
	t := ProcessTree{Host: parts[1], Boot: parts[2], Space: parts[3], Run: parts[6]}
	pid, start, _ := strings.Cut(parts[5], ".")
	var user, process, started error
	t.User, user = strconv.Atoi(parts[4])
	t.PID, process = strconv.Atoi(pid)
	t.Start, started = strconv.ParseUint(start, 10, 64)
	if err := errors.Join(user, process, started); err != nil || t.PID <= 0 {
		return ProcessTree{}, fmt.Errorf("%q is not the id of a process tree: its numbers do not read as such", id)
	}
	return t, nil
}

// SupervisorName is the name in process lists of the processes that watch over a tree: they end whatever is left of it,
// also what no longer carries the run's id, so they are the last that Destroy kills.
const SupervisorName = "tree-supervisor"

// Process is this host as a provider: it answers for process trees that ran here.
//
// What it proves is that neither the wrapper is left, nor any process with the run's id in its environment (which the
// supervisors of the tree have), nor any descendant of one; or that the host was started anew since. It does not see a
// process that came from the tree, took the run's id out of its environment and outlived both supervisors; one that became
// another user's, unless the wrapper was root's; or what the tree asked a service to do that was there before.
type Process struct {
	host, boot, space string
	lasting           bool // the host is the same after a start, for certain: a container is not
	user              int
	see               func(before sighting) (sighting, error)
	signal            func(s seen, kill bool) error
}

var _ Provider = (*Process)(nil)

// seen is a process of this host.
type seen struct {
	pid, parent int
	start       uint64
	users       []int    // who it runs as, and who it ran as when it became that
	runs        []string // of its environment
	supervisor  bool
	kernel      bool // a thread of the kernel's
	ended       bool // only its exit code is left
	headless    bool // its first thread ended, and others go on
	hidden      bool // its environment cannot be read
	bare        bool // it was started with no environment
	loading     bool // it is between two programs, and has no environment yet
}

// sighting is one look at all processes.
type sighting struct {
	processes []seen
	lastID    int // the process id that was given out last
	// complete means that of every tree with a process at each instant of the look, one is here with its environment.
	complete bool
}

// looksAtMost is how often processes are looked at for one answer: a look is of no use when one of them ended before
// it could be read, since it may have left another behind.
const looksAtMost = 50

// Tree names the tree that the calling process will start for the run.
func (p *Process) Tree(run string) (ProcessTree, error) {
	if run == "" || strings.ContainsAny(run, "/ \n\x00") {
		return ProcessTree{}, fmt.Errorf("run id %q cannot be part of a name", run)
	}
	now, err := p.see(sighting{})
	if err != nil {
		return ProcessTree{}, err
	}
	own := slices.IndexFunc(now.processes, func(s seen) bool { return s.pid == os.Getpid() })
	if own < 0 {
		return ProcessTree{}, errors.New("this process is not among those that /proc shows")
	}
	return ProcessTree{
		Host: p.host, Boot: p.boot, Space: p.space, User: p.user, PID: os.Getpid(), Start: now.processes[own].start, Run: run,
	}, nil
}

// State implements Provider.
func (p *Process) State(_ context.Context, id string) (Answer, error) {
	_, answer, err := p.look(id)
	return answer, err
}

// Stop implements Provider: it asks the wrapper to end the run, which then saves; without a wrapper it ends the rest.
func (p *Process) Stop(ctx context.Context, id string) (Answer, error) { return p.end(ctx, id, false) }

// Destroy implements Provider: it kills what is left, and looks again until nothing is or ctx ends.
func (p *Process) Destroy(ctx context.Context, id string) (Answer, error) {
	return p.end(ctx, id, true)
}

// remains are the processes of a tree that are there.
type remains struct {
	wrapper *seen
	rest    []seen // with the run's id, and their descendants
	hidden  bool   // a process that cannot be read may be one of them
}

// look finds what is left of a tree.
func (p *Process) look(id string) (remains, Answer, error) {
	tree, err := ParseProcessTree(id)
	if err != nil {
		return remains{}, Answer{}, &Error{Kind: KindNotFound, Cause: err}
	}
	if anew, err := p.reaches(tree); err != nil {
		return remains{}, Answer{}, err
	} else if anew {
		return remains{}, Answer{ID: id, State: StateDestroyed, Word: "the host was started anew"}, nil
	}
	var left remains
	var now sighting
	for range looksAtMost {
		if now, err = p.see(now); err != nil {
			return remains{}, Answer{}, &Error{Kind: KindUnreachable, Cause: err}
		}
		left = tree.among(now.processes)
		if left.wrapper != nil || len(left.rest) > 0 || now.complete {
			break
		}
	}
	answer := Answer{ID: id}
	switch {
	case left.wrapper != nil || len(left.rest) > 0:
		answer.State, answer.Word = StateRunning, "running"
	case left.hidden:
		answer.State, answer.Word = StateUnknown, "a process that may be of it hides its environment"
	case !now.complete:
		answer.State, answer.Word = StateUnknown, "processes come and go faster than they can be read"
	default:
		answer.State, answer.Word = StateDestroyed, "no process of it is left"
	}
	return left, answer, nil
}

// reaches refuses trees that this process cannot see. The host having been started anew ends every tree of before; but
// only a host that is known to be the same can say so: of a container, another with its name may run elsewhere.
func (p *Process) reaches(tree ProcessTree) (anew bool, err error) {
	switch {
	case tree.Host != p.host:
		return false, &Error{Kind: KindElsewhere, Cause: errors.New("the tree is another host's")}
	case tree.Boot != p.boot && p.lasting && tree.Space == p.space:
		return true, nil
	case tree.Boot != p.boot:
		return false, &Error{Kind: KindElsewhere, Cause: errors.New("whether the tree is this host's cannot be told")}
	case tree.Space != p.space:
		return false, &Error{Kind: KindElsewhere, Cause: errors.New("the tree is in another space of process ids")}
	case p.user != 0 && p.user != tree.User:
		return false, &Error{Kind: KindUnauthorized, Cause: errors.New("the tree is another user's")}
	}
	return false, nil
}

// among finds the tree's processes. What root started may be anybody's by now.
func (t ProcessTree) among(all []seen) remains {
	var left remains
	children := map[int][]seen{}
	for _, s := range all {
		children[s.parent] = append(children[s.parent], s)
		switch {
		case s.ended:
		case s.pid == t.PID && s.start == t.Start:
			left.wrapper = &s
		case slices.Contains(s.runs, t.Run):
			left.rest = append(left.rest, s)
		case s.hidden && s.start >= t.Start && (t.User == 0 || slices.Contains(s.users, t.User)):
			left.hidden = true
		}
	}
	known := map[int]bool{t.PID: left.wrapper != nil}
	for _, s := range left.rest {
		known[s.pid] = true
	}
	for i := 0; i < len(left.rest); i++ {
		for _, child := range children[left.rest[i].pid] {
			if !known[child.pid] && !child.ended {
				known[child.pid] = true
				left.rest = append(left.rest, child)
			}
		}
	}
	return left
}

// hostIdentity is what tells a host from its copies, which may share a machine id; cards is how many network cards went
// into it.
func hostIdentity(machineID string) (identity string, cards int, err error) {
	name, err := os.Hostname()
	if err != nil {
		return "", 0, fmt.Errorf("read the host name: %w", err)
	}
	all, err := net.Interfaces()
	if err != nil {
		return "", 0, fmt.Errorf("list the network cards: %w", err)
	}
	parts := []string{machineID, name}
	for _, c := range all {
		if len(c.HardwareAddr) > 0 && physical(c.Name) {
			parts = append(parts, c.HardwareAddr.String())
		}
	}
	slices.Sort(parts[2:])
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:8]), len(parts) - 2, nil
}
