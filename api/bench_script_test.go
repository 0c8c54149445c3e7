package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"berth/authority"
)

// tape is a pgx tracer that keeps what is sent to the database. One exchange is one round trip: the statements that
// travelled together.
type tape struct {
	mu        sync.Mutex
	exchanges [][]sentStatement
}

type sentStatement struct {
	text string
	args []any
}

func (t *tape) begin(statements ...sentStatement) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.exchanges = append(t.exchanges, statements)
}

func (t *tape) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	t.begin(sentStatement{data.SQL, data.Args})
	return ctx
}

func (t *tape) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (t *tape) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	t.begin()
	return ctx
}

func (t *tape) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := len(t.exchanges) - 1
	t.exchanges[last] = append(t.exchanges[last], sentStatement{data.SQL, data.Args})
}

func (t *tape) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// record runs call through a service whose database connection is taped, and returns what that sent. The first call
// is not taped: it also prepares the statements.
func (r *rig) record(c *benchClient, call func(*benchClient) error) [][]sentStatement {
	r.b.Helper()
	config, err := pgxpool.ParseConfig(r.pool.Config().ConnString())
	benchMust(r.b, err)
	recorder := &tape{}
	config.ConnConfig.Tracer, config.MaxConns = recorder, 1
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	benchMust(r.b, err)
	defer pool.Close()
	taped := *r
	taped.url = r.serve(authority.New(pool, nil, benchLog()))
	on := *c
	on.rig = &taped
	benchMust(r.b, call(&on))
	recorder.exchanges = nil
	benchMust(r.b, call(&on))
	c.epoch = on.epoch
	return recorder.exchanges
}

// script is what pgbench runs: the very statements of the service, with a client's ids in place of the recorded ones.
type script struct {
	text      string
	constants []string // -D name=value
}

// scriptOf writes the recorded exchanges of one client's cycle, which went from the epoch before it to the next, as a
// cycle that any of the clients can repeat. With pipelines, statements that travelled together do so again.
func (r *rig) scriptOf(exchanges [][]sentStatement, recorded *benchClient, pipelines bool) (script, error) {
	w := scriptWriter{variables: map[any]string{
		recorded.company: ":company", recorded.issue: ":issue", recorded.run: ":run", recorded.agent: ":agent",
		recorded.workspace: ":workspace", "run:" + recorded.run.String(): ":actor",
		recorded.epoch - 1: ":epoch", recorded.epoch: ":next_epoch",
	}}
	w.text.WriteString("\\set next_epoch :epoch + 1\n")
	for _, exchange := range exchanges {
		together := pipelines && len(exchange) > 1
		if together {
			w.text.WriteString("\\startpipeline\n")
		}
		for _, statement := range exchange {
			if err := w.write(statement); err != nil {
				return script{}, err
			}
		}
		if together {
			w.text.WriteString("\\endpipeline\n")
		}
	}
	w.text.WriteString("\\set epoch :next_epoch\n")
	return r.newScript(w.text.String(), append(w.constants, "nothing="+nothing)...), nil
}

// newScript has each session of pgbench first ask, once, for the ids of its client.
func (r *rig) newScript(text string, constants ...string) script {
	return script{
		text:      "\\if :known = 0\n" + r.clientLookup() + " \\gset\n\\set known 1\n\\endif\n" + text,
		constants: append(constants, "known=0"),
	}
}

// clientLookup is a query for the ids that belong to pgbench's :client_id, and the epoch that its workspace is at.
func (r *rig) clientLookup() string {
	rows := make([]string, len(r.clients))
	for i, c := range r.clients {
		rows[i] = fmt.Sprintf("(%d, '%s', '%s', '%s', '%s', '%s')", i, c.company, c.issue, c.run, c.agent, c.workspace)
	}
	return "SELECT c.company, c.issue, c.run, c.agent, c.workspace, 'run:' || c.run AS actor, w.epoch " +
		"FROM (VALUES " + strings.Join(rows, ", ") + ") AS c (client, company, issue, run, agent, workspace) " +
		"JOIN execution_workspaces w ON w.id = c.workspace::uuid WHERE c.client = :client_id"
}

type scriptWriter struct {
	text      strings.Builder
	variables map[any]string // what stands for a value
	constants []string
}

var (
	sqlParameter = regexp.MustCompile(`\$\d+`)
	sqlComment   = regexp.MustCompile(`(?m)^\s*--.*\n`)
)

func (w *scriptWriter) write(s sentStatement) error {
	var failed error
	text := sqlParameter.ReplaceAllStringFunc(sqlComment.ReplaceAllString(s.text, ""), func(parameter string) string {
		n, _ := strconv.Atoi(parameter[1:])
		if n > len(s.args) {
			failed = fmt.Errorf("%s has no argument in\n%s", parameter, s.text)
			return parameter
		}
		place, err := w.place(s.args[n-1])
		if err != nil {
			failed = fmt.Errorf("%s: %w in\n%s", parameter, err, s.text)
		}
		return place
	})
	w.text.WriteString(strings.TrimSpace(text) + ";\n")
	return failed
}

// nothing is the text that stands for NULL: variables of pgbench cannot be NULL.
const nothing = "nothing"

// place says what a script has in place of an argument.
func (w *scriptWriter) place(arg any) (string, error) {
	switch a := arg.(type) {
	case *uuid.UUID:
		if a == nil {
			return absent("uuid"), nil
		}
		return w.place(*a)
	case *string:
		if a == nil {
			return absent("text"), nil
		}
		return w.place(*a)
	case json.RawMessage:
		if a == nil {
			return absent("jsonb"), nil
		}
	case []byte:
		if a == nil {
			return absent("bytea"), nil
		}
	case uuid.UUID:
		if variable, known := w.variables[a]; known {
			return variable, nil
		}
		return "gen_random_uuid()", nil // an id that the service has made
	case int64, string, bool:
		if variable, known := w.variables[a]; known {
			return variable, nil
		}
		name := fmt.Sprintf("constant%d", len(w.constants))
		w.constants = append(w.constants, fmt.Sprintf("%s=%v", name, a))
		w.variables[a] = ":" + name
		return ":" + name, nil
	}
	return "", fmt.Errorf("the benchmark does not know where the value %v of type %T comes from", arg, arg)
}

func absent(sqlType string) string { return "nullif(:nothing, '" + nothing + "')::" + sqlType }
