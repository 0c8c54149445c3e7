package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"berth/db/postgres"
)

// serveDir makes the test binary a program that runs a private server in the
// directory it names, for tests that kill such a program.
const serveDir = "BERTH_POSTGRES_TEST_SERVE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveDir); dir != "" {
		os.Exit(serve(dir))
	}
	code := m.Run()
	if dir, err := stopped(); err == nil {
		_ = os.RemoveAll(filepath.Dir(dir))
	}
	os.Exit(code)
}

func serve(dir string) int {
	server, err := postgres.Start(context.Background(), postgres.Config{Dir: dir, Ephemeral: true, Logger: quiet})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(server.URL(postgres.Superuser, postgres.Database))
	interrupt := make(chan os.Signal, 1)
	signal.Notify(interrupt, os.Interrupt)
	<-interrupt
	if err := server.Stop(); err != nil {
		return 1
	}
	return 0
}

var quiet = slog.New(slog.DiscardHandler)

// mkdir is a new folder, in memory if there is such a place, that any user may
// enter. t.TempDir would not do: when the tests run as root, the server runs as
// a user who may not enter it.
func mkdir() (string, error) {
	dir, err := os.MkdirTemp("/dev/shm", "berth-postgres-test-")
	if err != nil {
		dir, err = os.MkdirTemp("", "berth-postgres-test-")
	}
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// newDir is a place for a server that has never been started.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := mkdir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "pg")
}

// stopped is the directory of a server that was started and stopped once.
var stopped = sync.OnceValues(func() (string, error) {
	dir, err := mkdir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "pg")
	server, err := postgres.Start(context.Background(), postgres.Config{Dir: dir, Ephemeral: true, Logger: quiet})
	if err != nil {
		return "", err
	}
	return dir, server.Stop()
})

// oldDir is the directory of a server that has run before: a copy of such a
// one, which takes a tenth of the time of making a cluster.
func oldDir(t *testing.T) string {
	t.Helper()
	from, err := stopped()
	if err != nil {
		t.Fatal(err)
	}
	dir := newDir(t)
	if out, err := exec.Command("cp", "-a", from, dir).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v\n%s", err, out)
	}
	return dir
}

// start starts an ephemeral server in dir, to be stopped at the end at the latest.
func start(t *testing.T, dir string) *postgres.Server {
	t.Helper()
	server, err := postgres.Start(t.Context(), postgres.Config{Dir: dir, Ephemeral: true, Logger: quiet})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { stop(t, server) })
	return server
}

func stop(t *testing.T, server *postgres.Server) {
	t.Helper()
	if err := server.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// refused starts a server that must not start, and returns why.
func refused(t *testing.T, cfg postgres.Config) error {
	t.Helper()
	cfg.Logger = quiet
	server, err := postgres.Start(t.Context(), cfg)
	if err == nil {
		stop(t, server)
		t.Fatalf("started in %s, which it should have refused", cfg.Dir)
	}
	return err
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func exec1(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// query1 is the one value that a query answers.
func query1[T any](t *testing.T, conn *pgx.Conn, query string) T {
	t.Helper()
	var value T
	if err := conn.QueryRow(t.Context(), query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

// eventually waits for something that other processes bring about.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !happened() {
		select {
		case <-deadline.C:
			t.Fatalf("gave up waiting until %s", what)
		case <-ticker.C:
		}
	}
}

// running is true for a process that is there and not just unwaited for.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !os.IsNotExist(err)
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

// serverPID is the process of the server in dir.
func serverPID(t *testing.T, dir string) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// serveElsewhere runs this test binary as another program that serves dir.
func serveElsewhere(t *testing.T, dir string) (program *exec.Cmd, url string) {
	t.Helper()
	program = exec.Command(os.Args[0])
	program.Env = append(os.Environ(), serveDir+"="+dir)
	program.Stderr = os.Stderr
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	})
	if _, err := fmt.Fscanln(out, &url); err != nil {
		t.Fatalf("the other program did not start its server: %v", err)
	}
	return program, url
}
