package api_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"

	"berth/api/apitest"
)

// sample makes a value that a schema allows, with all of its members.
func sample(ref *openapi3.SchemaRef) any {
	s := ref.Value
	switch {
	case len(s.AnyOf) > 0: // this or null
		return sample(s.AnyOf[0])
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Type.Includes("object"):
		object := map[string]any{}
		for name, property := range s.Properties {
			object[name] = sample(property)
		}
		return object
	case s.Type.Includes("array"):
		return []any{sample(s.Items)}
	case s.Type.Includes("integer"):
		return 1
	case s.Type.Includes("boolean"):
		return true
	case s.Format == "uuid":
		return uuid.NewString()
	case s.Format == "date-time":
		return "2026-01-02T03:04:05Z"
	case strings.Contains(s.Pattern, "{64}"):
		return strings.Repeat("a", 64)
	default:
		return "TEXT"
	}
}

// member is one value in a body, found by the path of names that leads there.
type member struct {
	path   []string
	schema *openapi3.Schema
}

// members lists the members of a body's schema, and the members of those.
func members(schema *openapi3.Schema, path ...string) []member {
	var all []member
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name].Value
		if len(property.AnyOf) > 0 { // this or null
			property = property.AnyOf[0].Value
		}
		here := append(slices.Clone(path), name)
		all = append(all, member{here, property})
		all = append(all, members(property, here...)...)
	}
	return all
}

func (m member) location() string { return "body." + strings.Join(m.path, ".") }

// with is the body with another value of the member, given as JSON.
func (m member) with(body any, value string) string {
	copied := clone(body)
	parent := copied
	for _, name := range m.path[:len(m.path)-1] {
		parent = parent[name].(map[string]any)
	}
	parent[m.path[len(m.path)-1]] = "VALUE"
	text, _ := json.Marshal(copied)
	return strings.Replace(string(text), `"VALUE"`, value, 1)
}

func clone(body any) map[string]any {
	text, _ := json.Marshal(body)
	var copied map[string]any
	_ = json.Unmarshal(text, &copied)
	return copied
}

var pathParameter = regexp.MustCompile(`\{[^}]+\}`)

// somewhere is the operation's path with ids of nothing.
func (o operation) somewhere() string {
	return pathParameter.ReplaceAllStringFunc(o.path, func(string) string { return uuid.NewString() })
}

// refusal is what a caller sees of a refused call.
type refusal struct {
	status    int
	code      string
	locations []string
}

func refusalOf(t *testing.T, reply apitest.Reply) refusal {
	t.Helper()
	var problem struct {
		Code   string
		Errors []struct{ Location string }
	}
	reply.Into(t, &problem)
	seen := refusal{status: reply.Status, code: problem.Code}
	for _, e := range problem.Errors {
		seen.locations = append(seen.locations, e.Location)
	}
	return seen
}

// TestBadInputIsRefusedAndNamed sends garbage of every kind to every operation that takes a body.
func TestBadInputIsRefusedAndNamed(t *testing.T) {
	t.Parallel()
	s := apitest.New(t)
	for _, op := range operations(t) {
		schema := op.jsonBody()
		if schema == nil {
			continue
		}
		send := func(what, body string, header http.Header, want refusal) {
			t.Helper()
			got := refusalOf(t, s.Send(apitest.Request{
				Method: op.method, Path: op.somewhere(), Token: s.OperatorToken, Header: header, Body: body,
			}))
			if got.status != want.status || got.code != want.code {
				t.Errorf("%s, %s: %d %s, want %d %s", op.OperationID, what, got.status, got.code, want.status, want.code)
			}
			for _, location := range want.locations {
				if !slices.Contains(got.locations, location) {
					t.Errorf("%s, %s: names %q, want %q", op.OperationID, what, got.locations, location)
				}
			}
		}
		good := sample(schema)
		whole, _ := json.Marshal(good)
		broken := refusal{status: 400, code: "malformed_body"}
		send("no body", "", nil, broken)
		send("half a body", string(whole[:len(whole)-1]), nil, broken)
		send("two bodies", string(whole)+string(whole), nil, broken)
		send("no JSON", "\x00\xff{", nil, broken)
		for _, kind := range []string{"text/plain", "application/json; =", "application/json+", "json", "application/cbor"} {
			send(kind, string(whole), http.Header{"Content-Type": {kind}}, refusal{status: 415, code: "unsupported_media_type"})
		}
		send("a large body", string(whole)+strings.Repeat(" ", 1<<20), nil, refusal{status: 413, code: "body_too_large"})
		invalid := func(location string) refusal {
			return refusal{status: 422, code: "validation_failed", locations: []string{location}}
		}
		send("an array", "[]", nil, invalid("body"))
		send("null", "null", nil, invalid("body"))
		send("an unknown member", member{path: []string{"surprise"}}.with(good, "1"), nil, invalid("body.surprise"))
		for _, m := range members(schema.Value) {
			for what, value := range badValues(m.schema) {
				send(m.location()+" "+what, m.with(good, value), nil, invalid(m.location()))
			}
		}
	}
}

