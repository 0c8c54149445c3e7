package api_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"berth/api/apitest"
)

// outOfTime is when a call counts as one that hangs: longer than what a request may wait for room, a connection and
// a lock, one after the other.
const outOfTime = time.Minute

// soon calls and wants an answer in time that is no failure, or tells when to come again.
func soon(t *testing.T, what string, call func() apitest.Reply) apitest.Reply {
	t.Helper()
	began := time.Now()
	reply := call()
	switch {
	case reply.Status == 0 || reply.Status >= 500 && (reply.Status != http.StatusServiceUnavailable || reply.Header.Get("Retry-After") == ""):
		t.Errorf("%s: %d %s", what, reply.Status, reply.Body)
	case time.Since(began) > outOfTime:
		t.Errorf("%s took %s", what, time.Since(began))
	}
	return reply
}

// An operation that takes a second connection while it holds one waits for itself when there is only one.
func TestEveryOperationNeedsOneConnectionAtATime(t *testing.T) {
	t.Parallel()
	s := addEstate(t, apitest.NewSmall(t, 1))
	s.ids["snapshotId"] = s.savedState(s.reserve()).(string)
	for _, op := range operations(t) {
		for who, token := range map[string]string{"the operator": s.OperatorToken, "the run": s.token} {
			reply := soon(t, op.OperationID+" as "+who, func() apitest.Reply { return call(t, s.Server, op, token, s.ids) })
			if reply.Status == http.StatusServiceUnavailable {
				t.Errorf("%s as %s: %s", op.OperationID, who, reply.Body)
			}
		}
	}
}

// TestAPoolOfTwoAnswersFiftyAtOnce makes 50 calls of each operation at once, all for the same things, when two of them
// can be in the database.
func TestAPoolOfTwoAnswersFiftyAtOnce(t *testing.T) {
	t.Parallel()
	const atOnce = 50
	s := addEstate(t, apitest.NewSmall(t, 2))
	s.ids["snapshotId"] = s.savedState(s.reserve()).(string)
	for _, op := range operations(t) {
		var all sync.WaitGroup
		for i := range atOnce {
			token := []string{s.OperatorToken, s.token}[i%2]
			all.Go(func() {
				soon(t, op.OperationID, func() apitest.Reply { return call(t, s.Server, op, token, s.ids) })
			})
		}
		all.Wait()
	}
	if status, answer := s.Do(http.MethodGet, "/api/ready", "", nil); status != http.StatusOK {
		t.Errorf("afterwards: %d %v", status, answer)
	}
}

func TestRenewalsDoNotWaitBehindRequests(t *testing.T) {
	t.Parallel()
	const queued = 20
	s := addEstate(t, apitest.NewSmall(t, 2))
	stuck := s.reserve()
	stuckClaim, stuckToken := s.claim(), s.token
	other := addEstate(t, s.Server)
	free := other.reserve()

	lock, err := pgx.Connect(t.Context(), s.Database.ServiceURL)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // the lock falls with it
	tx, err := lock.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM execution_workspaces WHERE id = $1 FOR UPDATE", s.ids["workspaceId"]); err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	for range queued {
		waiting.Go(func() {
			soon(t, "a call that waits for the lock", func() apitest.Reply {
				return s.Send(apitest.Request{Method: http.MethodPost, Path: stuck + "/dirty", Token: stuckToken, Body: stuckClaim})
			})
		})
	}
	s.awaitLocks(t, 2) // both connections of the requests are taken now
	began := time.Now()
	for range 10 {
		reply := s.Send(apitest.Request{Method: http.MethodPost, Path: free + "/renew", Token: other.token, Body: other.claim()})
		if reply.Status != http.StatusOK {
			t.Errorf("renew while requests queue: %d %s", reply.Status, reply.Body)
		}
	}
	if took := time.Since(began); took > 8*time.Second { // a request waits 10 s for a connection
		t.Errorf("ten renewals took %s", took)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
}

// awaitLocks waits until so many sessions of the service wait for a lock.
func (s *estate) awaitLocks(t *testing.T, n int) {
	t.Helper()
	admin, err := pgx.Connect(t.Context(), s.Database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // it only read
	deadline := time.After(30 * time.Second)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		var waiting int
		if err := admin.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		if waiting >= n {
			return
		}
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("only %d of %d sessions wait for a lock", waiting, n)
		}
	}
}
