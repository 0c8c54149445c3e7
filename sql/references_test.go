package sql_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// reference is a foreign key from one tenant's row to another row of a tenant.
type reference struct {
	Name    string
	Table   string
	Target  string
	Columns []string // of the table, without the company's
	To      []string // of the target, in the same order
	Whole   bool     // the company is part of the key, on both sides
}

// references are all foreign keys between tables that have a company, but for the one to the company.
func (w *world) references() []reference {
	w.t.Helper()
	rows, err := w.owner.Query(w.t.Context(), `
		SELECT c.conname AS name, c.conrelid::regclass::text AS table, c.confrelid::regclass::text AS target,
			(SELECT array_agg(a.attname::text ORDER BY k.n) FROM unnest(c.conkey) WITH ORDINALITY k (attnum, n)
				JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum WHERE a.attname <> 'company_id') AS columns,
			(SELECT array_agg(a.attname::text ORDER BY k.n) FROM unnest(c.confkey) WITH ORDINALITY k (attnum, n)
				JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.attnum WHERE a.attname <> 'company_id') AS to,
			EXISTS (SELECT FROM unnest(c.conkey, c.confkey) k (here, there)
				JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.here AND a.attname = 'company_id'
				JOIN pg_attribute b ON b.attrelid = c.confrelid AND b.attnum = k.there AND b.attname = 'company_id') AS whole
		FROM pg_constraint c
		WHERE c.contype = 'f' AND c.connamespace = 'public'::regnamespace
			AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.conrelid AND a.attname = 'company_id')
			AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.confrelid AND a.attname = 'company_id')
		ORDER BY 1`)
	if err != nil {
		w.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[reference])
	if err != nil || len(all) < 40 {
		w.t.Fatalf("%d references: %v", len(all), err)
	}
	return all
}

func TestEveryReferenceBetweenTenantsCarriesTheCompany(t *testing.T) {
	t.Parallel()
	for _, r := range newWorld(t).references() {
		if !r.Whole {
			t.Errorf("%s on %s refers to a row of %s without its company", r.Name, r.Table, r.Target)
		}
	}
}

// What looks like a reference and is none, since the other side is not a table of Berth's, or is
// one only for some rows, which a column beside it refers to.
var noReference = []string{
	"company_memberships.principal_id", "permission_grants.principal_id", "project_members.principal_id",
	"issue_access_grants.principal_id", "issues.assignee_user_id", "issues.responsible_user_id", "issues.created_by_user_id",
	// What a context names need not exist; a reservation asks for a task of the run's company.
	"heartbeat_runs.bound_issue_id",
}

func TestEveryIdOfATenantsRowIsAReference(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rows, err := w.owner.Query(t.Context(), `
		SELECT a.attrelid::regclass || '.' || a.attname FROM pg_attribute a
		JOIN pg_class t ON t.oid = a.attrelid AND t.relkind = 'r' AND t.relnamespace = 'public'::regnamespace
		WHERE a.atttypid = 'uuid'::regtype AND a.attname LIKE '%\_id' AND NOT a.attisdropped
			AND EXISTS (SELECT FROM pg_attribute o WHERE o.attrelid = a.attrelid AND o.attname = 'company_id')
			AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.contype = 'f' AND c.conrelid = a.attrelid AND a.attnum = ANY (c.conkey))`)
	if err != nil {
		t.Fatal(err)
	}
	free, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, column := range free {
		if !slices.Contains(noReference, column) {
			t.Errorf("%s is an id that nothing holds to its company", column)
		}
	}
	for _, column := range noReference {
		if !slices.Contains(free, column) {
			t.Errorf("%s is listed as no reference, and is not there or is one", column)
		}
	}
}

// target names the second company's row of a table that a first company's row must not refer to.
var target = map[string]string{
	"agents": "their.report", "projects": "their.project", "project_workspaces": "their.source", "issues": "their.parent",
	"heartbeat_runs": "their.idle", "environment_leases": "their.active", "execution_workspaces": "their.free",
	"snapshots": "their.saved",
}

