package sql_test

import (
	"strings"
	"testing"
)

// attack is what somebody with the service's password may try by hand, and what refuses it: a
// constraint by name, or noRight.
type attack struct {
	name      string
	statement string
	want      string
}

var attacksOnTheWriter = []attack{
	{"an epoch goes down", `UPDATE execution_workspaces SET epoch = epoch - 1 WHERE id = {free}`, "execution_workspaces_epoch_forward"},
	{"an epoch skips one", `UPDATE execution_workspaces SET epoch = epoch + 2 WHERE id = {free}`, "execution_workspaces_epoch_forward"},
	{"a writer without an epoch", `UPDATE execution_workspaces SET writer_run_id = {idle} WHERE id = {free}`, "execution_workspaces_writer_needs_epoch"},
	{"another writer at the same epoch", `UPDATE execution_workspaces SET writer_run_id = {idle} WHERE id = {held}`, "execution_workspaces_writer_needs_epoch"},
	{"a new epoch for the same writer", `UPDATE execution_workspaces SET epoch = epoch + 1 WHERE id = {held}`, "execution_workspaces_writer_needs_epoch"},
	{"over a live writer", takes("{held}"), "execution_workspaces_handover_needs_proof"},
	{"over unsaved work", takes("{left.dirty}"), "execution_workspaces_handover_needs_proof"},
	{"over a writer without proof", takes("{left.failed}"), "execution_workspaces_handover_needs_proof"},
	{
		"over a writer that is declared ended in passing",
		`UPDATE heartbeat_runs SET status = 'failed', finished_at = now() WHERE id = {writer};` + takes("{held}"),
		"execution_workspaces_handover_needs_proof",
	},
	{"a writer without a tenure", takes("{free}"), "tenures_match_writer"},
	{"a writer gone, and its tenure left open", `UPDATE execution_workspaces SET writer_run_id = NULL WHERE id = {held}`, "tenures_match_writer"},
	{
		"a live writer replaced in two steps",
		`UPDATE execution_workspaces SET writer_run_id = NULL WHERE id = {held};` + takes("{held}"), "tenures_match_writer",
	},
	{"a workspace that begins with a writer", `INSERT INTO execution_workspaces
		(id, company_id, name, mode, strategy_type, provider_type, writer_run_id)
		VALUES ({new}, {company}, 'New', 'isolated_workspace', 'task_directory', 'cloud_sandbox', {idle})`, "tenures_match_writer"},
	{
		"a run that holds two", `UPDATE execution_workspaces SET writer_run_id = {writer}, epoch = epoch + 1 WHERE id = {free}`,
		"execution_workspaces_run_holds_one",
	},
	{"no run at all as a writer", `UPDATE execution_workspaces
		SET writer_run_id = '00000000-0000-0000-0000-000000000000', epoch = epoch + 1 WHERE id = {free}`, "execution_workspaces_writer_not_zero"},
	{
		"another company's writer", `UPDATE execution_workspaces SET writer_run_id = {their.idle}, epoch = epoch + 1 WHERE id = {free}`,
		"execution_workspaces_writer_fkey",
	},
	{"unsaved work declared saved", `UPDATE execution_workspaces SET dirty = false WHERE id = {left.dirty}`, "execution_workspaces_dirty_until_saved"},
	{"unsaved work of nobody", `UPDATE execution_workspaces SET dirty = true WHERE id = {free}`, "execution_workspaces_dirty_has_writer"},
	{"closed under its writer", `UPDATE execution_workspaces SET status = 'archived' WHERE id = {held}`, "execution_workspaces_closed_has_no_writer"},
	{
		"an epoch that clients would round", `INSERT INTO execution_workspaces
		(id, company_id, name, mode, strategy_type, provider_type, epoch)
		VALUES ({new}, {company}, 'New', 'isolated_workspace', 'task_directory', 'cloud_sandbox', 9007199254740992)`,
		"execution_workspaces_epoch_bounds",
	},
	{"another identity", `UPDATE execution_workspaces SET id = {new} WHERE id = {free}`, "execution_workspaces_identity"},
	{"another company", `UPDATE execution_workspaces SET company_id = {their.company} WHERE id = {free}`, "execution_workspaces_identity"},
	{"another origin", `UPDATE execution_workspaces SET derived_from_execution_workspace_id = NULL WHERE id = {held}`, "execution_workspaces_identity"},
	{"an older generation", `UPDATE execution_workspaces SET lifecycle_generation = -1 WHERE id = {free}`, "execution_workspaces_counters_forward"},
	{"fewer marks", `UPDATE execution_workspaces SET dirty_marks = -1 WHERE id = {free}`, "execution_workspaces_counters_forward"},
	{"an id again", `INSERT INTO execution_workspaces (id, company_id, name, mode, strategy_type, provider_type)
		VALUES ({free}, {company}, 'Again', 'isolated_workspace', 'task_directory', 'cloud_sandbox')`, "execution_workspaces_pkey"},
	{
		"a saved state that is not committed", `UPDATE execution_workspaces SET snapshot_id = {pending} WHERE id = {held}`,
		"execution_workspaces_snapshot_committed",
	},
	{
		"another workspace's saved state", `UPDATE execution_workspaces SET snapshot_id = {saved} WHERE id = {free}`,
		"execution_workspaces_snapshot_committed",
	},
	{"no saved state any more", `UPDATE execution_workspaces SET snapshot_id = NULL WHERE id = {held}`, "execution_workspaces_snapshot_committed"},
}

