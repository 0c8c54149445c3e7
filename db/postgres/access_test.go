package postgres_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"berth/db/postgres"
)

func TestNobodyGetsInWithoutThePassword(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	first := start(t, dir)
	stop(t, first)
	// The cluster's own rules may say what they like.
	open := []byte("local all all trust\nhost all all 0.0.0.0/0 trust\n")
	if err := os.WriteFile(filepath.Join(dir, "data", "pg_hba.conf"), open, 0o600); err != nil {
		t.Fatal(err)
	}
	server := start(t, dir)
	for _, role := range []string{postgres.Superuser, postgres.Owner, postgres.Service} {
		config, err := pgx.ParseConfig(server.URL(role, postgres.Database))
		if err != nil {
			t.Fatal(err)
		}
		for _, password := range []string{"", "guess", role} {
			config.Password = password
			if conn, err := pgx.ConnectConfig(t.Context(), config); err == nil {
				_ = conn.Close(t.Context())
				t.Errorf("%s gets in with the password %q", role, password)
			}
		}
	}
	conn := connect(t, server.URL(postgres.Superuser, postgres.Database))
	if addresses := query1[string](t, conn, "SHOW listen_addresses"); addresses != "" {
		t.Errorf("it listens on %q", addresses)
	}
}

func TestSecretsAndSocketAreClosedToOtherUsers(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	start(t, dir)
	for path, want := range map[string]os.FileMode{"passwords.json": 0o600, "postgres.log": 0o600, "run": 0o700, "data": 0o700} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %o, want %o", path, info.Mode().Perm(), want)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files were left: %q %v", left, err)
	}
	if os.Geteuid() != 0 {
		return // the rest needs a second user to try it as
	}
	const stranger = 54321
	for _, path := range []string{"run/.s.PGSQL.5432", "passwords.json", "data/PG_VERSION", "postgres.log"} {
		try := exec.Command("/bin/sh", "-c", `test -r "$1" || test -S "$1"`, "sh", filepath.Join(dir, path))
		try.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
		try.Dir = "/"
		if err := try.Run(); err == nil {
			t.Errorf("a stranger reaches %s", path)
		}
	}
}

func TestALostPasswordFileLocksNobodyOut(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	first := start(t, dir)
	before := first.URL(postgres.Superuser, postgres.Database)
	exec1(t, connect(t, before), "CREATE TABLE kept (n int); INSERT INTO kept VALUES (42)")
	stop(t, first)
	if err := os.Remove(filepath.Join(dir, "passwords.json")); err != nil {
		t.Fatal(err)
	}
	second := start(t, dir)
	after := second.URL(postgres.Superuser, postgres.Database)
	if after == before {
		t.Fatal("the passwords did not change")
	}
	if n := query1[int](t, connect(t, after), "SELECT n FROM kept"); n != 42 {
		t.Errorf("found %d, want 42", n)
	}
	connect(t, second.URL(postgres.Service, postgres.Database))
}

func TestDataOfAnotherMajorVersionIsRefusedUntouched(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	server := start(t, dir)
	binDir := query1[string](t, connect(t, server.URL(postgres.Superuser, postgres.Database)),
		"SELECT setting FROM pg_config WHERE name = 'BINDIR'")
	stop(t, server)
	version := filepath.Join(dir, "data", "PG_VERSION")
	if err := os.WriteFile(version, []byte("12\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	marker := filepath.Join(dir, "data", "base")
	err := refused(t, postgres.Config{Dir: dir, BinDir: binDir})
	var mismatch *postgres.VersionError
	if !errors.As(err, &mismatch) || mismatch.Data != 12 {
		t.Fatalf("got %v, want a VersionError for 12", err)
	}
	for _, wayOut := range []string{"pg_upgrade", "pg_dumpall", "Postgres 12", "BERTH_POSTGRES_BINDIR"} {
		if !strings.Contains(err.Error(), wayOut) {
			t.Errorf("%q does not mention %s", err, wayOut)
		}
	}
	if content, err := os.ReadFile(version); err != nil || string(content) != "12\n" {
		t.Errorf("PG_VERSION changed to %q (%v)", content, err)
	}
	if _, err := os.Stat(marker); err != nil {
		t.Errorf("the data changed: %v", err)
	}
}

func TestAFolderThatIsNoClusterIsNotOverwritten(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	precious := filepath.Join(dir, "data", "thesis.txt")
	if err := os.MkdirAll(filepath.Dir(precious), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(precious, []byte("years"), 0o644); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Dir(precious), 54321, 54321); err != nil {
			t.Fatal(err)
		}
	}
	err := refused(t, postgres.Config{Dir: dir, Ephemeral: true})
	if !strings.Contains(err.Error(), "data") {
		t.Errorf("the folder is not named: %v", err)
	}
	if content, err := os.ReadFile(precious); err != nil || string(content) != "years" {
		t.Errorf("the file is gone: %q %v", content, err)
	}
}

func TestAParentFolderThatIsClosedToTheServersUserIsNamed(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root's server runs as another user")
	}
	closed := newDir(t)
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(closed, "berth", "pg")
	err := refused(t, postgres.Config{Dir: dir, Ephemeral: true})
	if !strings.Contains(err.Error(), "may not enter "+closed+":") {
		t.Errorf("got %q, want the folder %s named", err, closed)
	}
	if err := postgres.CheckDir(dir); err == nil {
		t.Error("CheckDir finds nothing wrong")
	}
	if err := os.Chmod(closed, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := postgres.CheckDir(dir); err != nil {
		t.Errorf("CheckDir, when it is open: %v", err)
	}
	connect(t, start(t, dir).URL(postgres.Service, postgres.Database))
}
