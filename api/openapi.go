package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/yaml"
)

const documentIntroduction = `Berth gives every agent workspace exactly one writer. A run reserves the workspace and
gets an epoch, which goes with each write; its files are restored from a snapshot, and what it saves becomes the next
one. Another run gets in when the writer released, or is proven to have stopped.

**Errors** are ` + "`application/problem+json`" + `: branch on ` + "`code`" + `, show ` + "`detail`" + `. **Lists** are
` + "`{items, nextCursor}`" + `. **Creates** take an ` + "`Idempotency-Key`" + ` header. **Words** such as a run's status
are open sets: a client treats one that it does not know as "do not act". Members of answers may be added; unknown
members and parameters of requests are refused with 422.`

// configuration is what Berth wants of huma other than it would do by itself.
func configuration() huma.Config {
	c := huma.DefaultConfig("Berth", documentVersion)
	c.Info.Description = documentIntroduction
	c.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	c.CreateHooks = nil // no $schema members, no Link headers
	c.OpenAPIPath, c.SchemasPath, c.DocsPath = "", "", ""
	c.RejectUnknownQueryParameters = true
	c.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{bearerScheme: {
		Type: "http", Scheme: "bearer",
		Description: "The secret of a token (operator, member or auditor), or the token that a run got when it was created.",
	}}
	c.Formats = map[string]huma.Format{
		"application/json": {Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshal},
		"json":             {Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshal},
	}
	c.Tags = tags()
	return c
}

// tags groups the operations for the document's readers.
func tags() []*huma.Tag {
	return []*huma.Tag{
		{Name: "service", Description: "Whether the service answers."},
		{Name: "reservations", Description: "Who may write: one run at a time."},
		{Name: "tenures", Description: "What a writer does while it is the writer, and how that ends."},
		{Name: "snapshots", Description: "What is saved. Begin, upload, commit."},
		{Name: "workspaces", Description: "The file trees, with their authority."},
		{Name: "history", Description: "Who wrote when, and what else happened."},
		{Name: "issues", Description: "The tasks, and who reads a private one."},
		{Name: "selections", Description: "Which workspace a task's next run gets."},
		{Name: "runs", Description: "The executions of agents, which are the writers."},
		{Name: "leases", Description: "The machines of runs, and the proof that they stopped."},
		{Name: "companies", Description: "The tenants, and who belongs to them."},
		{Name: "agents", Description: "The workers."},
		{Name: "projects", Description: "Tasks and sources of files, gathered."},
		{Name: "environments", Description: "Where runs execute."},
		{Name: "access", Description: "Who may do what."},
		{Name: "tokens", Description: "How people and programs call the API."},
		{Name: "instance", Description: "Settings of the whole instance."},
	}
}

// schemaName is huma's name of a type, but CompanyList for List[Company].
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	if item, ok := strings.CutPrefix(name, "List"); ok && item != "" {
		return item + "List"
	}
	return name
}

// unmarshal is json.Unmarshal with errors for the caller: no Go types, and where.
func unmarshal(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	var (
		syntax *json.SyntaxError
		kind   *json.UnmarshalTypeError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		return fmt.Errorf("is not JSON at byte %d: %w", syntax.Offset, syntax)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("is not JSON: it ends too early")
	case errors.As(err, &kind):
		if kind.Field == "" {
			return fmt.Errorf("does not take a %s", kind.Value)
		}
		return fmt.Errorf("%s does not take a %s", kind.Field, kind.Value)
	default:
		return fmt.Errorf("a value cannot be read: %w", err)
	}
}

// OpenAPI prints the document of the API, version 3.1, as YAML. It needs no database.
func OpenAPI() ([]byte, error) {
	s, _ := build(nil, Options{})
	return s.api.OpenAPI().YAML()
}

// documentVersion is the version of the contract, not of the program that serves it.
const documentVersion = "1.0.0"

// documents serves the document in each form that readers of it understand. Each is printed when it is first asked
// for, since that takes a while and most servers are never asked.
func (s *server) documents(mux *http.ServeMux) {
	document := s.api.OpenAPI()
	for _, form := range []struct {
		path, contentType string
		print             func() ([]byte, error)
	}{
		{"/openapi.yaml", "application/yaml", document.YAML},
		{"/openapi.json", "application/json", func() ([]byte, error) { return json.Marshal(document) }},
		{"/openapi-3.0.yaml", "application/yaml", func() ([]byte, error) { return older(document) }},
	} {
		printed := sync.OnceValues(form.print)
		mux.HandleFunc("GET "+form.path, func(w http.ResponseWriter, r *http.Request) {
			text, err := printed()
			if err != nil {
				s.fault(r.Context(), fmt.Errorf("print %s: %w", form.path, err)).write(w)
				return
			}
			w.Header().Set("Content-Type", form.contentType)
			_, _ = w.Write(text) // whoever cannot be reached is gone
		})
	}
}

// older is the document for readers of OpenAPI 3.0. Huma's conversion leaves "this type or null" as 3.1 writes it.
func older(document *huma.OpenAPI) ([]byte, error) {
	text, err := document.Downgrade()
	if err != nil {
		return nil, err
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	nullableBefore31(tree)
	if text, err = json.Marshal(tree); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := yaml.Convert(&out, bytes.NewReader(text)); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// nullableBefore31 rewrites each {anyOf: [X, {type: null}]} below node to {allOf: [X], nullable: true}, and drops what
// 3.0 does not know: a licence's identifier, and contentMediaType, which is beside format: binary.
func nullableBefore31(node any) {
	switch node := node.(type) {
	case []any:
		for _, item := range node {
			nullableBefore31(item)
		}
	case map[string]any:
		if choice, ok := node["anyOf"].([]any); ok && len(choice) == 2 {
			if null, ok := choice[1].(map[string]any); ok && null["type"] == "null" {
				delete(node, "anyOf")
				node["allOf"], node["nullable"] = choice[:1], true
			}
		}
		delete(node, "contentMediaType")
		if license, ok := node["license"].(map[string]any); ok {
			delete(license, "identifier")
		}
		for _, item := range node {
			nullableBefore31(item)
		}
	}
}
