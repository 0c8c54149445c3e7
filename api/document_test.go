package api_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"berth/api"
	"berth/api/apitest"
)

// operation is one operation of the document, for tests that walk over all of them.
type operation struct {
	method, path string
	*openapi3.Operation
}

func operations(t *testing.T) []operation {
	t.Helper()
	var all []operation
	for path, item := range apitest.Document(t).Paths.Map() {
		for method, op := range item.Operations() {
			all = append(all, operation{method, path, op})
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.OperationID, b.OperationID) })
	if len(all) < 60 {
		t.Fatalf("the document has %d operations, which cannot be all of them", len(all))
	}
	return all
}

// jsonBody is the schema of the body that the operation takes, or nil.
func (o operation) jsonBody() *openapi3.SchemaRef {
	if o.RequestBody == nil {
		return nil
	}
	media := o.RequestBody.Value.Content.Get("application/json")
	if media == nil {
		return nil
	}
	return media.Schema
}

func TestEveryOperationIsFullyDescribed(t *testing.T) {
	t.Parallel()
	verbFirst := regexp.MustCompile(`^[a-z]+([A-Z][a-z]+)+$`)
	open := []string{"getHealth", "getReadiness"}
	var tags []string
	for _, tag := range apitest.Document(t).Tags {
		tags = append(tags, tag.Name)
	}
	for _, op := range operations(t) {
		name := op.OperationID
		if !verbFirst.MatchString(name) {
			t.Errorf("%s %s has the operationId %q", op.method, op.path, name)
		}
		if op.Summary == "" || len(op.Tags) != 1 || !slices.Contains(tags, op.Tags[0]) {
			t.Errorf("%s: summary %q, tags %q", name, op.Summary, op.Tags)
		}
		if needs := op.Security != nil && len(*op.Security) > 0; needs == slices.Contains(open, name) {
			t.Errorf("%s: needs a principal: %v", name, needs)
		}
		for status, response := range op.Responses.Map() {
			if status < "400" {
				continue
			}
			if media := response.Value.Content.Get("application/problem+json"); media == nil || media.Schema.Ref != "#/components/schemas/Problem" {
				t.Errorf("%s: %s is not a Problem", name, status)
			}
		}
		for _, status := range expectedRefusals(op) {
			if op.Responses.Value(status) == nil {
				t.Errorf("%s does not list %s", name, status)
			}
		}
	}
}

func expectedRefusals(op operation) []string {
	statuses := []string{"422", "500", "503"}
	if op.Security != nil {
		statuses = append(statuses, "401", "403")
	}
	if strings.Contains(op.path, "{") {
		statuses = append(statuses, "404")
	}
	if op.jsonBody() != nil {
		statuses = append(statuses, "400", "408", "413", "415")
	}
	return statuses
}

func TestSchemasAreBoundedAndNamed(t *testing.T) {
	t.Parallel()
	for name, ref := range apitest.Document(t).Components.Schemas {
		s := ref.Value
		if s.Type.Is("object") && len(s.Properties) > 0 && (s.AdditionalProperties.Has == nil || *s.AdditionalProperties.Has) {
			t.Errorf("%s takes unknown members", name)
		}
		for member, property := range s.Properties {
			where := name + "." + member
			if property.Ref != "" {
				continue
			}
			p := property.Value
			if p.Type.Includes("string") && p.MaxLength == nil && p.Format == "" && len(p.Enum) == 0 {
				t.Errorf("%s is a string without a length", where)
			}
			if p.Type.Includes("array") && p.Type.Includes("null") {
				t.Errorf("%s may be null instead of empty", where)
			}
			if strings.HasSuffix(member, "Id") && name != "Event" && p.Format != "uuid" && member != "providerLeaseId" && member != "requestId" {
				t.Errorf("%s is an id without the format uuid", where)
			}
			if strings.HasSuffix(strings.ToLower(member), "epoch") && (p.Max == nil || *p.Max != 9007199254740991 || p.Format != "int64") {
				t.Errorf("%s is an epoch without its bounds", where)
			}
			if p.Type.Includes("object") && len(p.Properties) > 0 {
				t.Errorf("%s is an object without a name", where)
			}
		}
	}
}

func TestAuthorityDocumentHasItsMembersAndNoOthers(t *testing.T) {
	t.Parallel()
	authority := apitest.Document(t).Components.Schemas["WorkspaceAuthority"].Value
	got := slices.Sorted(maps.Keys(authority.Properties))
	want := []string{"dirty", "epoch", "location", "schema", "snapshotId", "source", "writerRunId"}
	required := slices.Sorted(slices.Values(authority.Required))
	if !slices.Equal(got, want) || !slices.Equal(required, want) {
		t.Errorf("members are %q, of which required %q", got, required)
	}
}

func TestDocumentIsServedInEachForm(t *testing.T) {
	t.Parallel()
	handler := handler(io.Discard)
	for path, version := range map[string]string{"/openapi.yaml": "3.1.0", "/openapi.json": "3.1.0", "/openapi-3.0.yaml": "3.0.3"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		text, _ := io.ReadAll(w.Body)
		document, err := openapi3.NewLoader().LoadFromData(text)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if err := document.Validate(t.Context()); err != nil {
			t.Errorf("%s is not valid: %v", path, err)
		}
		if document.OpenAPI != version || len(document.Paths.Map()) != len(apitest.Document(t).Paths.Map()) {
			t.Errorf("%s is version %s with %d paths", path, document.OpenAPI, len(document.Paths.Map()))
		}
		handover := document.Components.Schemas["Reservation"].Value.Properties["handover"].Value
		if nullable := handover.Nullable || len(handover.AnyOf) == 2; !nullable {
			t.Errorf("%s: handover cannot be null", path)
		}
	}
}

func TestPrintedDocumentIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	first, err := api.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	if second, _ := api.OpenAPI(); string(first) != string(second) {
		t.Error("two prints differ")
	}
}
