package authority

import (
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"berth/provider"
	"berth/snapshot"
)

// fuse counts the moments of an operation at which a fault may strike: each time that something was answered, by the
// database, the store or a provider, and each time that something was sent that lasts though nobody hears its answer.
// At the chosen moment it blows.
type fuse struct {
	mu    sync.Mutex
	armed bool
	left  int // moments until it blows
	at    string
	blow  func(moment string, backend uint32) // backend is the database's process of the connection, 0 beside one
}

// moment is one at which a fault may strike. It returns when the fuse did not blow, or the fault leaves the process
// alive.
func (f *fuse) moment(what string, backend uint32) {
	f.mu.Lock()
	f.left--
	blows := f.armed && f.left == 0
	if blows {
		f.at = what
	}
	f.mu.Unlock()
	if blows {
		f.blow(what, backend)
	}
}

// arm lets the fuse blow at the nth moment from now on, the first being 1.
func (f *fuse) arm(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.left, f.at = true, n, ""
}

// disarm returns the moment at which the fuse blew, "" when it did not.
func (f *fuse) disarm() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = false
	return f.at
}

// fusedPool is a pool like the given one, with one connection and a fuse in it. One connection keeps the moments of an
// operation in the same order each time.
func fusedPool(ctx context.Context, like *pgxpool.Pool, f *fuse) (*pgxpool.Pool, error) {
	config := like.Config()
	config.MaxConns = 1
	config.ConnConfig.Tracer = &statementTracer{fuse: f}
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &statementConn{Conn: conn, fuse: f}, nil
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// statementConn is a connection that knows when what it sends makes the server act.
type statementConn struct {
	net.Conn
	fuse    *fuse
	mu      sync.Mutex
	name    string // of the statement that is on its way
	lasts   bool   // it lasts though nobody hears its answer
	backend uint32
}

func (c *statementConn) Write(message []byte) (int, error) {
	n, err := c.Conn.Write(message)
	c.mu.Lock()
	name, lasts, backend := c.name, c.lasts, c.backend
	c.mu.Unlock()
	if err == nil && lasts && acts(message) {
		c.fuse.moment("sent "+name, backend)
	}
	return n, err
}

// acts reports whether messages of the protocol (a letter, a length that counts itself, a body) let a statement run:
// Query or Execute, and not only Parse.
func acts(messages []byte) bool {
	for len(messages) >= 5 {
		if messages[0] == 'Q' || messages[0] == 'E' {
			return true
		}
		length := 1 + int(messages[1])<<24 + int(messages[2])<<16 + int(messages[3])<<8 + int(messages[4])
		if length > len(messages) {
			return false
		}
		messages = messages[length:]
	}
	return false
}

// begins says which statements are sent next. What goes on in a transaction lasts with its commit.
func (c *statementConn) begins(on *pgconn.PgConn, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.name, c.backend = strings.Join(names, "+"), on.PID()
	c.lasts = slices.Contains(names, "commit") || (on.TxStatus() == 'I' && names[0] != "begin" && names[0] != "rollback")
}

// ends returns what was sent last.
func (c *statementConn) ends() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := c.name
	c.name, c.lasts = "", false
	return name
}

// statementTracer gives the moments of a connection their names.
type statementTracer struct{ fuse *fuse }

func (t *statementTracer) starts(conn *pgx.Conn, names ...string) {
	if c, ours := conn.PgConn().Conn().(*statementConn); ours {
		c.begins(conn.PgConn(), names...)
	}
}

func (t *statementTracer) ends(conn *pgx.Conn) {
	if c, ours := conn.PgConn().Conn().(*statementConn); ours {
		if name := c.ends(); name != "" {
			t.fuse.moment("answered "+name, conn.PgConn().PID())
		}
	}
}

func (t *statementTracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	t.starts(conn, statementName(data.SQL))
	return ctx
}

func (t *statementTracer) TraceQueryEnd(_ context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	t.ends(conn)
}

func (t *statementTracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	names := make([]string, len(data.Batch.QueuedQueries))
	for i, q := range data.Batch.QueuedQueries {
		names[i] = statementName(q.SQL)
	}
	t.starts(conn, names...)
	return ctx
}

func (t *statementTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (t *statementTracer) TraceBatchEnd(_ context.Context, conn *pgx.Conn, _ pgx.TraceBatchEndData) {
	t.ends(conn)
}

var namedStatement = regexp.MustCompile(`^-- name: (\w+)`)

// statementName is what sqlc calls a statement, or its first word.
func statementName(sql string) string {
	if m := namedStatement.FindStringSubmatch(sql); m != nil {
		return m[1]
	}
	word, _, _ := strings.Cut(strings.TrimSpace(sql), " ")
	return word
}

// fusedStore is a store with a fuse in it.
type fusedStore struct {
	snapshot.Store
	fuse *fuse
}

func (s fusedStore) Put(ctx context.Context, key string, content io.Reader, want snapshot.Digest) error {
	s.fuse.moment("before Put", 0)
	err := s.Store.Put(ctx, key, &fusedReader{Reader: content, fuse: s.fuse}, want)
	s.fuse.moment("after Put", 0)
	return err
}

func (s fusedStore) Delete(ctx context.Context, key string) error {
	s.fuse.moment("before Delete", 0)
	err := s.Store.Delete(ctx, key)
	s.fuse.moment("after Delete", 0)
	return err
}

// fusedReader has a moment when all bytes are on their way and none has its name yet.
type fusedReader struct {
	io.Reader
	fuse *fuse
	over bool
}

func (r *fusedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if errors.Is(err, io.EOF) && !r.over {
		r.over = true
		r.fuse.moment("bytes not renamed", 0)
	}
	return n, err
}

// fusedProvider is a provider with a fuse in it.
type fusedProvider struct {
	provider.Provider
	fuse *fuse
}

func (p fusedProvider) Stop(ctx context.Context, id string) (provider.Answer, error) {
	answer, err := p.Provider.Stop(ctx, id)
	p.fuse.moment("machine stopped", 0)
	return answer, err
}

func (p fusedProvider) Destroy(ctx context.Context, id string) (provider.Answer, error) {
	answer, err := p.Provider.Destroy(ctx, id)
	p.fuse.moment("machine destroyed", 0)
	return answer, err
}
