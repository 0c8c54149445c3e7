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

// Process is this host as a provider: it answers for process trees that ran here.
//
// What it proves is that neither the wrapper nor any process with the run's id in its environment is left, or that the
// host was started anew since. It does not see a process that came from the tree, took the run's id out of
// its environment and outlived both supervisors of the tree; or one that runs as another user; or what the tree asked a
// service to do that was there before.
type Process struct {
	host, boot, space string
	user              int
	see               func() ([]seen, error)
	signal            func(s seen, kill bool) error
}

var _ Provider = (*Process)(nil)

// seen is a process of this host.
type seen struct {
	pid    int
	start  uint64
	user   int
	run    string // of its environment
	hidden bool   // its environment cannot be read
}

// errProcessUnsupported is what systems without a /proc answer.
var errProcessUnsupported = errors.New("processes can be told apart on Linux only")

// Tree names the tree that the calling process will start for the run.
func (p *Process) Tree(run string) (ProcessTree, error) {
	if run == "" || strings.ContainsAny(run, "/ \n\x00") {
		return ProcessTree{}, fmt.Errorf("run id %q cannot be part of a name", run)
	}
	own, err := p.self()
	if err != nil {
		return ProcessTree{}, err
	}
	return ProcessTree{Host: p.host, Boot: p.boot, Space: p.space, User: p.user, PID: own.pid, Start: own.start, Run: run}, nil
}

func (p *Process) self() (seen, error) {
	all, err := p.see()
	if err != nil {
		return seen{}, err
	}
	for _, s := range all {
		if s.pid == os.Getpid() {
			return s, nil
		}
	}
	return seen{}, errors.New("this process is not among those that /proc shows")
}

// State implements Provider.
func (p *Process) State(_ context.Context, id string) (Answer, error) {
	_, _, answer, err := p.look(id)
	return answer, err
}

// Stop implements Provider: it asks the wrapper to end the run, which then saves; without a wrapper it ends the rest.
func (p *Process) Stop(ctx context.Context, id string) (Answer, error) { return p.end(ctx, id, false) }

// Destroy implements Provider: it kills what is left, and looks again until nothing is or ctx ends.
func (p *Process) Destroy(ctx context.Context, id string) (Answer, error) {
	return p.end(ctx, id, true)
}

// look finds what is left of a tree, the wrapper first.
func (p *Process) look(id string) (wrapper *seen, rest []seen, answer Answer, err error) {
	tree, err := ParseProcessTree(id)
	if err != nil {
		return nil, nil, Answer{}, &Error{Kind: KindNotFound, Cause: err}
	}
	answer = Answer{ID: id, State: StateDestroyed}
	switch {
	case tree.Host != p.host:
		return nil, nil, Answer{}, &Error{Kind: KindElsewhere, Cause: errors.New("the tree is another host's")}
	case tree.Boot != p.boot:
		answer.Word = "the host was started anew"
		return nil, nil, answer, nil
	case tree.Space != p.space:
		return nil, nil, Answer{}, &Error{Kind: KindElsewhere, Cause: errors.New("the tree is in another space of process ids")}
	case p.user != 0 && p.user != tree.User:
		return nil, nil, Answer{}, &Error{Kind: KindUnauthorized, Cause: errors.New("the tree is another user's")}
	}
	// Twice: a process that began behind the first look's back began from one that the second look finds.
	hidden := false
	for look := 0; look < 2 && wrapper == nil && len(rest) == 0; look++ {
		all, err := p.see()
		if err != nil {
			return nil, nil, Answer{}, &Error{Kind: KindUnreachable, Cause: err}
		}
		for _, s := range all {
			switch {
			case s.pid == tree.PID && s.start == tree.Start:
				wrapper = &s
			case s.run == tree.Run:
				rest = append(rest, s)
			case s.hidden && s.user == tree.User && s.start >= tree.Start:
				hidden = true // it may be one of the tree's: nothing is proven
			}
		}
	}
	switch {
	case wrapper != nil || len(rest) > 0:
		answer.State, answer.Word = StateRunning, "running"
	case hidden:
		answer.State, answer.Word = StateUnknown, "a process of the same user hides its environment"
	default:
		answer.Word = "no process of it is left"
	}
	return wrapper, rest, answer, nil
}

// hostIdentity is what tells a host from its copies, which may share a machine id.
func hostIdentity(machineID string) (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read the host name: %w", err)
	}
	cards, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("list the network cards: %w", err)
	}
	parts := []string{machineID, name}
	for _, c := range cards {
		if len(c.HardwareAddr) > 0 && physical(c.Name) {
			parts = append(parts, c.HardwareAddr.String())
		}
	}
	slices.Sort(parts[2:])
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:8]), nil
}