// takes makes the idle run the writer of a workspace.
func takes(workspace string) string {
	return `UPDATE execution_workspaces SET writer_run_id = {idle}, epoch = epoch + 1, dirty = false WHERE id = ` + workspace
}

// opens begins a tenure.
func opens(workspace, epoch, run string) string {
	return `INSERT INTO tenures (id, company_id, workspace_id, epoch, run_id, started_at, started_by)
		VALUES ({new}, {company}, ` + workspace + `, ` + epoch + `, ` + run + `, clock_timestamp(), 'test')`
}

var attacksOnTheHistory = []attack{
	{"a second tenure beside a live one", opens("{held}", "5", "{idle}"), "tenures_no_overlap"},
	{"a tenure at a used epoch", opens("{held}", "4", "{idle}"), "tenures_epoch_once"},
	{"a second tenure of a run", opens("{free}", "3", "{writer}"), "tenures_one_open_by_run"},
	{"a tenure of no writer", opens("{free}", "3", "{idle}"), "tenures_match_writer"},
	{
		"a tenure that was over before it was recorded", `INSERT INTO tenures
		(id, company_id, workspace_id, epoch, run_id, started_at, started_by, ended_at, ended_how, ended_by)
		VALUES ({new}, {company}, {free}, 2, {idle}, now() - interval '2 hours', 'test', now() - interval '1 hour', 'release', 'test')`,
		"tenures_inserted_open",
	},
	{
		"a tenure that ends before it began",
		`UPDATE tenures SET ended_at = started_at - interval '1 second', ended_how = 'release', ended_by = 'test' WHERE id = {tenure}`,
		"tenures_ends_after_start",
	},
	{
		"a tenure that ends in an instant",
		`UPDATE tenures SET ended_at = started_at, ended_how = 'release', ended_by = 'test' WHERE id = {tenure}`, "tenures_ends_after_start",
	},
	{
		"a tenure that ends while its run writes",
		`UPDATE tenures SET ended_at = clock_timestamp() + interval '1 second', ended_how = 'release', ended_by = 'test' WHERE id = {tenure}`,
		"tenures_match_writer",
	},
	{
		"a takeover without a reason",
		`UPDATE tenures SET ended_at = clock_timestamp() + interval '1 second', ended_how = 'takeover', ended_by = 'test' WHERE id = {tenure}`,
		"tenures_takeover_reason",
	},
	{"a tenure of another run", `UPDATE tenures SET run_id = {idle} WHERE id = {tenure}`, noRight},
	{"a tenure that began earlier", `UPDATE tenures SET started_at = now() - interval '1 day' WHERE id = {tenure}`, noRight},
	{"a snapshot of another epoch", `UPDATE snapshots SET epoch = 5 WHERE id = {pending}`, "snapshots_identity"},
	{"a snapshot of another run", `UPDATE snapshots SET run_id = {idle} WHERE id = {pending}`, "snapshots_identity"},
	{"a snapshot of another workspace", `UPDATE snapshots SET workspace_id = {free} WHERE id = {pending}`, "snapshots_identity"},
	{"a snapshot with other bytes", `UPDATE snapshots SET sha256 = repeat('1', 64) WHERE id = {pending}`, "snapshots_content"},
	{"a snapshot that comes back", `UPDATE snapshots SET state = 'abandoned' WHERE id = {pending};
		UPDATE snapshots SET state = 'committed', committed_at = now() WHERE id = {pending}`, "snapshots_forward"},
	{"a request to stop with another deadline", `UPDATE stop_requests SET deadline = now() + interval '1 day' WHERE id = {request}`, noRight},
	{"a request to stop that never was enforced", `UPDATE stop_requests SET state = 'over', settled_at = now() WHERE id = {request};
		UPDATE stop_requests SET state = 'alert', settled_at = NULL WHERE id = {request}`, "stop_requests_forward"},
	{"a second open request to stop", `INSERT INTO stop_requests
		(id, company_id, workspace_id, epoch, run_id, reason, deadline, requested_by, next_attempt_at)
		VALUES ({new}, {company}, {held}, 4, {writer}, 'again', now(), 'test', now())`, "stop_requests_one_open"},
	{"a request to stop nobody", `INSERT INTO stop_requests
		(id, company_id, workspace_id, epoch, run_id, reason, deadline, requested_by, next_attempt_at)
		VALUES ({new}, {company}, {free}, 3, {idle}, 'stop', now(), 'test', now())`, "stop_requests_of_open_tenure"},
	{"a silence that goes on after its end", `UPDATE writer_silences SET ended_at = now(), ended_how = 'heard' WHERE workspace_id = {held};
		UPDATE writer_silences SET ended_at = NULL, ended_how = NULL WHERE workspace_id = {held}`, "writer_silences_forward"},
	{"a recovery of nobody", `INSERT INTO recovery_tokens
		(id, company_id, workspace_id, epoch, run_id, secret_hash, risk_accepted, created_by)
		VALUES ({new}, {company}, {held}, 3, {idle}, sha256('x'), false, 'test')`, "recovery_tokens_of_open_tenure"},
	{"a recovery that lasts longer", `UPDATE recovery_tokens SET expires_at = now() + interval '1 year' WHERE id = {recovery}`, noRight},
	{"a refusal that never was", `UPDATE refusals SET count = 0 WHERE run_id = {idle}`, "refusals_append_only"},
	{"a refusal of another run", `UPDATE refusals SET run_id = {writer} WHERE run_id = {idle}`, noRight},
}

