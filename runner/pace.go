package runner

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"time"
)

// DefaultPatience is for how long a call that gets no answer is made again.
const DefaultPatience = 2 * time.Minute

// pace is every length of time that a run knows, so that tests can scale it.
type pace struct {
	patience time.Duration // for how long a call that gets no answer is made again
	call     time.Duration // how long one try of a small call may take
	stall    time.Duration // how long a transfer may stand still
	first    time.Duration // between the first two tries
	longest  time.Duration // between later ones

	renew time.Duration // between renewals
	lost  time.Duration // between SIGTERM and SIGKILL once the tenure is lost
}

// normalPace renews often enough for people to see who is there. It is no
// deadline: a tenure does not end because a renewal is late.
var normalPace = pace{
	patience: DefaultPatience,
	call:     time.Minute,
	stall:    90 * time.Second,
	first:    250 * time.Millisecond,
	longest:  5 * time.Second,
	renew:    20 * time.Second,
	lost:     2 * time.Second,
}

// maxRetryAfter bounds what a service, or whatever answers in its place, can make
// a run wait.
const maxRetryAfter = 30 * time.Second

// retry says how long to wait after a try that failed, the first one being 0, and
// whether another makes sense: not after a refusal that will be the same again,
// nor when a file of this host was at fault.
func (p pace) retry(try int, err error) (wait time.Duration, again bool) {
	var (
		file *fs.PathError
		end  finalError
	)
	if errors.As(err, &file) || errors.As(err, &end) {
		return 0, false
	}
	wait = min(p.first<<min(try, 20), p.longest)
	var refusal *Refusal
	if errors.As(err, &refusal) {
		if !refusal.passing() {
			return 0, false
		}
		wait = max(wait, min(refusal.RetryAfter, maxRetryAfter, p.patience/4))
	}
	return jitter(wait), true
}

// jitter spreads what many clients do at the same time: it is a quarter around d.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1) //nolint:gosec // it only has to differ between clients
}
