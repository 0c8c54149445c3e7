package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	client "berth/clients/go"
)

// Refusal is an answer of the service that is not a success. Which one it is
// says Problem.Code; a code that this program does not know means "do not act".
type Refusal struct {
	Status     int
	Problem    client.Problem
	RetryAfter time.Duration // zero when the service named no time
}

func (e *Refusal) Error() string {
	text := fmt.Sprintf("%s (%s)", e.Problem.Detail, e.Problem.Code)
	for _, field := range e.Problem.Errors {
		text += fmt.Sprintf("; %s %s", field.Location, field.Message)
	}
	return text
}

// passing tells whether the same call may succeed later: the service is busy, or
// has trouble of its own.
func (e *Refusal) passing() bool {
	return e.Status >= http.StatusInternalServerError ||
		e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooManyRequests
}

// refusedWith tells whether the service refused with one of the codes.
func refusedWith(err error, codes ...string) bool {
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		return false
	}
	for _, code := range codes {
		if refusal.Problem.Code == code {
			return true
		}
	}
	return false
}

// service is the API as one bearer sees it.
type service struct {
	api   *client.ClientWithResponses
	token atomic.Pointer[string]
	pace  pace
	note  func(format string, args ...any)
}

// connect prepares calls to the service; it makes none.
func connect(o Options, token string) (*service, error) {
	s := &service{pace: o.pace, note: o.note}
	s.token.Store(&token)
	doer := o.HTTP
	if doer == nil {
		doer = &http.Client{Transport: transport()}
	}
	api, err := client.NewClientWithResponses(o.URL, client.WithHTTPClient(doer), client.WithRequestEditorFn(s.sign))
	if err != nil {
		return nil, fmt.Errorf("the service's address %q: %w", o.URL, err)
	}
	s.api = api
	return s, nil
}

func (s *service) sign(_ context.Context, request *http.Request) error {
	request.Header.Set("Authorization", "Bearer "+*s.token.Load())
	return nil
}

// transport bounds what takes no time on a network that works. How long a call
// may take as a whole is for the call to say: snapshots are large.
func transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	return t
}

// answer makes of a reply what it carries, or the refusal that it is. Anything
// else did not come from the service, whatever its status: a proxy's page, or
// half an answer.
func answer[T any](value *T, response *http.Response, body []byte) (*T, error) {
	if value != nil {
		return value, nil
	}
	return nil, refusalOf(response, body)
}

func refusalOf(response *http.Response, body []byte) error {
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	r := &Refusal{Status: response.StatusCode}
	if err != nil || kind != "application/problem+json" || json.Unmarshal(body, &r.Problem) != nil || r.Problem.Code == "" {
		return fmt.Errorf("%s answered %s, and not as Berth does", response.Request.URL.Host, response.Status)
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		r.RetryAfter = time.Duration(seconds) * time.Second
	}
	return r
}

// maxRefusal is far more than any refusal has.
const maxRefusal = 1 << 20

// refusalFrom is refusalOf for a reply whose body nobody has read; it closes it.
func refusalFrom(response *http.Response) error {
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	if err != nil {
		return fmt.Errorf("read a refusal: %w", err)
	}
	return refusalOf(response, body)
}

// persistently makes a call until it has a final answer. A call that gets none
// (the network, a restart, 503) is made again, at growing distances with jitter,
// for as long as the pace's patience lasts after the first failure. So the call
// must be safe to repeat.
//
// what names the call in errors, as in "reserve the workspace". When ctx ends
// the error is its cause.
func persistently[T any](ctx context.Context, s *service, what string, call func(context.Context) (*T, error)) (*T, error) {
	var failing time.Time
	for try := 0; ; try++ {
		value, err := call(ctx)
		if err == nil {
			return value, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		wait, again := s.pace.retry(try, err)
		if !again {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		if time.Since(failing)+wait > s.pace.patience {
			return nil, fmt.Errorf("%s: no answer for %s: %w", what, time.Since(failing).Round(time.Second/10), err)
		}
		if try == 1 { // once is nothing
			s.note("cannot %s for now, trying on for %s: %v", what, s.pace.patience, err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
	}
}

// brief is persistently for calls whose answer is small: each try has a deadline
// of its own.
func brief[T any](ctx context.Context, s *service, what string, call func(context.Context) (*T, error)) (*T, error) {
	return persistently(ctx, s, what, func(ctx context.Context) (*T, error) {
		ctx, cancel := context.WithTimeout(ctx, s.pace.call)
		defer cancel()
		return call(ctx)
	})
}
