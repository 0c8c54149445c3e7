package runner

import (
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// How often /proc is read while a tree has its grace, and how long a supervisor
// waits for processes that it has killed to be gone.
const (
	firstTermPause = 20 * time.Millisecond
	lastTermPause  = 500 * time.Millisecond
	firstKillPause = 2 * time.Millisecond
	lastKillPause  = 100 * time.Millisecond
	survivorPause  = time.Second
)

// ending is a tree on its way to being empty.
type ending struct {
	killAt    time.Time
	pause     time.Duration
	told      map[identity]bool // were sent SIGTERM
	killed    map[identity]bool // were sent SIGKILL
	leaders   map[int]bool      // process groups that began in the tree
	killSince time.Time
	reported  time.Time
}

// end begins to end the tree, or brings the SIGKILL of an end begun forward.
func (s *supervisor) end(grace time.Duration) {
	killAt := time.Now().Add(grace)
	if s.ending != nil {
		if killAt.Before(s.ending.killAt) {
			s.ending.killAt = killAt
		}
		return
	}
	s.ending = &ending{
		killAt:  killAt,
		pause:   firstTermPause,
		told:    map[identity]bool{},
		killed:  map[identity]bool{},
		leaders: map[int]bool{},
	}
	if s.child != 0 {
		s.ending.leaders[s.child] = true
	}
}

// sweep does what is due to every descendant that it finds, and says how long to
// wait before the next one. Whether it found them all does not matter: the loop
// around it goes on until there is no child.
func (s *supervisor) sweep() time.Duration {
	e := s.ending
	left := time.Until(e.killAt)
	if left > 0 && s.outer && s.child != 0 {
		// The inner supervisor lives and asks the processes itself. A second
		// SIGTERM means "now, without care" to many programs.
		return left
	}
	found, err := descendants(unix.Getpid())
	if err != nil {
		return firstTermPause
	}
	if left > 0 {
		s.terminate(found)
		e.pause = min(2*e.pause, lastTermPause)
		return min(e.pause, left)
	}
	if e.killSince.IsZero() {
		e.killSince = time.Now()
	}
	return s.sweepKilling(found)
}

// sweepKilling is sweep after the grace: without a pause while it still finds
// processes that it has not killed, and ever more slowly while it waits for
// killed ones to be gone.
func (s *supervisor) sweepKilling(found []process) time.Duration {
	e := s.ending
	fresh := s.kill(found)
	killChildren()
	if time.Since(e.killSince) > killPatience {
		s.reportSurvivors(found)
		return survivorPause
	}
	if fresh {
		runtime.Gosched() // let the other goroutines in: no pause at all follows
		e.pause = firstKillPause
		return 0
	}
	e.pause = min(2*e.pause, lastKillPause)
	return e.pause
}

// terminate asks each process once to end.
func (s *supervisor) terminate(found []process) {
	for _, p := range found {
		if p.zombie() || s.ending.told[p.identity] {
			continue
		}
		s.ending.told[p.identity] = true
		_ = p.signal(unix.SIGTERM)
		if p.stopped() {
			_ = p.signal(unix.SIGCONT)
		}
	}
}

// kill ends each process found, and says whether there was one that had not been
// sent SIGKILL before.
func (s *supervisor) kill(found []process) (fresh bool) {
	e := s.ending
	for _, p := range found {
		if p.pid == p.group {
			e.leaders[p.group] = true
		}
	}
	// Whole groups first: one signal to a group also reaches the processes that
	// its members are forking at this moment, however fast they do it.
	done := map[int]bool{}
	for _, p := range found {
		if e.leaders[p.group] && !done[p.group] && !p.zombie() {
			done[p.group] = true
			_ = unix.Kill(-p.group, unix.SIGKILL)
		}
	}
	for _, p := range found {
		if p.zombie() {
			continue
		}
		if !e.killed[p.identity] {
			e.killed[p.identity] = true
			fresh = true
		}
		if !done[p.group] {
			_ = p.signal(unix.SIGKILL)
		}
	}
	return fresh
}

// killChildren is for chains of processes that each fork the next one and end,
// in a new group every time: by the end of a walk through /proc the one that was
// seen is gone. But the one that lives has just become this process's own child,
// so look there alone, many times a millisecond.
func killChildren() {
	const rounds = 50
	var before []int
	for range rounds {
		pids := ownChildren()
		if slices.Equal(pids, before) {
			return
		}
		before = pids
		for _, pid := range pids {
			// No other process can have this id: only this goroutine reaps.
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// reportSurvivors tells the wrapper, every killPatience, what does not end.
func (s *supervisor) reportSurvivors(found []process) {
	e := s.ending
	if time.Since(e.reported) < killPatience {
		return
	}
	e.reported = time.Now()
	var list []Survivor
	for _, p := range found {
		if p.zombie() {
			continue
		}
		survivor := Survivor{PID: p.pid, Name: p.name, State: string(p.state)}
		if err := p.signal(unix.SIGKILL); err != nil {
			survivor.Why = err.Error()
		}
		list = append(list, survivor)
	}
	_ = s.wrapper.send(report{Event: eventSurviving, Survivors: list})
}
