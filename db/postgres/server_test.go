package postgres_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"berth/db/postgres"
)

func TestASecondStartFindsTheDataOfTheFirst(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	first, err := postgres.Start(t.Context(), postgres.Config{Dir: dir, Logger: quiet}) // durable
	if err != nil {
		t.Fatal(err)
	}
	owner := connect(t, first.URL(postgres.Owner, postgres.Database))
	exec1(t, owner, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (42)")
	stop(t, first)
	select {
	case <-first.Done():
	default:
		t.Error("Done is open after Stop")
	}
	second := start(t, dir)
	owner = connect(t, second.URL(postgres.Owner, postgres.Database))
	if n := query1[int](t, owner, "SELECT n FROM kept"); n != 42 {
		t.Errorf("found %d, want 42", n)
	}
}

func TestTheServiceOwnsNothingAndTheOwnerOwnsTheDatabase(t *testing.T) {
	t.Parallel()
	server := start(t, oldDir(t))
	conn := connect(t, server.URL(postgres.Service, postgres.Database))
	if role := query1[string](t, conn, "SELECT current_user::text"); role != postgres.Service {
		t.Errorf("connected as %s", role)
	}
	owner := query1[string](t, conn, "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'berth'")
	if owner != postgres.Owner {
		t.Errorf("the database belongs to %s", owner)
	}
	super := query1[bool](t, conn, "SELECT bool_or(rolsuper OR rolcreaterole OR rolcreatedb) FROM pg_roles WHERE rolname LIKE 'berth%'")
	if super {
		t.Error("a role of Berth has rights over the server")
	}
	if _, err := conn.Exec(t.Context(), "CREATE TABLE mine (n int)"); err == nil {
		t.Error("the service may create tables")
	}
}

func TestTheServerDiesWithTheProgramThatStartedIt(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	program, url := serveElsewhere(t, dir)
	exec1(t, connect(t, url), "CREATE TABLE kept (n int); INSERT INTO kept VALUES (42)")
	pid := serverPID(t, dir)

	if err := program.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = program.Wait()
	// At once, while the old server may still be going down.
	server := start(t, dir)
	if running(pid) {
		t.Errorf("server %d outlived its program", pid)
	}
	if n := query1[int](t, connect(t, server.URL(postgres.Superuser, postgres.Database)), "SELECT n FROM kept"); n != 42 {
		t.Errorf("found %d, want 42", n)
	}
}

func TestAServerThatIsKilledComesBackAtTheSameAddress(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	server := start(t, dir)
	url := server.URL(postgres.Superuser, postgres.Database)
	exec1(t, connect(t, url), "CREATE TABLE kept (n int); INSERT INTO kept VALUES (42)")

	for range 2 {
		if err := syscall.Kill(serverPID(t, dir), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		var conn *pgx.Conn
		eventually(t, "the server is back", func() (up bool) {
			var err error
			conn, err = pgx.Connect(t.Context(), url)
			return err == nil
		})
		if n := query1[int](t, conn, "SELECT n FROM kept"); n != 42 {
			t.Errorf("found %d, want 42", n)
		}
		_ = conn.Close(t.Context())
	}
	if err := server.Err(); err != nil {
		t.Errorf("Err is %v while the server runs", err)
	}
}

func TestAServerThatCannotComeBackSaysSo(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	server, err := postgres.Start(t.Context(), postgres.Config{Dir: dir, Ephemeral: true, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	pid := serverPID(t, dir)
	if err := os.Remove(filepath.Join(dir, "data", "global", "pg_control")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-server.Done():
	case <-time.After(time.Minute):
		t.Fatal("Done stayed open")
	}
	if err := server.Err(); err == nil || !strings.Contains(err.Error(), "pg_control") {
		t.Errorf("Err is %v, want what the server said", err)
	}
	if err := server.Stop(); err == nil {
		t.Error("Stop reports a clean end")
	}
}

// stalePID stops the server in dir and puts its postmaster.pid back, with the
// number of a live process that is not a server in it.
func stalePID(t *testing.T, dir string, server *postgres.Server) {
	t.Helper()
	path := filepath.Join(dir, "data", "postmaster.pid")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	stop(t, server)

	// Postgres refuses only if the process is of its own user.
	other := exec.Command("sleep", "600")
	if os.Geteuid() == 0 {
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	other.Dir = "/"
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	})
	_, rest, _ := strings.Cut(string(content), "\n")
	stale := strconv.Itoa(other.Process.Pid) + "\n" + rest
	if err := os.WriteFile(path, []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
		t.Fatal(err)
	}
}

func TestAStalePIDFileThatNamesAForeignProcessIsOvercome(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	stalePID(t, dir, start(t, dir))
	server := start(t, dir)
	connect(t, server.URL(postgres.Service, postgres.Database))
}

func TestAServerThatSomebodyElseRunsOnTheDataIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	program, url := serveElsewhere(t, dir)
	pid := serverPID(t, dir)
	// Another program than the one that holds the lock: its lock file is gone.
	if err := os.Remove(filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := postgres.Start(ctx, postgres.Config{Dir: dir, Ephemeral: true, Logger: quiet})
	if err == nil || !strings.Contains(err.Error(), "kill -INT "+strconv.Itoa(pid)) {
		t.Fatalf("got %v, want the way out", err)
	}
	if !running(pid) {
		t.Fatal("the other server is gone")
	}
	if err := program.Process.Signal(syscall.Signal(0)); err != nil {
		t.Error(err)
	}
	connect(t, url)
}

func TestASecondProgramOnOneDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	program, url := serveElsewhere(t, dir)
	err := refused(t, postgres.Config{Dir: dir, Ephemeral: true})
	if !errors.Is(err, postgres.ErrRunning) {
		t.Fatalf("got %v, want ErrRunning", err)
	}
	if text := err.Error(); strings.Contains(text, "\n") || !strings.Contains(text, strconv.Itoa(program.Process.Pid)) {
		t.Errorf("want one line that names process %d, got %q", program.Process.Pid, text)
	}
	connect(t, url) // the first one is as well as before
}

func TestATakenPortIsNamed(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close() //nolint:errcheck // only its number was wanted
	port := taken.Addr().(*net.TCPAddr).Port
	err = refused(t, postgres.Config{Dir: oldDir(t), Ephemeral: true, Port: port})
	if text := err.Error(); !strings.Contains(text, "port "+strconv.Itoa(port)) || strings.Contains(text, "\n") {
		t.Errorf("want one line that names the port, got %q", text)
	}
}

func TestAPortOpensLoopbackWithAPassword(t *testing.T) {
	t.Parallel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	server, err := postgres.Start(t.Context(), postgres.Config{Dir: oldDir(t), Ephemeral: true, Port: port, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, server)
	config, err := pgx.ParseConfig(server.URL(postgres.Service, postgres.Database))
	if err != nil {
		t.Fatal(err)
	}
	config.Host = "127.0.0.1"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatalf("with the password: %v", err)
	}
	_ = conn.Close(t.Context())
	config.Password = "guess"
	if _, err := pgx.ConnectConfig(t.Context(), config); err == nil {
		t.Error("any password opens the port")
	}
}

func TestAnyFolderNameWorks(t *testing.T) {
	t.Parallel()
	for name, folder := range map[string]string{
		"spaces and signs":      `a b "d" 'e' %20+&=ü$(x)`,
		"a comma":               "a,b",
		"too long for a socket": strings.Repeat("long-", 24),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(newDir(t), folder)
			server := start(t, dir)
			url := server.URL(postgres.Service, postgres.Database)
			connect(t, url)
			if psql, err := exec.LookPath("psql"); err == nil {
				out, err := exec.Command(psql, "-XAtc", "SELECT current_user", url).CombinedOutput()
				if err != nil || strings.TrimSpace(string(out)) != postgres.Service {
					t.Errorf("psql does not read the URL: %v\n%s", err, out)
				}
			}
		})
	}
}

