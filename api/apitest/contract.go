package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"berth/api"
)

// contract is the OpenAPI document, to hold answers against.
type contract struct {
	document *openapi3.T
	router   routers.Router
}

// readContract loads the document once a program: it is the same for every server.
var readContract = sync.OnceValues(func() (*contract, error) {
	text, err := api.OpenAPI()
	if err != nil {
		return nil, err
	}
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	router, err := legacy.NewRouter(document) // validates the document, too
	if err != nil {
		return nil, fmt.Errorf("the document is not valid: %w", err)
	}
	return &contract{document: document, router: router}, nil
})

func loadContract(t testing.TB) *contract {
	t.Helper()
	c, err := readContract()
	if err != nil {
		t.Fatalf("apitest: %v", err)
	}
	return c
}

// Document is the OpenAPI document, for tests that walk over its operations.
func Document(t testing.TB) *openapi3.T {
	t.Helper()
	return loadContract(t).document
}

// formats are those that the document names, as strictly as the API writes them.
var formats = []openapi3.SchemaValidationOption{
	openapi3.WithStringFormatValidator("uuid", openapi3.NewRegexpFormatValidator(
		`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)),
	openapi3.WithStringFormatValidator("date-time", openapi3.NewRegexpFormatValidator(
		`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`)), // UTC, with microseconds
}

// check compares an answer with the document: a status that the operation lists, its media type, and a body with all
// the members that the schema has and no others.
func (c *contract) check(request *http.Request, reply Reply) error {
	route, parameters, err := c.router.FindRoute(request)
	if err != nil {
		return c.checkUnlisted(request, reply)
	}
	if reply.Status == http.StatusNoContent && len(reply.Body) > 0 {
		return errors.New("204 comes without a body")
	}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: request, PathParams: parameters, Route: route},
		Status:                 reply.Status,
		Header:                 reply.Header,
		Body:                   io.NopCloser(bytes.NewReader(reply.Body)),
		Options: &openapi3filter.Options{
			IncludeResponseStatus: true, MultiError: true,
			ExcludeResponseBody:     reply.Header.Get("Content-Type") == "application/octet-stream",
			SchemaValidationOptions: formats,
		},
	})
}

// checkUnlisted is for calls that the document does not know: an answer that is no success must be a problem still.
func (c *contract) checkUnlisted(request *http.Request, reply Reply) error {
	if reply.Status < http.StatusBadRequest {
		if strings.HasPrefix(request.URL.Path, "/api/") {
			return errors.New("it is a success of a route that the document does not have")
		}
		return nil // the document itself, its page, the metrics
	}
	if kind := reply.Header.Get("Content-Type"); kind != "application/problem+json" {
		return fmt.Errorf("its content type is %s, not application/problem+json", kind)
	}
	var problem any
	if err := json.Unmarshal(reply.Body, &problem); err != nil {
		return err
	}
	options := append([]openapi3.SchemaValidationOption{openapi3.EnableJSONSchema2020()}, formats...)
	return c.document.Components.Schemas["Problem"].Value.VisitJSON(problem, options...)
}