// receipt stores one about the active lease, but for one value.
func receipt(change, to string) string {
	values := strings.NewReplacer(change, to).Replace(
		`VALUES ({new}, {company}, {active}, {writer}, 'cloud', 'another machine', 'stopped', 'termination', 'test', clock_timestamp())`)
	return `INSERT INTO termination_receipts
		(id, company_id, lease_id, run_id, provider, provider_lease_id, state, kind, recorded_by, confirmed_at) ` + values
}

var attacksOnProof = []attack{
	{"a receipt for another run", receipt("{writer}", "{idle}"), "termination_receipts_lease_fkey"},
	{"a receipt for another lease", receipt("{active}", "{retained}"), "termination_receipts_lease_fkey"},
	{"a receipt of another provider", receipt("'cloud'", "'other'"), "termination_receipts_lease_fkey"},
	{"a receipt for another machine", receipt("'another machine'", "'machine'"), "termination_receipts_lease_fkey"},
	{"another company's receipt", receipt("{company}", "{their.company}"), "termination_receipts_lease_fkey"},
	{"another company's lease", receipt("{active}", "{their.active}"), "termination_receipts_lease_fkey"},
	{"a local receipt", receipt("'cloud'", "'local'"), "termination_receipts_provider"},
	{"a receipt for a machine without an id", receipt("'another machine'", "''"), "termination_receipts_provider_lease_id"},
	{"a receipt that something is stopping", receipt("'stopped'", "'stopping'"), "termination_receipts_state"},
	{"a destroyed machine that is retained", receipt("'stopped', 'termination'", "'destroyed', 'retained'"), "termination_receipts_kind_state"},
	{"a receipt older than the lease", receipt("clock_timestamp()", "'2000-01-01'"), "termination_receipts_after_acquired"},
	{"a lease back to active", `UPDATE environment_leases SET status = 'active', released_at = NULL WHERE id = {lease}`, "environment_leases_forward"},
	{"a settled lease unsettled", `UPDATE environment_leases SET cleanup_status = 'failed' WHERE id = {lease}`, "environment_leases_forward"},
	{"a clean-up settled by word alone", `UPDATE lease_cleanups SET settled_at = now() WHERE lease_id = {gone}`, "lease_cleanups_settled_by_lease"},
	{"a lease of another run", `UPDATE environment_leases SET heartbeat_run_id = {idle} WHERE id = {active}`, "environment_leases_identity"},
	{"a lease of no run", `UPDATE environment_leases SET heartbeat_run_id = NULL WHERE id = {active}`, "environment_leases_identity"},
	{"a lease of another machine", `UPDATE environment_leases SET provider_lease_id = 'machine' WHERE id = {active}`, "environment_leases_identity"},
	{"a lease acquired at another time", `UPDATE environment_leases SET acquired_at = '2000-01-01' WHERE id = {active}`, "environment_leases_identity"},
	{"a run that ended goes on", `UPDATE heartbeat_runs SET status = 'running', finished_at = NULL WHERE id = {failed}`, "heartbeat_runs_terminal_final"},
	{"a run that ended ends otherwise", `UPDATE heartbeat_runs SET status = 'succeeded' WHERE id = {failed}`, "heartbeat_runs_terminal_final"},
	{"a run of another agent", `UPDATE heartbeat_runs SET agent_id = {report} WHERE id = {writer}`, "heartbeat_runs_identity"},
	{"a run of another task", `UPDATE heartbeat_runs SET issue_id = {parent} WHERE id = {writer}`, "heartbeat_runs_identity"},
	{"a run of another task than its context says", `UPDATE heartbeat_runs SET issue_id = {parent} WHERE id = {idle}`, "heartbeat_runs_identity"},
	{"a run of another task by its context", `UPDATE heartbeat_runs SET context_snapshot = jsonb_build_object('issueId', {parent}::text)
		WHERE id = {writer}`, "heartbeat_runs_identity"},
	{"a run that has no id", `INSERT INTO heartbeat_runs (id, company_id, agent_id)
		VALUES ('00000000-0000-0000-0000-000000000000', {company}, {agent})`, "heartbeat_runs_id_not_zero"},
}

