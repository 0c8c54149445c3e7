package authority

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"berth/db/dbtest"
	"berth/snapshot"
)

// tb is what a scene needs of a test; a property's *rapid.T is one as well.
type tb interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// scene is one company in which runs compete for workspaces: a service on a database and a store of
// its own. What the tested rules do not make themselves is written as plain SQL by the service's role.
type scene struct {
	*Service
	t           tb
	database    *dbtest.Database
	operator    Principal
	company     uuid.UUID
	agent       uuid.UUID
	environment uuid.UUID
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, database: dbtest.New(t), operator: Principal{Role: RoleOperator, TokenID: uuid.New()}}
	s.Service = s.serviceOn(t, s.database.Pool)
	s.environment = s.insert("environments", "name", "Sandbox", "driver", "sandbox")
	s.company = s.insert("companies", "name", "Company", "issue_prefix", "ONE")
	s.agent = s.insert("agents", "company_id", s.company, "name", "Agent", "adapter_type", "process")
	return s
}

// newCrowd is a scene whose service has many connections, for as many callers at once.
func newCrowd(t *testing.T, connections int32) *scene {
	t.Helper()
	s := newScene(t)
	s.Service = s.serviceOn(t, s.database.Open(t, connections))
	return s
}

func (s *scene) serviceOn(t *testing.T, pool *pgxpool.Pool) *Service {
	t.Helper()
	store, err := snapshot.OpenFileStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return New(pool, store, slog.New(slog.DiscardHandler), throughPooler()...)
}

// throughPooler are the options of a service whose pool goes where those of the tests go.
func throughPooler() []Option {
	if dbtest.Pooled() {
		return []Option{WithPolling()}
	}
	return nil
}

// elsewhere is another company in the same database.
func (s *scene) elsewhere() *scene {
	s.t.Helper()
	other := *s
	other.company = s.insert("companies", "name", "Other", "issue_prefix", s.prefix())
	other.agent = other.newAgent()
	return &other
}

// prefix is one that no company has.
func (s *scene) prefix() string {
	return "X" + s.text("SELECT upper(substr(md5(count(*)::text || clock_timestamp()::text), 1, 9)) FROM companies")
}

func (s *scene) newAgent() uuid.UUID {
	s.t.Helper()
	return s.insert("agents", "company_id", s.company, "name", "Agent", "adapter_type", "process")
}

// insert writes a row and returns its new id; columns come as name and value by turns.
func (s *scene) insert(table string, columns ...any) uuid.UUID {
	s.t.Helper()
	id := uuid.New()
	names, marks, values := "id", "@id", pgx.NamedArgs{"id": id}
	for i := 0; i < len(columns); i += 2 {
		name, _ := columns[i].(string)
		names, marks, values[name] = names+", "+name, marks+", @"+name, columns[i+1]
	}
	s.exec("INSERT INTO "+table+" ("+names+") VALUES ("+marks+")", values)
	return id
}

