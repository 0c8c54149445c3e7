package sql_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"berth/db/dbtest"
)

// world is a database with two companies that have one of everything, and connections as the roles
// whose rights are tried. In statements {name} stands for the id of the first company's row of that
// name, and {their.name} for the second's.
type world struct {
	t       *testing.T
	service *pgx.Conn
	owner   *pgx.Conn
}

// company is what each of the two companies has. Rows that refer to each other in a circle are
// written with the reference open, and closed at the end.
const company = `
INSERT INTO companies (id, name, issue_prefix) VALUES ({company}, 'Company', {prefix});
INSERT INTO agents (id, company_id, name, adapter_type) VALUES ({agent}, {company}, 'Agent', 'process');
INSERT INTO agents (id, company_id, name, adapter_type, reports_to_agent_id)
	VALUES ({report}, {company}, 'Report', 'process', {agent});
INSERT INTO projects (id, company_id, name) VALUES ({project}, {company}, 'Project');
INSERT INTO project_members (company_id, project_id, principal_type, principal_id)
	VALUES ({company}, {project}, 'agent', {agent});
INSERT INTO project_workspaces (id, company_id, project_id, name, source_type)
	VALUES ({source}, {company}, {project}, 'Source', 'empty');
INSERT INTO company_memberships (id, company_id, principal_type, principal_id)
	VALUES ({membership}, {company}, 'agent', {agent});
INSERT INTO permission_grants (id, company_id, principal_type, principal_id, permission_key)
	VALUES ({grant}, {company}, 'agent', {agent}, 'tasks:assign');
INSERT INTO issues (id, company_id, issue_number, identifier, title) VALUES ({parent}, {company}, 1, 'P-1', 'Parent');
INSERT INTO issues (id, company_id, issue_number, identifier, title, parent_id, project_id, project_workspace_id,
		assignee_agent_id, created_by_agent_id, privacy_root_issue_id, privacy_parent_issue_id)
	VALUES ({issue}, {company}, 2, 'P-2', 'Task', {parent}, {project}, {source}, {agent}, {agent}, {parent}, {parent});
INSERT INTO issue_access_grants (company_id, issue_id, principal_type, principal_id)
	VALUES ({company}, {issue}, 'agent', {agent});
INSERT INTO heartbeat_runs (id, company_id, agent_id, issue_id) VALUES ({writer}, {company}, {agent}, {issue});
INSERT INTO heartbeat_runs (id, company_id, agent_id, context_snapshot)
	VALUES ({idle}, {company}, {agent}, jsonb_build_object('issueId', {issue}::text));
INSERT INTO heartbeat_runs (id, company_id, agent_id, issue_id) VALUES ({failed}, {company}, {agent}, {issue});
INSERT INTO heartbeat_runs (id, company_id, agent_id, issue_id) VALUES ({stopped}, {company}, {agent}, {issue});
INSERT INTO heartbeat_runs (id, company_id, agent_id, issue_id) VALUES ({dirty}, {company}, {agent}, {issue});
INSERT INTO environment_leases (id, company_id, environment_id, heartbeat_run_id, issue_id, provider, provider_lease_id,
		replaced_by_run_id, status, cleanup_status, acquired_at, released_at)
	VALUES ({lease}, {company}, {environment}, {stopped}, {issue}, 'cloud', 'machine', {idle}, 'released', 'success',
		now() - interval '1 hour', now());
INSERT INTO termination_receipts (id, company_id, lease_id, run_id, provider, provider_lease_id, state, kind, recorded_by)
	VALUES ({receipt}, {company}, {lease}, {stopped}, 'cloud', 'machine', 'stopped', 'termination', 'test');
INSERT INTO environment_leases (id, company_id, environment_id, heartbeat_run_id, provider, provider_lease_id, status)
	VALUES ({retained}, {company}, {environment}, {idle}, 'cloud', 'kept', 'retained');
INSERT INTO environment_leases (id, company_id, environment_id, heartbeat_run_id, provider, provider_lease_id, status)
	VALUES ({gone}, {company}, {environment}, {dirty}, 'cloud', 'gone', 'pending_cleanup');
INSERT INTO termination_receipts (id, company_id, lease_id, run_id, provider, provider_lease_id, state, kind, recorded_by)
	VALUES ({proof}, {company}, {gone}, {dirty}, 'cloud', 'gone', 'stopped', 'recovery_cleanup', 'test');
INSERT INTO environment_leases (id, company_id, environment_id, heartbeat_run_id, provider, provider_lease_id)
	VALUES ({active}, {company}, {environment}, {writer}, 'cloud', 'another machine');
INSERT INTO lease_cleanups (lease_id, company_id) VALUES ({gone}, {company});
INSERT INTO lease_sightings (lease_id, company_id, seen_config) VALUES ({gone}, {company}, '');
INSERT INTO execution_workspaces (id, company_id, project_id, project_workspace_id, source_issue_id, name, mode,
		strategy_type, provider_type, epoch)
	VALUES ({free}, {company}, {project}, {source}, {issue}, 'Free', 'isolated_workspace', 'task_directory', 'cloud_sandbox', 3);
INSERT INTO refusals (company_id, issue_id, workspace_id, run_id, epoch, code, actor)
	VALUES ({company}, {issue}, {free}, {idle}, 3, 'stale_epoch', 'test');
INSERT INTO reservation_places (company_id, workspace_id, run_id, issue_id) VALUES ({company}, {free}, {writer}, {issue});
INSERT INTO idempotency_keys (principal, company_id, key, digest, answer) VALUES ('test', {company}, 'key', '', '{}');
`