func TestPlainSQLByTheServicesRoleBreaksNoRule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, attacks := range [][]attack{attacksOnTheWriter, attacksOnTheHistory, attacksOnProof} {
		for _, a := range attacks {
			w.wantRefused(a.name, w.try(w.service, a.statement), a.want)
		}
	}
	// What the attacks were to bring about is possible where the rules are kept.
	settled := takes("{left.stopped}") + `;
		UPDATE tenures SET ended_at = clock_timestamp(), ended_how = 'handover', ended_by = 'test' WHERE id = {tenure.stopped};` +
		opens("{left.stopped}", "2", "{idle}")
	if err := w.try(w.service, settled); err != nil {
		t.Errorf("a handover on proof: %v", err)
	}
	if err := w.try(w.service, receipt("", "")); err != nil {
		t.Errorf("a receipt for the lease: %v", err)
	}
}

// The guards look at tables by name. Somebody who puts another table before them in the search path
// must not lead them astray.
func TestTheGuardsAreNotLedAstrayByTablesOfTheSameName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, decoy := range map[string]string{
		"runs":       `CREATE TEMP TABLE heartbeat_runs (id uuid, finished_at timestamptz)`,
		"proofs":     `CREATE TEMP TABLE lease_proofs AS SELECT company_id, run_id, lease_id, gen_random_uuid() AS receipt_id FROM public.lease_proofs`,
		"tenures":    `CREATE TEMP TABLE tenures (LIKE public.tenures)`,
		"workspaces": `CREATE TEMP TABLE execution_workspaces (LIKE public.execution_workspaces)`,
	} {
		for _, aim := range []struct{ what, statement, want string }{
			{"a live writer", `UPDATE public.heartbeat_runs SET last_renewed_at = now() WHERE id = {writer};
				UPDATE public.execution_workspaces SET writer_run_id = {idle}, epoch = epoch + 1 WHERE id = {held}`, "execution_workspaces_handover_needs_proof"},
			{
				"a writer without proof", `UPDATE public.execution_workspaces SET writer_run_id = {idle}, epoch = epoch + 1 WHERE id = {left.failed}`,
				"execution_workspaces_handover_needs_proof",
			},
			{
				"a writer without a tenure", `UPDATE public.execution_workspaces SET writer_run_id = {idle}, epoch = epoch + 1 WHERE id = {free}`,
				"tenures_match_writer",
			},
		} {
			w.wantRefused("decoy "+name+", "+aim.what, w.try(w.service, decoy+";"+aim.statement), aim.want, noRight)
		}
	}
	w.wantRefused("decoy leases, an old receipt", w.try(w.service,
		`CREATE TEMP TABLE environment_leases (LIKE public.environment_leases);`+receipt("clock_timestamp()", "'2000-01-01'")),
		"termination_receipts_after_acquired", noRight)
}
