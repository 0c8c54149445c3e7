package apitest_test

import (
	"net/http"
	"testing"

	"berth/api/apitest"
)

func TestServerAnswersAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	s := apitest.New(t)
	company := s.Must(http.MethodPost, "/api/companies", map[string]any{"name": "Acme"})
	status, answer := s.Do(http.MethodGet, "/api/companies/"+company["id"].(string), s.OperatorToken, nil)
	if status != http.StatusOK || answer["issuePrefix"] != "ACME" {
		t.Errorf("read back: %d %v", status, answer)
	}
	if status, answer = s.Do(http.MethodGet, "/api/companies", "", nil); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d %v", status, answer)
	}
}
