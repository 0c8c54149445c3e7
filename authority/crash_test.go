package authority

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"berth/db"
	"berth/db/dbtest"
	"berth/snapshot"
)

// crash is one operation under faults, on a database of its own.
type crash struct {
	*scene
	operation string
	crashOperation
	store, machines string
	want            string // what the database holds after the operation, when nothing goes wrong
}

func newCrash(t *testing.T, operation string) *crash {
	t.Helper()
	c := &crash{
		scene:     &scene{t: t, database: dbtest.New(t), operator: Principal{Role: RoleOperator, TokenID: uuid.New()}},
		operation: operation, crashOperation: crashOperations[operation], store: t.TempDir(), machines: t.TempDir(),
	}
	store, err := snapshot.OpenFileStore(c.store)
	c.wantNoError("open a store", err)
	c.Service = New(c.database.Pool, store, slog.New(slog.DiscardHandler), WithProviders(yard{dir: c.machines}))
	c.environment = c.insert("environments", "name", "Sandbox", "driver", "sandbox")
	return c
}

// yard is a company in which the operation is to be done.
func (c *crash) yard() *crashYard { return &crashYard{c.elsewhere(), c.machines} }

// done does the operation where nothing goes wrong, twice, and keeps what the database holds then.
func (c *crash) done() {
	c.t.Helper()
	y := c.yard()
	st := c.set(y)
	c.wantNoError("with no fault", c.call(c.t.Context(), y.Service, st))
	c.want = y.facts()
	c.repeat("repeated with no fault", y, st)
	y.endAll()
}

// repeat is the caller's retry after a fault. It comes to the same end as if there had been none.
func (c *crash) repeat(at string, y *crashYard, st crashStage) {
	c.t.Helper()
	y.claimsRunOut()
	err := c.call(c.t.Context(), y.Service, st)
	if refused, known := AsRefusal(err); err != nil &&
		(!known || !slices.ContainsFunc(c.repeats, func(r *Refusal) bool { return r.Code == refused.Code })) {
		c.t.Errorf("%s: %s again: %v", c.operation, at, err)
	}
	if got := y.facts(); got != c.want {
		c.t.Errorf("%s: %s again: the database holds\n%s\nand without the fault\n%s", c.operation, at, got, c.want)
	}
}

// facts are what the database holds of the company, without ids and times. Of saves that never came to a commit
// there may be any number.
func (y *crashYard) facts() string {
	y.t.Helper()
	return y.text(`SELECT string_agg(line, E'\n' ORDER BY line) FROM (
		SELECT format('workspace at %s, writer: %s, dirty: %s, %s, generation %s, saved by %s at %s', w.epoch, r.status, w.dirty, w.status,
				w.lifecycle_generation, split_part(s.created_by, ':', 1), s.epoch) AS line
			FROM execution_workspaces w LEFT JOIN heartbeat_runs r ON r.id = w.writer_run_id LEFT JOIN snapshots s ON s.id = w.snapshot_id
			WHERE w.company_id = $1
		UNION ALL SELECT format('tenure at %s, ended by %s, unsaved: %s, unproven: %s', epoch, ended_how, unsaved_work, unproven)
			FROM tenures WHERE company_id = $1
		UNION ALL (SELECT DISTINCT format('snapshot at %s, %s', epoch, state) FROM snapshots WHERE company_id = $1)
		UNION ALL SELECT format('run %s', status) FROM heartbeat_runs WHERE company_id = $1
		UNION ALL SELECT format('lease %s, %s', status, cleanup_status) FROM environment_leases WHERE company_id = $1
		UNION ALL SELECT format('clean-up settled: %s', settled_at IS NOT NULL) FROM lease_cleanups WHERE company_id = $1
		UNION ALL SELECT format('receipt %s, %s', kind, state) FROM termination_receipts WHERE company_id = $1
		UNION ALL SELECT format('stop request %s', state) FROM stop_requests WHERE company_id = $1
		UNION ALL SELECT format('silence ended by %s', ended_how) FROM writer_silences WHERE company_id = $1
		UNION ALL SELECT 'recovery token' FROM recovery_tokens WHERE company_id = $1
		UNION ALL SELECT 'place in line' FROM reservation_places WHERE company_id = $1
		UNION ALL SELECT format('task bound: %s, revision %s', execution_workspace_id IS NOT NULL, workspace_binding_revision)
			FROM issues WHERE company_id = $1
		UNION ALL SELECT format('event %s', kind) FROM events WHERE company_id = $1
	) AS lines`, y.company)
}

