package api_test

import (
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"

	"berth/api/apitest"
)

func TestAFullDatabaseGrantsNothingAndIsBackByItself(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	parent, workspace := s.parent(nil)
	issue := s.child(parent)
	run := s.Must(http.MethodPost, s.in("heartbeat-runs"), object{"agentId": s.agent, "issueId": issue, "status": "running"})
	reserve := apitest.Request{
		Method: http.MethodPost, Path: "/api/issues/" + issue + "/workspace/reservation", Token: run["token"].(string),
		Body: object{"runId": run["run"].(object)["id"]},
	}
	before := s.Must(http.MethodGet, "/api/execution-workspaces/"+workspace, nil)["authority"].(object)

	owner, err := pgx.Connect(t.Context(), s.Database.OwnerURL)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(t.Context()) //nolint:errcheck // the database goes with the test
	must := func(statement string) {
		t.Helper()
		if _, err := owner.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	// What Postgres says when a table cannot grow.
	must(`CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END; $$`)
	must(`CREATE TRIGGER full_disk BEFORE INSERT ON tenures FOR EACH ROW EXECUTE FUNCTION full_disk()`)
	for range 3 {
		refused := s.Send(reserve)
		if refused.Status != http.StatusServiceUnavailable || refused.Header.Get("Retry-After") == "" {
			t.Fatalf("a full database answers %d: %s", refused.Status, refused.Body)
		}
	}
	after := s.Must(http.MethodGet, "/api/execution-workspaces/"+workspace, nil)["authority"].(object)
	if after["epoch"] != before["epoch"] || after["writerRunId"] != nil {
		t.Errorf("a full database granted: %v", after)
	}
	must(`DROP TRIGGER full_disk ON tenures`)
	if granted := s.Send(reserve); granted.Status != http.StatusOK {
		t.Errorf("with room again: %d: %s", granted.Status, granted.Body)
	}
}
