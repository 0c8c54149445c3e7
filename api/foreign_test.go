package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"berth/api/apitest"
)

// TestForeignIDsAreAnsweredLikeUnknownOnes calls every operation with ids of another company, in path, query and
// body, and again with ids of nothing. Whoever is of one company cannot tell the two apart, and never gets in.
func TestForeignIDsAreAnsweredLikeUnknownOnes(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	mine, theirs := addEstate(t, server), addEstate(t, server)
	base := theirs.reserve()
	theirs.ids["snapshotId"] = theirs.savedState(base).(string)
	callers := map[string]string{"a run": mine.token, "a member": memberToken(t, mine)}
	for _, op := range operations(t) {
		if !strings.Contains(op.path, "{") || strings.Contains(op.path, "{environmentId}") {
			continue // environments belong to no company
		}
		for who, token := range callers {
			foreign := call(t, server, op, token, theirs.ids)
			unknown := call(t, server, op, token, unknownIDs(theirs.ids))
			explained := op.OperationID == "explainReservation" && foreign.JSON()["code"] == "issue_not_found" // 200 for every verdict
			if (foreign.Status < 400 || foreign.Status >= 500) && !explained {
				t.Errorf("%s as %s of another company: %d %s", op.OperationID, who, foreign.Status, foreign.Body)
			}
			if a, b := told(foreign), told(unknown); a != b {
				t.Errorf("%s as %s: a foreign id answers %s, an unknown one %s", op.OperationID, who, a, b)
			}
		}
	}
}

// TestIDsOfAnotherCompanyInABodyAreUnknown names, inside one's own company, what belongs to another: each member of
// each body that is an id, one at a time.
func TestIDsOfAnotherCompanyInABodyAreUnknown(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	server.Must(http.MethodPatch, "/api/instance/settings", map[string]any{
		"experimental": map[string]any{"enableIsolatedWorkspaces": true}, // else a new task's workspace is not looked at
	})
	mine, theirs := addEstate(t, server), addEstate(t, server)
	mine.reserve()
	theirs.reserve()
	for _, op := range operations(t) {
		schema := op.jsonBody()
		if schema == nil || !strings.Contains(op.path, "{") {
			continue
		}
		for _, m := range members(schema.Value) {
			name := m.path[len(m.path)-1]
			their := theirs.idFor(name)
			if m.schema.Format != "uuid" || their == "" || name == "environmentId" {
				continue // environments belong to no company
			}
			body := minimal(schema, mine)
			if !reachable(body, m.path) {
				continue
			}
			for _, id := range []string{their, newID()} {
				reply := server.Send(apitest.Request{
					Method: op.method, Path: mine.fill(op.path), Token: server.OperatorToken, Body: m.with(body, `"`+id+`"`),
				})
				if reply.Status < 400 || reply.Status >= 500 {
					t.Errorf("%s with a foreign %s: %d %s", op.OperationID, m.location(), reply.Status, reply.Body)
				}
			}
		}
	}
}

// told is what a caller learns from an answer, without what differs from call to call.
func told(reply apitest.Reply) string {
	answer := reply.JSON()
	delete(answer, "requestId")
	delete(answer, "instance")
	text, _ := json.Marshal(answer)
	return http.StatusText(reply.Status) + " " + string(text)
}

func unknownIDs(ids map[string]string) map[string]string {
	unknown := map[string]string{}
	for name := range ids {
		unknown[name] = newID()
	}
	return unknown
}

// call makes a valid call of the operation with these ids wherever it takes one.
func call(t *testing.T, server *apitest.Server, op operation, token string, ids map[string]string) apitest.Reply {
	t.Helper()
	there := &estate{Server: server, t: t, ids: ids}
	path := there.fill(op.path)
	var query []string
	for _, p := range op.Parameters {
		if p.Value.In == "query" && (p.Value.Required || strings.HasSuffix(p.Value.Name, "Id")) {
			value := there.idFor(p.Value.Name)
			if value == "" {
				value = sample(p.Value.Schema).(string)
			}
			query = append(query, p.Value.Name+"="+value)
		}
	}
	request := apitest.Request{Method: op.method, Path: path + "?" + strings.Join(query, "&"), Token: token}
	if schema := op.jsonBody(); schema != nil {
		request.Body = minimal(schema, there)
	}
	return server.Send(request)
}

// fill puts the estate's ids into a path.
func (s *estate) fill(path string) string {
	return pathParameter.ReplaceAllStringFunc(path, func(p string) string {
		if id := s.idFor(strings.Trim(p, "{}")); id != "" {
			return id
		}
		return newID()
	})
}

// idFor is the estate's id for a member of this name, or nothing when it has none.
func (s *estate) idFor(name string) string {
	kinds := map[string]string{
		"heartbeatRunId": "runId", "replacedByRunId": "runId", "executionRunId": "runId", "checkoutRunId": "runId", "writerRunId": "runId",
		"parentId": "issueId", "privacyRootIssueId": "issueId", "privacyParentIssueId": "issueId", "sourceIssueId": "issueId",
		"inheritExecutionWorkspaceFromIssueId": "issueId", "executionWorkspaceId": "workspaceId", "existingWorkspaceId": "workspaceId",
		"assigneeAgentId": "agentId", "reportsToAgentId": "agentId", "principalId": "agentId", "parentSnapshotId": "snapshotId",
	}
	if kind, ok := kinds[name]; ok {
		name = kind
	}
	return s.ids[name]
}

func memberToken(t *testing.T, s *estate) string {
	t.Helper()
	user := newID()
	s.Must(http.MethodPost, "/api/companies/"+s.ids["companyId"]+"/memberships", map[string]any{"principalType": "user", "principalId": user})
	return s.Must(http.MethodPost, "/api/tokens", map[string]any{"name": "Member", "role": "member", "userId": user})["secret"].(string)
}

// minimal is a body with the members that the schema requires, and the estate's ids in them.
func minimal(schema *openapi3.SchemaRef, s *estate) map[string]any {
	body := map[string]any{}
	for _, name := range schema.Value.Required {
		property := schema.Value.Properties[name]
		switch id := s.idFor(name); {
		case property.Value.Type.Includes("object") && len(property.Value.Properties) > 0:
			body[name] = minimal(property, s)
		case id != "":
			body[name] = id
		case name == "principalType":
			body[name] = "agent"
		default:
			body[name] = sample(property)
		}
	}
	return body
}

// reachable reports whether a body has the object that a path ends in.
func reachable(body map[string]any, path []string) bool {
	for _, name := range path[:len(path)-1] {
		inner, ok := body[name].(map[string]any)
		if !ok {
			return false
		}
		body = inner
	}
	return true
}