// held is a workspace whose writer is a run of the company, with the snapshot that it began.
const held = `
INSERT INTO execution_workspaces (id, company_id, project_id, project_workspace_id, source_issue_id,
		derived_from_execution_workspace_id, name, mode, strategy_type, provider_type, epoch)
	VALUES ({held}, {company}, {project}, {source}, {issue}, {free}, 'Held', 'isolated_workspace', 'task_directory',
		'cloud_sandbox', 3);
INSERT INTO snapshots (id, company_id, workspace_id, epoch, state, created_by)
	VALUES ({saved}, {company}, {held}, 3, 'unavailable', 'test');
INSERT INTO snapshots (id, company_id, workspace_id, epoch, run_id, parent_snapshot_id, state, location_provider,
		location_key, size, file_count, sha256, created_by)
	VALUES ({pending}, {company}, {held}, 4, {writer}, {saved}, 'pending', 'berth', {key}, 1, 1, repeat('0', 64), 'test');
UPDATE execution_workspaces SET epoch = 4, writer_run_id = {writer}, snapshot_id = {saved} WHERE id = {held};
INSERT INTO tenures (id, company_id, workspace_id, epoch, run_id, issue_id, started_at, started_by)
	VALUES ({tenure}, {company}, {held}, 4, {writer}, {issue}, clock_timestamp(), 'test');
INSERT INTO stop_requests (id, company_id, workspace_id, epoch, run_id, reason, deadline, requested_by, next_attempt_at)
	VALUES ({request}, {company}, {held}, 4, {writer}, 'maintenance', now(), 'test', now());
INSERT INTO writer_silences (company_id, workspace_id, epoch, run_id, heard_at) VALUES ({company}, {held}, 4, {writer}, now());
INSERT INTO recovery_tokens (id, company_id, workspace_id, epoch, run_id, secret_hash, risk_accepted, created_by)
	VALUES ({recovery}, {company}, {held}, 4, {writer}, sha256({key}), false, 'test');
UPDATE issues SET execution_workspace_id = {held}, execution_run_id = {writer}, checkout_run_id = {writer} WHERE id = {issue};
UPDATE environment_leases SET execution_workspace_id = {held} WHERE id IN ({lease}, {active});
`

