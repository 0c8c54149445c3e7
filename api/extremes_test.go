package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"berth/api/apitest"
)

// TestNoInputIsAFault calls every operation with what its schema allows and nobody would send: the longest and the
// shortest texts, the ends of numbers and times, odd objects. Whatever the rules say to it, no answer is a fault.
func TestNoInputIsAFault(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	there := addEstate(t, server)
	there.ids["snapshotId"] = there.savedState(there.reserve()).(string)
	for _, op := range operations(t) {
		for _, token := range []string{server.OperatorToken, there.token} {
			for _, body := range extremes(op.jsonBody(), there) {
				request := apitest.Request{Method: op.method, Path: there.fill(op.path), Token: token, Body: body}
				if reply := server.Send(request); reply.Status >= 500 {
					t.Errorf("%s with %.300s: %d %s", op.OperationID, body, reply.Status, reply.Body)
				}
			}
		}
	}
}

// extremes are bodies for a schema, each with one member driven to an end of what is allowed.
func extremes(schema *openapi3.SchemaRef, there *estate) []string {
	if schema == nil {
		return []string{""}
	}
	base := minimal(schema, there)
	plain, _ := json.Marshal(base)
	bodies := []string{string(plain)}
	for _, m := range members(schema.Value) {
		if !reachable(base, m.path) {
			continue
		}
		for _, value := range endsOf(m.schema, there.idFor(m.path[len(m.path)-1])) {
			bodies = append(bodies, m.with(base, value))
		}
	}
	return bodies
}

func endsOf(s *openapi3.Schema, id string) []string {
	switch {
	case len(s.Enum) > 0:
		var words []string
		for _, word := range s.Enum {
			text, _ := json.Marshal(word)
			words = append(words, string(text))
		}
		return words
	case s.Format == "uuid":
		ends := []string{`"00000000-0000-0000-0000-000000000000"`, `"ffffffff-ffff-ffff-ffff-ffffffffffff"`}
		if id != "" {
			ends = append(ends, `"`+id+`"`, `"`+strings.ToUpper(id)+`"`, `"{`+id+`}"`)
		}
		return ends
	case s.Format == "date-time":
		return []string{
			`"0001-01-01T00:00:00Z"`, `"9999-12-31T23:59:59.999999999Z"`, `"9999-12-31T23:59:59-23:59"`,
			`"0001-01-01T00:00:00+23:59"`, `"2016-12-31T23:59:60Z"`, `"2026-02-30T00:00:00Z"`,
		}
	case s.Type.Includes("string"):
		longest := 10
		if s.MaxLength != nil {
			longest = int(*s.MaxLength)
		}
		return []string{`""`, `" "`, `"` + strings.Repeat("😀", longest) + `"`, `"\u0001\u007f\u2028\ufeff\uffff"`, `"'; DROP TABLE issues; --"`}
	case s.Type.Includes("integer"):
		return []string{`0`, `1.0`, `1e3`, `-0`, `9007199254740991`}
	case s.Type.Includes("boolean"):
		return []string{`true`, `false`}
	default:
		return []string{
			`null`, `{}`, `{"kind":1}`, `{"mode":{}}`, `{"kind":"empty","x":` + strings.Repeat(`{"a":`, 50) + `1` + strings.Repeat(`}`, 50) + `}`,
			`{"issueId":"not-an-id"}`, `{"issueId":"00000000-0000-0000-0000-000000000000"}`, `{"n":1e308,"m":-5e-324,"":null}`,
			`{"authorizationPolicy":{"assignmentPolicy":"protected"},"enabled":"yes","defaultProjectWorkspaceId":7}`,
		}
	}
}
