package api_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"berth/api/apitest"
)

func TestACreateSentAgainAnswersWhatItAnsweredFirst(t *testing.T) {
	t.Parallel()
	s := newEstate(t)
	company := "/api/companies/" + s.ids["companyId"]
	send := func(path, key, body string) apitest.Reply {
		return s.Send(apitest.Request{
			Method: http.MethodPost, Path: path, Token: s.OperatorToken, Body: body,
			Header: http.Header{"Idempotency-Key": {key}},
		})
	}
	const body = `{"title":"Once"}`
	first := send(company+"/issues", "k 1", body)
	for _, again := range []apitest.Reply{send(company+"/issues", "k 1", body), send(company+"/issues", "k 1", body)} {
		if again.Status != http.StatusCreated || string(again.Body) != string(first.Body) {
			t.Errorf("first %s, again %d %s", first.Body, again.Status, again.Body)
		}
	}
	for _, other := range []apitest.Reply{send(company+"/issues", "k 1", `{"title":"Twice"}`), send(company+"/issues", "k 1", `{"title": "Once"}`)} {
		if other.Status != http.StatusConflict || other.JSON()["code"] != "idempotency_key_reused" {
			t.Errorf("another body under the key: %d %s", other.Status, other.Body)
		}
	}
	if fresh := send(company+"/issues", "k 2", body); fresh.JSON()["id"] == first.JSON()["id"] {
		t.Error("another key answers the same task")
	}
	for _, bad := range []string{strings.Repeat("k", 201), "k\x80", "k\tk"} {
		if reply := send(company+"/issues", bad, body); reply.Status != http.StatusUnprocessableEntity {
			t.Errorf("key %q: %d %s", bad, reply.Status, reply.Body)
		}
	}
}

func TestCreatesSentAtOnceUnderOneKeyMakeOne(t *testing.T) {
	t.Parallel()
	s := newEstate(t)
	path := "/api/companies/" + s.ids["companyId"] + "/heartbeat-runs"
	body := map[string]any{"agentId": s.ids["agentId"], "issueId": s.ids["issueId"]}
	var together sync.WaitGroup
	ids := make([]any, 20)
	for i := range ids {
		together.Go(func() {
			reply := s.Send(apitest.Request{
				Method: http.MethodPost, Path: path, Token: s.OperatorToken, Body: body,
				Header: http.Header{"Idempotency-Key": {"together"}},
			})
			if run, ok := reply.JSON()["run"].(map[string]any); ok && reply.JSON()["token"] != "" {
				ids[i] = run["id"]
			}
		})
	}
	together.Wait()
	for _, id := range ids {
		if id == nil || id != ids[0] {
			t.Fatalf("runs are %v", ids)
		}
	}
}

func TestASecretIsShownOnce(t *testing.T) {
	t.Parallel()
	s := apitest.New(t)
	create := apitest.Request{
		Method: http.MethodPost, Path: "/api/tokens", Token: s.OperatorToken, Body: `{"name":"Auditor","role":"auditor"}`,
		Header: http.Header{"Idempotency-Key": {"token"}},
	}
	first, again := s.Send(create).JSON(), s.Send(create).JSON()
	secret, _ := first["secret"].(string)
	if secret == "" || again["secret"] != nil || again["token"].(map[string]any)["id"] != first["token"].(map[string]any)["id"] {
		t.Fatalf("first %v, again %v", first, again)
	}
	if status, _ := s.Do(http.MethodGet, "/api/companies", secret, nil); status != http.StatusOK {
		t.Errorf("by the secret: %d", status)
	}
	if status, answer := s.Do(http.MethodPost, "/api/companies", secret, map[string]any{"name": "No"}); status != http.StatusForbidden {
		t.Errorf("an auditor writes: %d %v", status, answer)
	}
	path := "/api/tokens/" + first["token"].(map[string]any)["id"].(string)
	if status, _ := s.Do(http.MethodDelete, path, s.OperatorToken, nil); status != http.StatusNoContent {
		t.Errorf("revoke: %d", status)
	}
	if status, _ := s.Do(http.MethodGet, "/api/companies", secret, nil); status != http.StatusUnauthorized {
		t.Errorf("by the revoked secret: %d", status)
	}
}