// badValues are JSON texts that no member of this schema may have.
func badValues(s *openapi3.Schema) map[string]string {
	bad := map[string]string{
		"with NUL":           `"a\u0000b"`,
		"with a raw NUL":     "\"a\x00b\"",
		"with invalid UTF-8": "\"a\xffb\"",
		"with half a pair":   `"a\ud800b"`,
		"of another type":    `[[]]`,
		"a huge number":      `1e999`,
	}
	if s.Type.Includes("string") {
		bad["a number"] = `1`
		if s.MaxLength != nil {
			bad["too long"] = `"` + strings.Repeat("é", int(*s.MaxLength)+1) + `"`
		}
		if s.Format != "" || len(s.Enum) > 0 || s.Pattern != "" {
			bad["without its form"] = `"never-that"`
		}
	}
	if s.Type.Includes("integer") {
		bad["a fraction"] = `1.5`
		bad["a string"] = `"1"`
		if s.Min != nil {
			bad["too small"] = `-1`
			bad["too large"] = `9007199254740992`
		}
	}
	if s.Type.Includes("object") {
		bad["a string"] = `"x"`
		bad["with a NUL inside"] = `{"a":["\u0000"]}`
		delete(bad, "with a NUL inside") // it is named deeper: TestBadTextInsideFreeObjectsIsNamed
	}
	return bad
}

func TestBadTextInsideFreeObjectsIsNamed(t *testing.T) {
	t.Parallel()
	s := apitest.New(t)
	got := refusalOf(t, s.Send(apitest.Request{
		Method: http.MethodPost, Path: "/api/environments", Token: s.OperatorToken,
		Body: `{"name":"n","driver":"local","config":{"hosts":[{"name":"ok"},{"name":"\u0000"}]}}`,
	}))
	if got.status != 422 || !slices.Equal(got.locations, []string{"body.config.hosts[1].name"}) {
		t.Errorf("refused as %+v", got)
	}
}

// TestBadParametersAreRefused sends garbage in the path and the query of every operation.
func TestBadParametersAreRefused(t *testing.T) {
	t.Parallel()
	s := apitest.New(t)
	for _, op := range operations(t) {
		send := func(path, location string) {
			t.Helper()
			request := apitest.Request{Method: op.method, Path: path, Token: s.OperatorToken}
			if schema := op.jsonBody(); schema != nil {
				request.Body = sample(schema)
			}
			got := refusalOf(t, s.Send(request))
			if got.status != 422 || got.code != "validation_failed" || !slices.Contains(got.locations, location) {
				t.Errorf("%s %s: %+v, want 422 at %s", op.method, path, got, location)
			}
		}
		for _, p := range pathParameter.FindAllString(op.path, -1) {
			name := strings.Trim(p, "{}")
			for _, bad := range []string{"nope", "%00", "%ff", "..%2f..", strings.Repeat("a", 5000), "123e4567-e89b-12d3-a456-42661417400g"} {
				path := strings.Replace(op.path, p, bad, 1)
				send(pathParameter.ReplaceAllStringFunc(path, func(string) string { return uuid.NewString() }), "path."+name)
			}
		}
		send(op.somewhere()+"?surprise=1", "query.surprise")
		send(op.somewhere()+"?surprise=%00", "query.surprise")
		send(op.somewhere()+"?%zz", "query")
		for _, p := range op.Parameters {
			if p.Value.In != "query" {
				continue
			}
			send(op.somewhere()+"?"+p.Value.Name+"=%00", "query."+p.Value.Name)
			if p.Value.Name != "cursor" && p.Value.Name != "source" {
				send(op.somewhere()+"?"+p.Value.Name+"=-nope-", "query."+p.Value.Name)
			}
		}
	}
}

func TestAForeignCursorIsRefused(t *testing.T) {
	t.Parallel()
	s := apitest.New(t)
	for _, cursor := range []string{"x", "AAAA", "eyJ0IjoxfQ", "99999999999999999999999"} {
		got := refusalOf(t, s.Send(apitest.Request{
			Method: http.MethodGet, Path: "/api/companies?cursor=" + cursor, Token: s.OperatorToken,
		}))
		if got.status != 422 || !slices.Contains(got.locations, "query.cursor") {
			t.Errorf("cursor %s: %+v", cursor, got)
		}
	}
}

func TestNullIsTakenWhereADocumentSaysSo(t *testing.T) {
	t.Parallel()
	s := apitest.New(t)
	for _, op := range operations(t) {
		schema := op.jsonBody()
		if schema == nil {
			continue
		}
		for _, name := range schema.Value.Required {
			m := member{path: []string{name}, schema: schema.Value.Properties[name].Value}
			got := refusalOf(t, s.Send(apitest.Request{
				Method: op.method, Path: op.somewhere(), Token: s.OperatorToken, Body: m.with(sample(schema), "null"),
			}))
			refused := got.status == 422 && slices.Contains(got.locations, m.location())
			if allowed := m.schema.Type.Includes("null"); refused == allowed {
				t.Errorf("%s: %s null answers %+v", op.OperationID, m.location(), got)
			}
		}
	}
}
