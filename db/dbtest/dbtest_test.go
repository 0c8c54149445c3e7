package dbtest_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"berth/db"
	"berth/db/dbtest"
	"berth/db/postgres"
)

// asProgram makes one test of this binary what another program would run.
const asProgram = "BERTH_DBTEST_PROGRAM"

func TestATestHasAMigratedDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	first, second := dbtest.New(t), dbtest.New(t)
	for _, d := range []*dbtest.Database{first, second} {
		if err := db.CheckSchema(t.Context(), d.Pool); err != nil {
			t.Errorf("the schema: %v", err)
		}
	}
	create(t, first.OwnerURL, "CREATE TABLE mine (n int)")
	var visible bool
	if err := second.Pool.QueryRow(t.Context(), "SELECT to_regclass('mine') IS NOT NULL").Scan(&visible); err != nil || visible {
		t.Errorf("the other test sees it: %v, %v", visible, err)
	}
}

func TestTheServiceWorksAsARoleThatOwnsNothing(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	var user string
	var owned int
	err := d.Pool.QueryRow(t.Context(), `SELECT current_user,
		(SELECT count(*) FROM pg_class WHERE relowner = current_user::regrole) +
		(SELECT count(*) FROM pg_namespace WHERE nspowner = current_user::regrole) +
		(SELECT count(*) FROM pg_database WHERE datdba = current_user::regrole)`).Scan(&user, &owned)
	if err != nil {
		t.Fatal(err)
	}
	if user != postgres.Service || owned != 0 {
		t.Errorf("works as %s, which owns %d things", user, owned)
	}
	var owner string
	err = d.Pool.QueryRow(t.Context(), "SELECT relowner::regrole::text FROM pg_class WHERE relname = 'execution_workspaces'").Scan(&owner)
	if err != nil || owner != postgres.Owner {
		t.Errorf("the schema belongs to %s, %v", owner, err)
	}
}

// TestProgram is what the programs of the tests below do. By itself it does
// nothing.
func TestProgram(t *testing.T) {
	switch os.Getenv(asProgram) {
	case "":
		t.Skip("for the other tests")
	case "databases": // several tests with several databases
		for i := range 4 {
			t.Run(fmt.Sprint(i), func(t *testing.T) { // they run at once
				TestATestHasAMigratedDatabaseOfItsOwn(t)
			})
		}
	case "hang": // tells where its server is, and waits to be killed
		d := dbtest.New(t)
		config, err := pgx.ParseConfig(d.AdminURL)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("\nserver %s\n", config.Host)
		select {}
	}
}

// program runs this test binary again, as another program.
func program(t *testing.T, what string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProgram$", "-test.v")
	cmd.Env = append(env, asProgram+"="+what, "PATH="+os.Getenv("PATH"))
	return cmd
}

func TestTheServersFolderIsGoneAfterItsProgramWasKilled(t *testing.T) {
	t.Parallel()
	killed := program(t, "hang")
	out, err := killed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	var folder string
	for lines := bufio.NewScanner(out); folder == "" && lines.Scan(); {
		if dir, found := strings.CutPrefix(lines.Text(), "server "); found {
			folder = dir
		}
	}
	if folder == "" {
		t.Fatal("the program did not say where its server is")
	}
	folder = filepath.Dir(filepath.Dir(folder)) // of FOLDER/pg/run
	if _, err := os.Stat(filepath.Join(folder, "lock")); err != nil {
		t.Fatalf("%s is no server's folder: %v", folder, err)
	}
	if err := killed.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	deadline := time.After(20 * time.Second)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		if _, err := os.Stat(folder); os.IsNotExist(err) {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s is still there", folder)
		case <-ticker.C:
		}
	}
}

func TestProgramsAtOnceOnOneServerDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	// As on a server that Berth never saw.
	create(t, server.URL(postgres.Superuser, "postgres"), "DROP DATABASE berth", "DROP ROLE berth, berth_owner, berth_auditor")

	const programs = 3
	outputs := make([]bytes.Buffer, programs)
	running := make([]*exec.Cmd, programs)
	for i := range running {
		running[i] = program(t, "databases", "BERTH_TEST_DATABASE_URL="+server.URL(postgres.Superuser, "postgres"))
		running[i].Stdout, running[i].Stderr = &outputs[i], &outputs[i]
		if err := running[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range running {
		if err := running[i].Wait(); err != nil {
			t.Errorf("program %d: %v\n%s", i, err, &outputs[i])
		}
	}
	conn, err := pgx.Connect(t.Context(), server.URL(postgres.Superuser, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // it only read
	rows, err := conn.Query(t.Context(), "SELECT datname FROM pg_database WHERE NOT datistemplate AND datname <> 'postgres'")
	if err != nil {
		t.Fatal(err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(left) > 0 {
		t.Errorf("databases left: %s, %v", strings.Join(left, ", "), err)
	}
}

func create(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // its statements were answered
	for _, statement := range statements {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}
