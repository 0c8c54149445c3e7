package apitest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestContractRefusesWhatTheDocumentDoesNotSay(t *testing.T) {
	t.Parallel()
	const (
		path    = "/api/companies"
		id      = "01890a5d-ac96-774b-bcce-b302099a8057"
		company = `{"id":"` + id + `","name":"A","issuePrefix":"A","issueCounter":0,"status":"active",` +
			`"createdAt":"2026-01-02T03:04:05.000006Z","updatedAt":"2026-01-02T03:04:05.000006Z"}`
		list    = `{"items":[` + company + `],"nextCursor":null}`
		problem = `{"type":"about:blank","title":"Not Found","status":404,"detail":"d","instance":"/x","code":"route_not_found",` +
			`"details":{},"requestId":"r","errors":[]}`
	)
	for name, c := range map[string]struct {
		path, kind, body string
		status           int
		right            bool
	}{
		"a list":                {path, "application/json", list, 200, true},
		"a problem":             {"/nothing", "application/problem+json", problem, 404, true},
		"no items":              {path, "application/json", `{"nextCursor":null}`, 200, false},
		"items that are null":   {path, "application/json", `{"items":null,"nextCursor":null}`, 200, false},
		"a member too much":     {path, "application/json", strings.Replace(list, `"name"`, `"more":1,"name"`, 1), 200, false},
		"a member too little":   {path, "application/json", strings.Replace(list, `"issueCounter":0,`, ``, 1), 200, false},
		"null for a string":     {path, "application/json", strings.Replace(list, `"name":"A"`, `"name":null`, 1), 200, false},
		"no id":                 {path, "application/json", strings.Replace(list, id, "1", 1), 200, false},
		"no time":               {path, "application/json", strings.Replace(list, "2026-01-02T03", "2026-01-02 03", 1), 200, false},
		"no microseconds":       {path, "application/json", strings.Replace(list, "05.000006Z", "05Z", 1), 200, false},
		"another time zone":     {path, "application/json", strings.Replace(list, "06Z", "06+00:00", 1), 200, false},
		"an unknown word":       {path, "application/json", strings.Replace(list, "active", "asleep", 1), 200, false},
		"an epoch too large":    {path, "application/json", strings.Replace(list, `"issueCounter":0`, `"issueCounter":9007199254740992`, 1), 200, false},
		"another status":        {path, "application/json", list, 202, false},
		"another type":          {path, "text/plain", list, 200, false},
		"an unknown route":      {"/api/nothing", "application/json", `{}`, 200, false},
		"a problem as text":     {"/nothing", "text/plain", problem, 404, false},
		"a problem with a leak": {"/nothing", "application/problem+json", strings.Replace(problem, `"code"`, `"sql":1,"code"`, 1), 404, false},
	} {
		reply := Reply{Status: c.status, Header: http.Header{"Content-Type": {c.kind}}, Body: []byte(c.body)}
		err := loadContract(t).check(httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil), reply)
		if right := err == nil; right != c.right {
			t.Errorf("%s: %v", name, err)
		}
	}
}