const none = `'{}'::jsonb`

// template names a row of the first company from which a table's attack is copied, and what the copy
// must change to meet no other constraint.
var template = map[string]struct{ row, changes string }{
	"agents":                    {"id = {report}", none},
	"project_members":           {"project_id = {project}", none},
	"project_workspaces":        {"id = {source}", none},
	"company_memberships":       {"id = {membership}", none},
	"permission_grants":         {"id = {grant}", none},
	"issues":                    {"id = {issue}", "jsonb_build_object('issue_number', 99, 'identifier', 'P-99')"},
	"issue_access_grants":       {"issue_id = {issue}", none},
	"heartbeat_runs":            {"id = {writer}", none},
	"environment_leases":        {"id = {lease}", none},
	"lease_cleanups":            {"lease_id = {gone}", none},
	"termination_receipts":      {"id = {receipt}", "jsonb_build_object('kind', 'retained', 'confirmed_at', clock_timestamp())"},
	"execution_workspaces":      {"id = {held}", "jsonb_build_object('writer_run_id', null, 'snapshot_id', null)"},
	"workspace_privacy_sources": {"workspace_id = {held}", none},
	"events":                    {"kind = 'tenure.started' AND workspace_id = {held}", none},
	"reservation_places":        {"run_id = {writer}", "jsonb_build_object('run_id', {idle}::text)"},
	"lease_sightings":           {"lease_id = {gone}", none},
	"stop_requests":             {"id = {request}", "jsonb_build_object('epoch', 99)"},
	"writer_silences":           {"workspace_id = {held}", "jsonb_build_object('epoch', 99)"},
	"recovery_tokens":           {"id = {recovery}", `jsonb_build_object('secret_hash', '\x' || repeat('11', 32))`},
	"refusals":                  {"workspace_id = {free}", "jsonb_build_object('code', 'another')"},
	"snapshots":                 {"id = {pending}", "jsonb_build_object('location_key', 'another')"},
	"tenures":                   {"id = {tenure}", "jsonb_build_object('epoch', 99, 'workspace_id', {free}::text, 'run_id', {idle}::text)"},
}

func TestNoRowRefersToAnotherCompanysRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, r := range w.references() {
		from, known := template[r.Table]
		to, aim := target[r.Target]
		if !known || !aim {
			t.Errorf("%s: the test knows no row of %s to copy, or of %s to refer to", r.Name, r.Table, r.Target)
			continue
		}
		column, value := r.aim(to)
		statement := fmt.Sprintf(`INSERT INTO %[1]s (%[2]s) OVERRIDING SYSTEM VALUE SELECT %[2]s FROM jsonb_populate_record(NULL::%[1]s,
			(SELECT to_jsonb(o) FROM %[1]s o WHERE company_id = {company} AND %[3]s LIMIT 1)
			|| %[4]s || %[5]s || jsonb_build_object('%[6]s', %[7]s))`,
			r.Table, strings.Join(w.columns(r.Table), ", "), from.row, w.freshID(r.Table), from.changes, column, value)
		w.wantRefused(r.Name, w.try(w.service, statement), r.Name)
	}
}

// aim is the one column of the reference that names the foreign row, with what it is set to. Of
// other columns in the key the copy keeps what it has.
func (r reference) aim(to string) (column, value string) {
	i := len(r.Columns) - 1
	if at := slices.Index(r.To, "id"); at >= 0 && r.Columns[at] != "id" {
		i = at
	}
	column = r.Columns[i]
	if column == "agent_id" && r.Table != "heartbeat_runs" {
		column = "principal_id" // from which it is generated
	}
	return column, "{" + to + "}::text"
}

// freshID gives a copy an id of its own, where its table has one that is not counted.
func (w *world) freshID(table string) string {
	if slices.Contains(w.columns(table), "id") {
		return "jsonb_build_object('id', {new}::text)"
	}
	return none
}