// left is a workspace whose writer ended: {name} by the run of that name.
const left = `
INSERT INTO execution_workspaces (id, company_id, name, mode, strategy_type, provider_type)
	VALUES ({left.name}, {company}, 'Left', 'isolated_workspace', 'task_directory', 'cloud_sandbox');
UPDATE execution_workspaces SET epoch = 1, writer_run_id = {name} WHERE id = {left.name};
INSERT INTO tenures (id, company_id, workspace_id, epoch, run_id, started_at, started_by)
	VALUES ({tenure.name}, {company}, {left.name}, 1, {name}, clock_timestamp(), 'test');
`

const ended = `UPDATE heartbeat_runs SET status = 'failed', finished_at = clock_timestamp() WHERE id IN ({failed}, {stopped}, {dirty});`

func newWorld(t *testing.T) *world {
	t.Helper()
	database := dbtest.New(t)
	w := &world{t: t, service: connect(t, database.ServiceURL), owner: connect(t, database.OwnerURL)}
	w.must(`INSERT INTO environments (id, name, driver) VALUES ({environment}, 'Sandbox', 'sandbox')`)
	for _, whose := range []string{"", "their."} {
		script := strings.NewReplacer("{prefix}", "'"+strings.ToUpper("P"+strings.Trim(whose, "."))+"'", "{key}", "'"+whose+"key'").
			Replace(company + held)
		w.must("BEGIN;" + of(whose, script) + "COMMIT;")
	}
	for _, name := range []string{"failed", "stopped", "dirty"} {
		w.must("BEGIN;" + strings.ReplaceAll(left, "name}", name+"}") + "COMMIT;")
	}
	w.must(`UPDATE execution_workspaces SET dirty = true WHERE id = {left.dirty}`)
	w.must(ended)
	return w
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return conn
}

var placeholder = regexp.MustCompile(`\{([a-z.]+)\}`)

// of lets a script speak of another company: {name} becomes {whose.name}. Environments are shared.
func of(whose, script string) string {
	return placeholder.ReplaceAllStringFunc(script, func(found string) string {
		if found == "{environment}" {
			return found
		}
		return "{" + whose + found[1:]
	})
}

// id is that of the row with the name.
func id(name string) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(name)) }

func fill(statement string) string {
	return placeholder.ReplaceAllStringFunc(statement, func(found string) string {
		return "'" + id(strings.Trim(found, "{}")).String() + "'"
	})
}

// must runs statements as the service's role.
func (w *world) must(statements string) {
	w.t.Helper()
	if _, err := w.service.Exec(w.t.Context(), fill(statements), pgx.QueryExecModeSimpleProtocol); err != nil {
		w.t.Fatalf("%s\n%v", statements, err)
	}
}

// try runs statements in a transaction of their own, to the commit, and takes them back if they
// succeed up to there: deferred checks are made at once.
func (w *world) try(as *pgx.Conn, statements string) error {
	w.t.Helper()
	_, err := as.Exec(w.t.Context(), "BEGIN;"+fill(statements)+"; SET CONSTRAINTS ALL IMMEDIATE;", pgx.QueryExecModeSimpleProtocol)
	if _, end := as.Exec(w.t.Context(), "ROLLBACK"); end != nil {
		w.t.Fatal(end)
	}
	return err
}

// noRight is the want of what is not refused by a rule, but by a missing right.
const noRight = "missing right"

// wantRefused fails the test unless err is a refusal by one of the wanted constraints, or by a
// missing right.
func (w *world) wantRefused(what string, err error, want ...string) {
	w.t.Helper()
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) {
		w.t.Errorf("%s: %v, want it refused by %s", what, err, strings.Join(want, " or "))
		return
	}
	by := refusal.ConstraintName
	if refusal.Code == "42501" {
		by = noRight
	}
	if !slices.Contains(want, by) {
		w.t.Errorf("%s: refused by %q (%v), want %s", what, by, err, strings.Join(want, " or "))
	}
}
