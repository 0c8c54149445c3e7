package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"berth/authority"
)

func TestEveryRefusalHasAStatus(t *testing.T) {
	t.Parallel()
	known := map[authority.Code]bool{}
	for _, code := range authority.Codes() {
		known[code] = true
		if status := statuses[code]; status < 400 || status > 599 {
			t.Errorf("%s has the status %d: give it one in errors.go", code, status)
		}
	}
	for code := range statuses {
		if !known[code] {
			t.Errorf("%s has a status and is no refusal of the rules", code)
		}
	}
}

func TestCodesOfHTTPAreNotThoseOfTheRules(t *testing.T) {
	t.Parallel()
	for status, p := range transportProblems {
		if want, ok := statuses[p.code]; ok && want != status {
			t.Errorf("%s is %d by HTTP and %d by the rules", p.code, status, want)
		}
	}
	if _, ok := statuses[codeInternal]; ok {
		t.Errorf("%s is for faults, not for refusals", codeInternal)
	}
}

func quietServer(log *bytes.Buffer) *server {
	return &server{log: slog.New(slog.NewTextHandler(log, nil))}
}

func TestFaultsTellTheCallerNothingAndTheLogAll(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := quietServer(&log)
	x := &exchange{id: "req-1", method: "POST", path: "/api/x"}
	cause := errors.New(`ERROR: duplicate key value violates unique constraint "secret_key" (SQLSTATE 23505)`)
	p := s.problem(withExchange(t.Context(), x), fmt.Errorf("insert a row: %w", cause))
	body, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, leak := range []string{"SQLSTATE", "secret_key", "insert a row", "ERROR"} {
		if bytes.Contains(body, []byte(leak)) {
			t.Errorf("the answer %s has %q in it", body, leak)
		}
	}
	if p.Status != http.StatusInternalServerError || p.Code != "internal" || p.RequestID != "req-1" {
		t.Errorf("problem is %+v", p)
	}
	if !strings.Contains(log.String(), "secret_key") || !strings.Contains(log.String(), "req-1") {
		t.Errorf("the log has not the cause under the request id: %s", log.String())
	}
}

func TestDetailsWithoutAFormAreAFaultAndNotAnAnswer(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	type unknown struct{ Secret string }
	p := quietServer(&log).problem(t.Context(), authority.ErrNoWriter.With(unknown{"s3cret"}))
	if p.Status != http.StatusInternalServerError || !strings.Contains(log.String(), "unknown") {
		t.Errorf("problem is %+v, log %s", p, log.String())
	}
}

func TestRefusalsSayWhenToComeAgain(t *testing.T) {
	t.Parallel()
	s := quietServer(&bytes.Buffer{})
	pending := s.problem(t.Context(), authority.ErrWriterPending.With(authority.WriterPending{
		State: "writer_running", MissingProof: []authority.MissingProof{}, RetryAfter: 2500 * time.Millisecond,
	}))
	if got := pending.headers.Get("Retry-After"); got != "3" {
		t.Errorf("Retry-After of a held workspace is %q, want 3", got)
	}
	if want := `{"state":"writer_running","holder":null,"stopRequested":null,"missingProof":[],"position":null,"retryAfterMs":2500}`; string(pending.Details) != want {
		t.Errorf("details are %s, want %s", pending.Details, want)
	}
	if got := s.problem(t.Context(), authority.ErrUnavailable).headers.Get("Retry-After"); got == "" {
		t.Error("503 has no Retry-After")
	}
	if got := s.problem(t.Context(), authority.ErrStaleEpoch).headers.Get("Retry-After"); got != "" {
		t.Errorf("Retry-After of a stale epoch is %q: it never gets better", got)
	}
}

func TestDetailsAreCamelCaseAndUTC(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("east", 3600))
	reason := "broken"
	for name, c := range map[string]struct {
		details any
		want    string
	}{
		"holder": {
			authority.WriterPending{
				State: "writer_ended_unproven", RetryAfter: time.Second,
				Holder:       &authority.Holder{RunID: id, Epoch: 4, Since: at, RunStatus: "failed"},
				Stop:         &authority.StopPending{Reason: reason, Deadline: at, State: "alert"},
				MissingProof: []authority.MissingProof{{LeaseID: id, Provider: "p", Reason: "receipt_missing"}},
			},
			`{"state":"writer_ended_unproven","holder":{"runId":"` + id.String() + `","issueId":null,"epoch":4,` +
				`"since":"2026-01-02T02:04:05.000006Z","runStatus":"failed","lastRenewedAt":null},` +
				`"stopRequested":{"reason":"broken","deadline":"2026-01-02T02:04:05.000006Z","state":"alert"},` +
				`"missingProof":[{"leaseId":"` + id.String() + `","provider":"p","reason":"receipt_missing"}],"position":null,"retryAfterMs":1000}`,
		},
		"ending": {
			authority.TenureEnding{EndedAt: at, How: "takeover", By: "token:1", Reason: &reason},
			`{"endedAt":"2026-01-02T02:04:05.000006Z","how":"takeover","by":"token:1","reason":"broken"}`,
		},
		"takeover": {authority.TakeoverProof{}, `{"missingProof":[]}`},
		"recovery": {authority.RecoveryProof{RunID: id, RunStatus: "running"}, `{"runId":"` + id.String() + `","runStatus":"running","missingProof":[]}`},
		"receipt":  {authority.ReceiptRejection{Reason: "provider_local"}, `{"reason":"provider_local"}`},
		"none":     {nil, `{}`},
	} {
		object, err := detailsOf(c.details)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, _ := json.Marshal(object); string(got) != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func TestACallerThatLeftIsNoFault(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	ctx, leave := context.WithCancel(t.Context())
	leave()
	p := quietServer(&log).problem(ctx, fmt.Errorf("read a row: %w", context.Canceled))
	if p.Status != http.StatusServiceUnavailable || log.Len() > 0 {
		t.Errorf("problem is %+v, log %s", p, log.String())
	}
}