// claimsRunOut is the time that passes until what a dead server claimed is free again.
func (y *crashYard) claimsRunOut() {
	y.t.Helper()
	y.exec("UPDATE lease_cleanups SET claimed_by = NULL, claimed_until = NULL, next_attempt_at = clock_timestamp() WHERE company_id = $1 AND settled_at IS NULL", y.company)
	y.exec("UPDATE stop_requests SET next_attempt_at = clock_timestamp() WHERE company_id = $1 AND settled_at IS NULL AND deadline < clock_timestamp()", y.company)
	y.exec("UPDATE writer_silences SET next_attempt_at = clock_timestamp() WHERE company_id = $1 AND ended_at IS NULL", y.company)
}

// wantOrder fails the test unless the rules hold and every workspace has a way out.
func (y *crashYard) wantOrder(at string) {
	y.t.Helper()
	y.wantSoundHistory()
	y.wantNothingForEver(at)
	for _, id := range strings.Fields(y.text("SELECT string_agg(id::text, ' ') FROM execution_workspaces WHERE company_id = $1", y.company)) {
		y.leadsOut(uuid.MustParse(id))
	}
	y.wantSoundHistory()
	y.endAll()
}

// wantNothingForEver fails the test when a claim never runs out, or something waits that nobody will look at.
func (y *crashYard) wantNothingForEver(at string) {
	y.t.Helper()
	if stuck := y.text(`SELECT string_agg(what, E'\n') FROM (
		SELECT 'a claim on a clean-up' AS what FROM lease_cleanups WHERE claimed_by IS NOT NULL
			AND (claimed_until IS NULL OR claimed_until > clock_timestamp() + interval '10 minutes')
		UNION ALL SELECT 'a clean-up' FROM lease_cleanups WHERE settled_at IS NULL AND next_attempt_at > clock_timestamp() + interval '1 hour'
		UNION ALL SELECT 'a stop request' FROM stop_requests WHERE settled_at IS NULL
			AND next_attempt_at > greatest(deadline, clock_timestamp()) + interval '1 hour'
		UNION ALL SELECT 'a silence' FROM writer_silences WHERE ended_at IS NULL AND next_attempt_at > clock_timestamp() + interval '1 hour'
	) AS stuck`); stuck != "" {
		y.t.Errorf("%s: for ever: %s", at, stuck)
	}
}

// endAll leaves nothing for the sweeps of a later fault: all runs end, and no machine is left.
func (y *crashYard) endAll() {
	y.t.Helper()
	for _, id := range strings.Fields(y.text("SELECT string_agg(id::text, ' ') FROM heartbeat_runs WHERE company_id = $1 AND finished_at IS NULL", y.company)) {
		_, err := y.FinishRun(y.t.Context(), y.operator, uuid.MustParse(id), FinishInput{Status: "failed"})
		y.wantNoError("end a run", err)
	}
	for _, id := range strings.Fields(y.text("SELECT string_agg(id::text, ' ') FROM execution_workspaces WHERE company_id = $1 AND writer_run_id IS NOT NULL", y.company)) {
		_, err := y.Takeover(y.t.Context(), y.operator, uuid.MustParse(id), acceptingRisk)
		y.wantNoError("free a workspace", err)
	}
	for range 2 { // what is held back is looked at once more
		y.claimsRunOut()
		_, err := y.CleanUpLeases(y.t.Context())
		y.wantNoError("clean up", err)
	}
	y.wantNoError("settle stop requests", y.EnforceStopRequests(y.t.Context()))
	y.wantNoError("settle silences", y.ProveSilentWriters(y.t.Context()))
}