func (s *scene) exec(statement string, args ...any) {
	s.t.Helper()
	if _, err := s.database.Pool.Exec(s.t.Context(), statement, args...); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

// text is the one value that a statement answers, as text; NULL is "".
func (s *scene) text(query string, args ...any) string {
	s.t.Helper()
	var value *string
	if err := s.database.Pool.QueryRow(s.t.Context(), query, args...).Scan(&value); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	if value == nil {
		return ""
	}
	return *value
}

// count is the one number that a statement answers.
func (s *scene) count(query string, args ...any) int {
	s.t.Helper()
	var n int
	if err := s.database.Pool.QueryRow(s.t.Context(), query, args...).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// row is a workspace as the database has it, every column.
func (s *scene) row(workspace uuid.UUID) string {
	s.t.Helper()
	return s.text("SELECT to_jsonb(w)::text FROM execution_workspaces w WHERE id = $1", workspace)
}

// task is a new task that is bound to no workspace.
func (s *scene) task(columns ...any) uuid.UUID {
	s.t.Helper()
	return s.insert("issues", append([]any{
		"company_id", s.company, "identifier", uuid.NewString(), "title", "Task",
		"issue_number", s.count("UPDATE companies SET issue_counter = issue_counter + 1 WHERE id = $1 RETURNING issue_counter", s.company),
	}, columns...)...)
}

// boundTask is a new task that is bound to the workspace.
func (s *scene) boundTask(workspace uuid.UUID, columns ...any) uuid.UUID {
	s.t.Helper()
	return s.task(append(columns, "execution_workspace_id", workspace)...)
}

// free is a workspace that came from elsewhere at epoch 3, without the bytes of its snapshot and
// without a writer.
func (s *scene) free() uuid.UUID {
	s.t.Helper()
	return s.imported(WorkspaceInput{Authority: &AuthorityImport{Epoch: 3, SnapshotID: new(uuid.New())}})
}

func (s *scene) imported(in WorkspaceInput) uuid.UUID {
	s.t.Helper()
	in.Name = "Workspace"
	w, err := s.CreateWorkspace(s.t.Context(), s.operator, s.company, in, Once{})
	if err != nil {
		s.t.Fatalf("create a workspace: %v", err)
	}
	return w.ID
}

// worker is a run by its own token, with the task that it is for.
type worker struct {
	Principal
	task uuid.UUID
}

// worker starts a run of the scene's agent on the task.
func (s *scene) worker(task uuid.UUID) worker {
	s.t.Helper()
	return s.workerOf(s.agent, task)
}

func (s *scene) workerOf(agent, task uuid.UUID) worker {
	s.t.Helper()
	run := s.insert("heartbeat_runs", "company_id", s.company, "agent_id", agent, "issue_id", task, "status", "running")
	return worker{Principal{Role: RoleRun, CompanyID: s.company, AgentID: agent, RunID: run}, task}
}

// reserve asks for the task's workspace by the run's own token.
func (s *scene) reserve(w worker, changes ...func(*ReserveInput)) (Reservation, error) {
	in := ReserveInput{IssueID: w.task, RunID: w.RunID}
	for _, change := range changes {
		change(&in)
	}
	return s.Reserve(s.t.Context(), w.Principal, in, Once{})
}

// writer is a new run that holds the workspace, with its claim to it.
func (s *scene) writer(workspace uuid.UUID) (worker, Fence) {
	s.t.Helper()
	w := s.worker(s.boundTask(workspace))
	return w, s.mustReserve(w)
}

// mustReserve makes the worker the writer of its task's workspace.
func (s *scene) mustReserve(w worker) Fence {
	s.t.Helper()
	r, err := s.reserve(w)
	if err != nil {
		s.t.Fatalf("reserve: %v", err)
	}
	return Fence{WorkspaceID: r.Workspace.ID, RunID: w.RunID, Epoch: r.Workspace.Authority.Epoch}
}

// end marks a run as ended, as somebody else would.
func (s *scene) end(w worker, status string) {
	s.t.Helper()
	if _, err := s.FinishRun(s.t.Context(), s.operator, w.RunID, FinishInput{Status: status}); err != nil {
		s.t.Fatalf("finish the run: %v", err)
	}
}

// lease holds a machine for the run; columns change what is usual.
func (s *scene) lease(w worker, columns ...any) uuid.UUID {
	s.t.Helper()
	values := map[string]any{
		"company_id": s.company, "environment_id": s.environment, "heartbeat_run_id": w.RunID,
		"provider": "cloud", "provider_lease_id": uuid.NewString(),
	}
	for i := 0; i < len(columns); i += 2 {
		name, _ := columns[i].(string)
		values[name] = columns[i+1]
	}
	var all []any
	for name, value := range values {
		all = append(all, name, value)
	}
	return s.insert("environment_leases", all...)
}

// receipt records, by SQL, the provider's word that the lease's machine stopped. It moves no lease.
func (s *scene) receipt(lease uuid.UUID, kind, state string) {
	s.t.Helper()
	s.exec(`INSERT INTO termination_receipts (id, company_id, lease_id, run_id, provider, provider_lease_id, state, kind, recorded_by)
		SELECT $2, company_id, id, heartbeat_run_id, provider, provider_lease_id, $3, $4, 'test' FROM environment_leases WHERE id = $1`,
		lease, uuid.New(), state, kind)
}

// stop proves that every machine of the run stopped: it had one, and that is terminated.
func (s *scene) stop(w worker) {
	s.t.Helper()
	lease := s.lease(w, "status", "released", "cleanup_status", "success",
		"acquired_at", time.Now().Add(-time.Hour), "released_at", time.Now())
	s.receipt(lease, "termination", "stopped")
}

// wantCode fails the test unless err is a refusal with the code, and returns its details.
func (s *scene) wantCode(what string, err error, want *Refusal) any {
	s.t.Helper()
	var refused *Refusal
	switch {
	case err == nil:
		s.t.Errorf("%s: granted, want %s", what, want.Code)
	case !errors.As(err, &refused) || refused.Code != want.Code:
		s.t.Errorf("%s: %v, want %s", what, err, want.Code)
	default:
		return refused.Details
	}
	return nil
}

func (s *scene) wantNoError(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
}

// sameDocument reports whether two JSON documents say the same.
func sameDocument(a, b json.RawMessage) bool {
	normal := func(document json.RawMessage) string {
		var value any
		if document == nil || json.Unmarshal(document, &value) != nil {
			return string(document)
		}
		text, _ := json.Marshal(value) // what was just decoded encodes
		return string(text)
	}
	return normal(a) == normal(b)
}

func hexDigest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// snapshotOf is the saved state that the workspace names.
func (s *scene) snapshotOf(workspace uuid.UUID) uuid.UUID {
	s.t.Helper()
	return uuid.MustParse(s.text("SELECT snapshot_id::text FROM execution_workspaces WHERE id = $1", workspace))
}

// begin announces a save of the content, which follows parent.
func (s *scene) begin(w worker, f Fence, content string, parent uuid.UUID) uuid.UUID {
	s.t.Helper()
	announced, err := s.CreateSnapshot(s.t.Context(), w.Principal, f, SnapshotInput{
		SHA256: hexDigest(content), Size: int64(len(content)), FileCount: 1, ParentSnapshotID: &parent,
	})
	s.wantNoError("begin a save", err)
	return announced.ID
}

func (s *scene) upload(w worker, f Fence, id uuid.UUID, content string) {
	s.t.Helper()
	_, err := s.UploadSnapshot(s.t.Context(), w.Principal, f.WorkspaceID, id, strings.NewReader(content))
	s.wantNoError("upload", err)
}

// save makes the content the saved state, in all its steps.
func (s *scene) save(w worker, f Fence, content string, parent uuid.UUID) uuid.UUID {
	s.t.Helper()
	id := s.begin(w, f, content, parent)
	s.upload(w, f, id, content)
	_, err := s.CommitSnapshot(s.t.Context(), w.Principal, f, id)
	s.wantNoError("commit", err)
	return id
}
