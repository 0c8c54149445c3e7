package runner

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	client "berth/clients/go"
)

// tenure is the run's hold on the workspace, kept up by renewals from the
// reservation on until keep's stop is called.
//
// It is no flag that says "held": only an answer of the service can say that, at
// the moment of a call. What a tenure knows is the opposite, once an answer said
// that it is over.
type tenure struct {
	service     *service
	workspaceID uuid.UUID
	claim       client.Claim
	freshToken  func(token string)

	lost  chan struct{} // closed when an answer said that it is over
	asked chan struct{} // has an element when somebody asked for the end, anew

	mu      sync.Mutex
	why     *LostError
	request *stopRequest
}

// stopRequest is somebody's wish that the run ends by itself.
type stopRequest struct {
	client.StopNotice
	left time.Duration // until its deadline, as it was when the service answered
	came time.Time
}

// grace is what is left of the time that the request gives.
func (r stopRequest) grace() time.Duration { return r.left - time.Since(r.came) }

func newTenure(s *service, workspace uuid.UUID, claim client.Claim, freshToken func(string)) *tenure {
	return &tenure{
		service: s, workspaceID: workspace, claim: claim, freshToken: freshToken,
		lost: make(chan struct{}), asked: make(chan struct{}, 1),
	}
}

// keep renews until stop is called, which waits for the last renewal to be over.
func (t *tenure) keep() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		t.renewals(ctx)
	}()
	return sync.OnceFunc(func() {
		cancel()
		<-finished
	})
}

// renewals goes on through every failure that is not an answer of the service: a
// slow network or a server that is away ends no tenure, so it must not end the
// command either.
func (t *tenure) renewals(ctx context.Context) {
	pace := t.service.pace
	wait, failures := jitter(pace.renew), 0
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		renewal, err := t.renew(ctx)
		if err == nil {
			t.take(renewal)
			wait, failures = jitter(pace.renew), 0
			continue
		}
		if ctx.Err() != nil {
			return
		}
		var again bool
		if wait, again = pace.retry(failures, err); !again {
			t.lose(err)
			return
		}
		failures++
	}
}

func (t *tenure) renew(ctx context.Context) (*client.Renewal, error) {
	ctx, cancel := context.WithTimeout(ctx, t.service.pace.call)
	defer cancel()
	reply, err := t.service.api.RenewTenureWithResponse(ctx, t.workspaceID, t.claim)
	if err != nil {
		return nil, err
	}
	return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
}

func (t *tenure) take(r *client.Renewal) {
	if r.Token != nil {
		t.service.token.Store(r.Token)
		t.freshToken(*r.Token)
	}
	if r.StopRequested == nil {
		return
	}
	// The service's own clock against itself: this host's may be off by an hour.
	request := stopRequest{StopNotice: *r.StopRequested, left: r.StopRequested.Deadline.Sub(r.LastRenewedAt), came: time.Now()}
	t.mu.Lock()
	known := t.request != nil && t.request.Reason == request.Reason && t.request.Deadline.Equal(request.Deadline)
	if !known {
		t.request = &request
	}
	t.mu.Unlock()
	if known { // each renewal tells it again
		return
	}
	select {
	case t.asked <- struct{}{}:
	default:
	}
}

// lose records that the service no longer takes the run for the writer, or gives
// an answer from which that does not follow. Only the first one counts.
func (t *tenure) lose(err error) {
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why == nil {
		t.why = &LostError{Refusal: refusal}
		close(t.lost)
	}
}

// ended says why the tenure is over, nil as long as nothing is known of that.
func (t *tenure) ended() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why == nil {
		return nil
	}
	return t.why
}

// stopRequested is the newest wish that the run ends by itself.
func (t *tenure) stopRequested() *stopRequest {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.request
}

// untilLost returns a context that ends with ctx, or when the tenure is over.
func (t *tenure) untilLost(ctx context.Context) (context.Context, context.CancelFunc) {
	return t.until(ctx, nil)
}

// untilAsked is untilLost that also ends when somebody asks for the end.
func (t *tenure) untilAsked(ctx context.Context) (context.Context, context.CancelFunc) {
	return t.until(ctx, t.asked)
}

func (t *tenure) until(ctx context.Context, asked <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-t.lost:
			cancel(t.ended())
		case <-asked:
			cancel(&Interruption{Signal: syscall.SIGTERM, Reason: t.stopRequested().Reason})
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}