func eachCrashOperation(t *testing.T, do func(t *testing.T, c *crash)) {
	t.Helper()
	for _, operation := range slices.Sorted(maps.Keys(crashOperations)) {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			c := newCrash(t, operation)
			c.done()
			do(t, c)
		})
	}
}

// A server is killed at every moment of every operation. Whatever was committed by then, the rules hold, the call can
// be repeated, and the workspace has a way out.
func TestAServerThatIsKilledAtAnyMomentLeavesARightStateWithAWayOut(t *testing.T) {
	t.Parallel()
	eachCrashOperation(t, func(t *testing.T, c *crash) {
		table := crashTable{operation: c.operation}
		for moment := 1; ; moment++ {
			y := c.yard()
			st := c.set(y)
			before := y.facts()
			at := crashOrder{c.database.ServiceURL, c.store, c.machines, c.operation, st, moment}.killedAt(t)
			c.awaitOnly()
			table.add(at, before, y.facts(), c.want)
			if at == "" {
				y.endAll()
				break
			}
			c.repeat(at, y, st)
			y.wantOrder(at)
		}
		table.want(t, c.steps)
	})
}

// awaitOnly waits until the database noticed that a killed process is gone, and let go of its locks.
func (c *crash) awaitOnly() {
	c.t.Helper()
	c.eventually("the dead server's sessions are gone", func() bool {
		return c.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
			AND application_name = 'berth' AND state <> 'idle'`) == 0
	})
}

// The database ends the session in the midst of an operation. The caller hears that it may come again later, or the
// answer; and somebody else comes before it does.
func TestASessionThatIsEndedAtAnyMomentLeavesARightStateWithAWayOut(t *testing.T) {
	t.Parallel()
	eachCrashOperation(t, func(t *testing.T, c *crash) {
		f := &fuse{blow: func(_ string, backend uint32) {
			if backend != 0 {
				c.exec("SELECT pg_terminate_backend($1, 5000)", int32(backend))
			}
		}}
		pool, err := fusedPool(t.Context(), c.database.Pool, f)
		c.wantNoError("open a pool", err)
		defer pool.Close()
		broken := New(pool, fusedStore{c.Service.store, f}, c.log, WithPolling(), WithProviders(yard{c.machines, f}))
		for moment := 1; ; moment++ {
			y := c.yard()
			st := c.set(y)
			f.arm(moment)
			err := c.call(t.Context(), broken, st)
			at := f.disarm()
			if refused, known := AsRefusal(err); err != nil && !db.IsUnavailable(err) && (!known || refused.Code != ErrUnavailable.Code) {
				t.Errorf("%s, whose session ended when it %s: %v", c.operation, at, err)
			}
			if st.Fence.WorkspaceID != uuid.Nil {
				y.somebodyElse(at, st.Fence.WorkspaceID)
			}
			y.claimsRunOut()
			wantKnown(t, c.operation+" again", c.call(t.Context(), y.Service, st))
			y.wantOrder(at)
			if at == "" {
				break
			}
		}
	})
}

// somebodyElse reserves the workspace, and is answered what was explained before.
func (y *crashYard) somebodyElse(at string, workspace uuid.UUID) {
	y.t.Helper()
	e := &errand{scene: y.scene, workspace: workspace, next: y.worker(y.boundTask(workspace))}
	e.explain()
	_, err := y.reserve(e.next)
	switch refused, known := AsRefusal(err); {
	case err == nil && e.explained.Reservable:
	case known && e.explained.Code != nil && refused.Code == *e.explained.Code:
		if pending, _ := refused.Details.(WriterPending); pending.State != e.pending().State {
			y.t.Errorf("%s: explained as %s, refused as %s", at, e.pending().State, pending.State)
		}
	default:
		y.t.Errorf("%s: explained as %s, and answered %v", at, e.situation(), err)
	}
}
