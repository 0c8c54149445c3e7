package authority

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db/dbtest"
	"berth/snapshot"
)

// directory is a service with an empty database, and an operator: what the tests of companies,
// access and tokens begin with. Rows that belong to other aggregates it writes as plain SQL.
type directory struct {
	*Service
	t        *testing.T
	database *dbtest.Database
	operator Principal
}

func newDirectory(t *testing.T) *directory {
	t.Helper()
	d := &directory{t: t, database: dbtest.New(t)}
	d.Service = d.server()
	secret := GenerateSecret()
	if err := d.EnsureOperatorToken(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	var err error
	if d.operator, err = d.Authenticate(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	return d
}

// server is one more service on the same database, as another process would be one.
func (d *directory) server() *Service {
	d.t.Helper()
	store, err := snapshot.OpenFileStore(d.t.TempDir())
	if err != nil {
		d.t.Fatal(err)
	}
	return New(d.database.Pool, store, slog.New(slog.DiscardHandler))
}

// must returns the value, or ends the test.
func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func (d *directory) company() uuid.UUID {
	d.t.Helper()
	return must(d.CreateCompany(d.t.Context(), d.operator, CompanyInput{Name: "Company"}, Once{}))(d.t).ID
}

func (d *directory) agent(company uuid.UUID) uuid.UUID {
	d.t.Helper()
	return must(d.CreateAgent(d.t.Context(), d.operator, company,
		AgentInput{Name: "Agent", AdapterType: "process"}, Once{}))(d.t).ID
}

func (d *directory) project(company uuid.UUID, in ProjectInput) uuid.UUID {
	d.t.Helper()
	in.Name = "Project"
	return must(d.CreateProject(d.t.Context(), d.operator, company, in, Once{}))(d.t).ID
}

// user makes a membership of the company for a new user, and returns its principal.
func (d *directory) user(company uuid.UUID, role, status string) Principal {
	d.t.Helper()
	user := Principal{Role: RoleMember, TokenID: uuid.New(), UserID: uuid.New()}
	d.membership(company, PrincipalRef{Type: "user", ID: user.UserID}, role, status)
	return user
}

func (d *directory) membership(company uuid.UUID, of PrincipalRef, role, status string) {
	d.t.Helper()
	must(d.CreateMembership(d.t.Context(), d.operator, company, MembershipInput{
		PrincipalType: of.Type, PrincipalID: of.ID, MembershipRole: role, Status: status,
	}, Once{}))(d.t)
}

// issue writes a task; columns come as name and value by turns.
func (d *directory) issue(company uuid.UUID, columns ...any) uuid.UUID {
	d.t.Helper()
	return d.insert("issues", append([]any{
		"company_id", company, "issue_number", d.number(), "identifier", uuid.NewString(), "title", "Task",
	}, columns...)...)
}

func (d *directory) run(company, agent uuid.UUID, issue *uuid.UUID, status string) Principal {
	d.t.Helper()
	columns := []any{"company_id", company, "agent_id", agent, "issue_id", issue, "status", status}
	if status != "running" && status != "queued" {
		columns = append(columns, "finished_at", "2026-01-01T00:00:00Z")
	}
	return Principal{Role: RoleRun, CompanyID: company, AgentID: agent, RunID: d.insert("heartbeat_runs", columns...)}
}

// insert writes a row as the service's role, and returns its new id.
func (d *directory) insert(table string, columns ...any) uuid.UUID {
	d.t.Helper()
	id := uuid.New()
	names, marks, values := "id", "@id", pgx.NamedArgs{"id": id}
	for i := 0; i < len(columns); i += 2 {
		name, _ := columns[i].(string)
		names, marks, values[name] = names+", "+name, marks+", @"+name, columns[i+1]
	}
	if _, err := d.database.Pool.Exec(d.t.Context(), "INSERT INTO "+table+" ("+names+") VALUES ("+marks+")", values); err != nil {
		d.t.Fatalf("insert into %s: %v", table, err)
	}
	return id
}

func (d *directory) number() int64 {
	var number int64
	if err := d.database.Pool.QueryRow(d.t.Context(), "SELECT 1 + count(*) FROM issues").Scan(&number); err != nil {
		d.t.Fatal(err)
	}
	return number
}

// asOwner runs a statement as the owner of the schema, who may do what the service may not.
func (d *directory) asOwner(statement string, args ...any) {
	d.t.Helper()
	ctx := context.WithoutCancel(d.t.Context())
	owner, err := pgx.Connect(ctx, d.database.OwnerURL)
	if err != nil {
		d.t.Fatal(err)
	}
	defer owner.Close(ctx)
	if _, err := owner.Exec(ctx, statement, args...); err != nil {
		d.t.Fatalf("%s: %v", statement, err)
	}
}

// atTheSameMoment runs the functions, of which each writes to the table, and keeps that closed for
// writing until all of them wait: what they read before, they read before any of them wrote.
func (d *directory) atTheSameMoment(table string, do ...func() error) []error {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	owner := must(pgx.Connect(ctx, d.database.OwnerURL))(d.t)
	defer owner.Close(context.WithoutCancel(ctx))
	closed := must(owner.Begin(ctx))(d.t)
	if _, err := closed.Exec(ctx, "LOCK TABLE "+table+" IN SHARE MODE"); err != nil {
		d.t.Fatal(err)
	}
	answers := make([]error, len(do))
	var calls sync.WaitGroup
	for i, call := range do {
		calls.Go(func() { answers[i] = call() })
	}
	for waiting := 0; waiting < len(do); {
		err := closed.QueryRow(ctx, `
			SELECT count(*) FROM pg_locks l JOIN pg_database b ON b.oid = l.database
			WHERE b.datname = current_database() AND NOT l.granted`).Scan(&waiting)
		if err != nil {
			d.t.Fatalf("not all of them wait for %s: %v", table, err)
		}
	}
	if err := closed.Rollback(ctx); err != nil {
		d.t.Fatal(err)
	}
	calls.Wait()
	return answers
}

// wantRefusal fails the test unless err is the refusal; nil wants none.
func wantRefusal(t *testing.T, what string, err error, want *Refusal) {
	t.Helper()
	switch {
	case want == nil && err != nil:
		t.Errorf("%s: %v, want no refusal", what, err)
	case want != nil && !errors.Is(err, want):
		t.Errorf("%s: %v, want %s", what, err, want.Code)
	}
}

// wantField fails the test unless err is a refusal of exactly these fields.
func wantField(t *testing.T, what string, err error, locations ...string) {
	t.Helper()
	var refused *Refusal
	if !errors.As(err, &refused) || refused.Code != ErrValidation.Code {
		t.Errorf("%s: %v, want a problem of %v", what, err, locations)
		return
	}
	named := map[string]bool{}
	for _, field := range refused.Fields {
		named[field.Location] = true
	}
	for _, location := range locations {
		if !named[location] {
			t.Errorf("%s: the problems are of %v, want %s among them", what, refused.Fields, location)
		}
	}
	if len(named) != len(locations) {
		t.Errorf("%s: the problems are of %v, want %v only", what, refused.Fields, locations)
	}
}
