package runner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	client "berth/clients/go"
)

// askSeconds is how long one request waits in line: less than the service allows, and than proxies cut off.
const askSeconds = 50

// Line is the wait for a workspace whose writer is unfinished.
type Line struct {
	// Wait is how long to wait; zero asks once.
	Wait time.Duration
	// Pending finds in an error the refusal that means: others have it, wait.
	Pending func(error) (client.Problem, bool)
	// Note tells a person where the run stands, when that changes.
	Note func(format string, args ...any)

	told string
}

// Ask makes a reservation until it is granted, refused for good, or the wait is over; then the last refusal is the
// error. Each call of ask keeps the run's place in line for the seconds that it is given, and for a minute afterwards.
func (l *Line) Ask(ctx context.Context, ask func(ctx context.Context, seconds int) error) error {
	until := time.Now().Add(l.Wait)
	for {
		seconds := min(int(time.Until(until)/time.Second), askSeconds)
		began := time.Now()
		err := ask(ctx, max(seconds, 0))
		problem, pending := client.Problem{}, false
		if err != nil {
			problem, pending = l.Pending(err)
		}
		if !pending || seconds <= 0 {
			return err
		}
		l.tell(problem)
		// The service kept the request for as long as it was asked to. If it did not, the place was given up or a server
		// is ending: not at once again, then, and not in step with others.
		if early := time.Duration(seconds)*time.Second - time.Since(began); early > time.Second {
			pause := time.Second + rand.N(2*time.Second) //nolint:gosec // it spreads requests, and hides nothing
			select {
			case <-time.After(min(pause, early)):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// tell says where the run stands, if that is not what was said last.
func (l *Line) tell(p client.Problem) {
	var d struct {
		State    string  `json:"state"`
		Position *int64  `json:"position"`
		Holder   *holder `json:"holder"`
	}
	detailsInto(p.Details, &d)
	text := "waiting for the workspace"
	if d.Position != nil {
		text += fmt.Sprintf(", number %d in line", *d.Position)
	}
	if d.Holder != nil {
		text += fmt.Sprintf(": run %s (%s) has it at epoch %d", plain(d.Holder.RunID), plain(d.Holder.RunStatus), d.Holder.Epoch)
	}
	switch d.State {
	case "writer_silent":
		text += "; nothing was heard of that run for some time"
	case "writer_ended_dirty":
		text += "; that run ended with unsaved work: berth recover saves it, or an operator takes over"
	case "writer_ended_unproven":
		text += "; that run ended, and is not proven stopped"
	}
	if text != l.told {
		l.Note("%s", text)
		l.told = text
	}
}
