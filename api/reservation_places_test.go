package api_test

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// reservePath is where a task's workspace is reserved, explained and waited for.
func reservePath(issue string) string { return "/api/issues/" + issue + "/workspace/reservation" }

// hold makes a new run the writer of the task's workspace, and returns it with its claim.
func (s *scene) hold(issue string) (writer, object) {
	s.t.Helper()
	by := s.run(issue)
	status, answer := s.reserve(issue, by, nil)
	if status != http.StatusOK {
		s.t.Fatalf("reserve: %d %v", status, answer)
	}
	authority := answer["workspace"].(object)["authority"].(object)
	return by, object{"runId": by.id, "epoch": authority["epoch"]}
}

// line is the queue of the task's workspace as the token's holder sees it.
func (s *scene) line(issue, token string) []any {
	s.t.Helper()
	status, answer := s.Do(http.MethodGet, reservePath(issue)+"/queue", token, nil)
	if status != http.StatusOK {
		s.t.Fatalf("list the queue: %d %v", status, answer)
	}
	return answer["items"].([]any)
}

// inLine returns once n runs wait.
func (s *scene) inLine(issue string, n int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for len(s.line(issue, s.OperatorToken)) != n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.t.Fatalf("never %d in line", n)
		}
	}
}

func TestAReservationThatWaitsIsAnsweredWhenItsTurnComes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	parent, workspace := s.parent(nil)
	child := s.child(parent)
	holder, claim := s.hold(parent)
	by := s.run(child)
	type reply struct {
		status int
		body   object
	}
	answered := make(chan reply, 1)
	go func() {
		status, body := s.reserve(child, by, object{"waitSeconds": 60})
		answered <- reply{status, body}
	}()
	s.inLine(child, 1)
	place := s.line(child, by.token)[0].(object)
	if place["position"] != 1.0 || place["runId"] != by.id || place["issueId"] != child || place["arrivedAt"] == nil {
		t.Errorf("the place is %v", place)
	}
	if status, answer := s.Do(http.MethodPost, "/api/execution-workspaces/"+workspace+"/release", holder.token, claim); status != http.StatusOK {
		t.Fatalf("release: %d %v", status, answer)
	}
	got := <-answered
	if got.status != http.StatusOK || got.body["workspace"].(object)["authority"].(object)["writerRunId"] != by.id {
		t.Errorf("the wait came to %d %v", got.status, got.body)
	}
	if left := s.line(child, by.token); len(left) != 0 {
		t.Errorf("the line is %v", left)
	}
}

func TestAWaitIsRefusedWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	parent, workspace := s.parent(nil)
	s.hold(parent)
	by := s.run(parent)
	s.unchanged(workspace, func() {
		status, answer := s.reserve(parent, by, object{"waitSeconds": 1})
		refused(t, status, answer, http.StatusConflict, "remote_workspace_writer_pending")
		if details := answer["details"].(object); details["state"] != "writer_running" || details["position"] != 1.0 {
			t.Errorf("details %v", details)
		}
		for _, seconds := range []any{-1, 61, 1.5, "10"} {
			status, answer := s.reserve(parent, by, object{"waitSeconds": seconds})
			refused(t, status, answer, http.StatusUnprocessableEntity, "validation_failed")
		}
	})
}

func TestAPlaceIsGivenUpByItsOwnRunOrAnOperator(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	parent, _ := s.parent(nil)
	s.hold(parent)
	by, other := s.run(parent), s.run(parent)
	status, answer := s.reserve(parent, by, object{"waitSeconds": 1})
	refused(t, status, answer, http.StatusConflict, "remote_workspace_writer_pending")
	place := reservePath(parent) + "?runId=" + by.id
	status, answer = s.Do(http.MethodDelete, place, other.token, nil)
	refused(t, status, answer, http.StatusForbidden, "not_allowed")
	for _, token := range []string{by.token, s.OperatorToken} {
		if status, answer := s.Do(http.MethodDelete, place, token, nil); status != http.StatusNoContent {
			t.Errorf("give up: %d %v", status, answer)
		}
		s.inLine(parent, 0)
	}
	status, answer = s.Do(http.MethodDelete, reservePath(parent), by.token, nil)
	refused(t, status, answer, http.StatusUnprocessableEntity, "validation_failed")
}
