package dbtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"berth/db"
	"berth/db/postgres"
)

// poolerVariable names a pooler to put between the tests and their server:
// "pgbouncer", or the path of that program.
const poolerVariable = "BERTH_TEST_DATABASE_POOLER"

// Pooled reports whether the pools of this package go through a transaction
// pooler, which the environment asks for with BERTH_TEST_DATABASE_POOLER.
func Pooled() bool { return os.Getenv(poolerVariable) != "" }

// DirectOnly skips a test that has nothing to say where a transaction pooler
// stands before the server; why tells what it needs that does not come through.
func DirectOnly(t testing.TB, why string) {
	t.Helper()
	if Pooled() {
		t.Skipf("not through a transaction pooler: %s", why)
	}
}

// Pooler is a PgBouncer in transaction mode. It ends with this program.
type Pooler struct {
	program string
	folder  string // of its socket, its settings and its log
}

const (
	poolerPort = "6432"

	// poolerSessions are how many of the server's sessions all connections to
	// one database share: fewer than a pool has, so that sessions change hands.
	poolerSessions = 3

	poolerAdmin = "pooler_admin"
)

// NewPooler puts a PgBouncer in transaction mode before a server. settings are
// further lines of its section [pgbouncer]. The test is skipped where the
// program is not installed.
func NewPooler(t testing.TB, server *postgres.Server, settings ...string) *Pooler {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("PgBouncer is not installed")
	}
	dir, err := newFolder()
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	address, err := url.Parse(server.URL(postgres.Service, postgres.Database))
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	password, _ := address.User.Password()
	p, err := startPooler(t.Context(), program, dir, address, map[string]string{postgres.Service: password}, settings)
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	return p
}

// URL is the way through the pooler that direct is the way around.
func (p *Pooler) URL(t testing.TB, direct string) string {
	t.Helper()
	through, err := p.through(direct)
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	return through
}

func (p *Pooler) through(direct string) (string, error) {
	u, err := url.Parse(direct)
	if err != nil {
		return "", err
	}
	u.Host = ""
	u.RawQuery = url.Values{"host": {p.folder}, "port": {poolerPort}, "sslmode": {"disable"}}.Encode()
	return u.String(), nil
}

// startPooler starts the program in a folder below dir, before the server at
// address.
func startPooler(
	ctx context.Context, program, dir string, address *url.URL, passwords map[string]string, settings []string,
) (*Pooler, error) {
	p := &Pooler{program: program, folder: filepath.Join(dir, "pooler")}
	config, err := pgx.ParseConfig(address.String())
	if err != nil {
		return nil, err
	}
	lines := append([]string{
		"[databases]", fmt.Sprintf("* = host=%s port=%d", config.Host, config.Port),
		"[pgbouncer]", "pool_mode = transaction", fmt.Sprintf("default_pool_size = %d", poolerSessions),
		"max_client_conn = 2000", "listen_addr =", "listen_port = " + poolerPort,
		"unix_socket_dir = " + p.folder, "auth_type = trust", "auth_file = " + p.path("users"), "admin_users = " + poolerAdmin,
		"logfile = " + p.path("log"),
	}, settings...)
	users := []string{`"` + poolerAdmin + `" ""`}
	for role, password := range passwords {
		users = append(users, fmt.Sprintf("%q %q", role, password))
	}
	account, err := p.settle(map[string]string{"settings": strings.Join(lines, "\n"), "users": strings.Join(users, "\n")}, config.Host)
	if err != nil {
		return nil, err
	}
	if err := p.start(account); err != nil {
		return nil, err
	}
	return p, p.awaitStart(ctx)
}

func (p *Pooler) path(name string) string { return filepath.Join(p.folder, name) }

// settle makes the folder with these files, for the account that may enter the
// folder of the server's socket. PgBouncer does not run as root.
func (p *Pooler) settle(files map[string]string, socket string) (*syscall.SysProcAttr, error) {
	attributes := &syscall.SysProcAttr{Setpgid: true}
	if err := os.Mkdir(p.folder, 0o700); err != nil {
		return nil, err
	}
	for name, content := range files {
		if err := os.WriteFile(p.path(name), []byte(content+"\n"), 0o600); err != nil {
			return nil, err
		}
	}
	if os.Geteuid() != 0 {
		return attributes, nil
	}
	info, err := os.Stat(socket)
	if err != nil {
		return nil, err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || owner.Uid == 0 {
		return nil, fmt.Errorf("%s does not tell who may run a pooler beside it", socket)
	}
	attributes.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	for _, path := range []string{p.folder, p.path("settings"), p.path("users")} {
		if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
			return nil, err
		}
	}
	return attributes, nil
}

// start starts the pooler below a shell that ends it when this program is gone:
// only this program holds the other end of the pipe that the shell reads.
func (p *Pooler) start(account *syscall.SysProcAttr) error {
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	const script = `trap "" HUP INT TERM; "$1" -q "$2" & read -r _; kill -KILL $!`
	shell := exec.Command("/bin/sh", "-c", script, "sh", p.program, p.path("settings"))
	shell.Dir, shell.Stdin, shell.SysProcAttr = "/", reader, account
	if err := shell.Start(); err != nil {
		return errors.Join(err, reader.Close(), writer.Close())
	}
	hold(writer)
	return errors.Join(reader.Close(), shell.Process.Release())
}

func (p *Pooler) awaitStart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", p.path(".s.PGSQL."+poolerPort))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			said, _ := os.ReadFile(p.path("log"))
			return fmt.Errorf("%s does not answer: %w\n%s", p.program, err, said)
		}
	}
}

// letGo has the pooler give up the sessions of a database that are not at work.
func (p *Pooler) letGo(ctx context.Context, database string) error {
	address, err := p.through("postgres://" + poolerAdmin + "@/pgbouncer")
	if err != nil {
		return err
	}
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // its console knows no other
	console, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("the pooler's console: %w", err)
	}
	defer console.Close(context.WithoutCancel(ctx)) //nolint:errcheck // what it did is done
	if _, err := console.Exec(ctx, `RECONNECT "`+database+`"`); err != nil {
		return fmt.Errorf("the pooler's console: %w", err)
	}
	return nil
}

// poolerOptions are those of a pool that goes where the tests' pools go.
func poolerOptions(maxConns int32) db.Options {
	options := db.Options{MaxConns: maxConns}
	if Pooled() {
		options.Pooler = db.TransactionPooler
	}
	return options
}
