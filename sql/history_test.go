package sql_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// The tables of which no row is ever deleted, and what refuses to change one that is only added to.
var history = map[string]string{
	"tenures":                   "tenures_closed_once",
	"events":                    "events_append_only",
	"refusals":                  "refusals_append_only",
	"termination_receipts":      "termination_receipts_append_only",
	"workspace_privacy_sources": "workspace_privacy_sources_append_only",
	"snapshots":                 "",
	"execution_workspaces":      "",
	"heartbeat_runs":            "",
	"environment_leases":        "",
	"lease_cleanups":            "",
	"stop_requests":             "",
	"writer_silences":           "",
	"recovery_tokens":           "recovery_tokens_append_only",
}

func TestHistoryIsNotRemovedByAnybody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for table := range history {
		for _, statement := range []string{"DELETE FROM " + table, "TRUNCATE " + table + " CASCADE"} {
			w.wantRefused("the service: "+statement, w.try(w.service, statement), noRight)
			// A truncation that spreads is refused by the first table that it reaches.
			want := []string{table + "_append_only"}
			if strings.HasPrefix(statement, "TRUNCATE") {
				for other := range history {
					want = append(want, other+"_append_only")
				}
			}
			w.wantRefused("the owner: "+statement, w.try(w.owner, statement), want...)
		}
	}
}

func TestHistoryIsNotRewrittenByAnybody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for table, want := range history {
		if want == "" {
			continue
		}
		for _, column := range w.columns(table) {
			if table == "refusals" && (column == "count" || column == "last_at") {
				continue // what a refusal that comes again moves on
			}
			statement := "UPDATE " + table + " SET " + column + " = NULL"
			if column == "ended_reason" || column == "proof" || column == "handover" {
				statement = "UPDATE " + table + " SET " + column + " = " + column
			}
			w.wantRefused("the owner: "+statement, w.try(w.owner, statement), want)
			// What may be set once, or counted up, the service has the right to touch.
			w.wantRefused("the service: "+statement, w.try(w.service, statement), want, noRight)
		}
	}
}

// columns are those of a table that a statement may set.
func (w *world) columns(table string) []string {
	w.t.Helper()
	rows, err := w.owner.Query(w.t.Context(), `SELECT attname FROM pg_attribute
		WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attidentity = '' AND attgenerated = ''`, table)
	if err != nil {
		w.t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) == 0 {
		w.t.Fatalf("the columns of %s: %v, %v", table, names, err)
	}
	return names
}

func TestTheServicesRoleCannotPutTheRulesAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, statement := range []string{
		`SET session_replication_role = replica`,
		`SET ROLE berth_owner`,
		`SET SESSION AUTHORIZATION berth_owner`,
		`GRANT berth_owner TO berth`,
		`ALTER ROLE berth SUPERUSER`,
		`CREATE ROLE helper`,
		`ALTER TABLE execution_workspaces DISABLE TRIGGER execution_workspaces_guard`,
		`ALTER TABLE tenures DISABLE TRIGGER ALL`,
		`ALTER TABLE tenures DROP CONSTRAINT tenures_no_overlap`,
		`ALTER TABLE execution_workspaces DROP COLUMN epoch`,
		`ALTER TABLE events RENAME TO forgotten`,
		`DROP TRIGGER tenures_guard ON tenures`,
		`DROP TABLE events CASCADE`,
		`DROP INDEX tenures_one_open_by_workspace`,
		`DROP SCHEMA public CASCADE`,
		`CREATE OR REPLACE FUNCTION guard_execution_workspace() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'`,
		`ALTER FUNCTION guard_execution_workspace() SET search_path = pg_temp`,
		`CREATE OR REPLACE VIEW lease_proofs AS SELECT 1 AS one`,
		`CREATE TRIGGER mine BEFORE UPDATE ON execution_workspaces FOR EACH ROW EXECUTE FUNCTION refuse_history_change()`,
		`CREATE RULE mine AS ON INSERT TO events DO INSTEAD NOTHING`,
		`CREATE TABLE public.mine (id int)`,
		`CREATE SCHEMA mine`,
		`COPY (SELECT 1) TO PROGRAM 'true'`,
		`UPDATE schema_migrations SET version = 0`,
		`UPDATE river.river_migration SET version = 0`,
		`CREATE TABLE river.mine (id int)`,
		`LOCK TABLE events IN ACCESS EXCLUSIVE MODE`,
	} {
		w.wantRefused(statement, w.try(w.service, statement), noRight)
	}
}