func TestASocketFolderElsewhereIsRemovedAlsoAfterACrash(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(newDir(t), strings.Repeat("long-", 24))
	program, _ := serveElsewhere(t, dir)
	left, err := os.Readlink(filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	_ = program.Process.Kill()
	_ = program.Wait()

	server := start(t, dir)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("%s is still there after the next start: %v", left, err)
	}
	own, err := os.Readlink(filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	stop(t, server)
	if _, err := os.Stat(own); !os.IsNotExist(err) {
		t.Errorf("%s is still there after Stop: %v", own, err)
	}
}

func TestTheLocaleAndPGVariablesOfTheCallerDoNotMatter(t *testing.T) {
	for name, value := range map[string]string{
		"LC_ALL": "xx_YY.UTF-8", "LANG": "de_DE", "LC_MESSAGES": "fr_FR",
		"PGDATA": "/nowhere", "PGPORT": "1", "PGHOST": "nowhere.invalid", "PGUSER": "nobody", "PGDATABASE": "nothing",
		"PGCLIENTENCODING": "LATIN1", "PGSSLMODE": "verify-full",
	} {
		t.Setenv(name, value)
	}
	server := start(t, newDir(t))
	conn := connect(t, server.URL(postgres.Service, postgres.Database))
	if encoding := query1[string](t, conn, "SHOW server_encoding"); encoding != "UTF8" {
		t.Errorf("the encoding is %s", encoding)
	}
}

func TestAnInterruptedFirstStartIsBegunAgain(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for ctx.Err() == nil { // until initdb is at work
			if _, err := os.Stat(filepath.Join(dir, "data.init", "base")); err == nil {
				return
			}
		}
	}()
	if _, err := postgres.Start(ctx, postgres.Config{Dir: dir, Ephemeral: true, Logger: quiet}); err == nil {
		t.Fatal("started although its context had ended")
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); !os.IsNotExist(err) {
		t.Fatalf("half a cluster stands at its place: %v", err)
	}
	connect(t, start(t, dir).URL(postgres.Service, postgres.Database))
}
