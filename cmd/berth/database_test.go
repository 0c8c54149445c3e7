package main

import (
	"context"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"berth/db/dbtest"
)

func TestServeOnADatabaseOfYoursMigratesOnRequestOnly(t *testing.T) {
	t.Parallel()
	owner, service := emptyDatabase(t)
	dir := openTempDir(t)
	r := invoke(t, dir, nil, "serve", "--addr", "127.0.0.1:0", "--database-url", service)
	refused(t, r, exitFailed, "schema has version 0", "berth migrate up")
	r = invoke(t, dir, nil, "migrate", "status", "--migrate-url", owner)
	refused(t, r, exitFailed, "not the one")
	wants(t, r.stdout, "schema version 0", "behind: run berth migrate up")
	refused(t, invoke(t, dir, nil, "serve", "--addr", "127.0.0.1:0", "--migrate-url", owner), exitUsage, "--migrate-url goes with --database-url")

	s := start(t, dir, nil, "--database-url", service, "--migrate-url", owner)
	made := s.must(t, "create", "company", "Acme")
	if strings.Contains(s.log.String(), "protects the history") {
		t.Errorf("the role berth is warned of: %s", s.log)
	}
	s.end(syscall.SIGINT)
	if r := invoke(t, dir, nil, "migrate", "status", "--database-url", service); r.code != 0 {
		t.Errorf("status after the migration: %s%s", r.stdout, r.stderr)
	}
	wants(t, invoke(t, dir, nil, "migrate", "up", "--migrate-url", owner).stdout, "The schema has version")

	// Any number of services share a database and its snapshots, and one token is enough.
	first := start(t, dir, nil, "--database-url", service)
	second := start(t, openTempDir(t), nil, "--database-url", service, "--snapshot-url", "file://"+dir+"/.berth/snapshots")
	wants(t, second.banner[1], "none made")
	first.url = second.url
	wants(t, first.must(t, "list", "companies"), made)
}

func TestServeRefusesSnapshotsOfAnotherInstallation(t *testing.T) {
	t.Parallel()
	owner, service := emptyDatabase(t)
	dir := openTempDir(t)
	first := start(t, dir, nil, "--database-url", service, "--migrate-url", owner)
	first.must(t, "create", "company", "Acme")
	first.must(t, "create", "issue", "Parent")
	first.must(t, "create", "workspace", "--issue", "ACME-1")
	first.end(syscall.SIGINT)
	r := invoke(t, dir, nil, "serve", "--addr", "127.0.0.1:0", "--database-url", service, "--snapshot-url", "file://"+dir+"/other")
	refused(t, r, exitFailed, "marker", "BERTH_SNAPSHOT_URL")
	r = invoke(t, dir, nil, "serve", "--addr", "127.0.0.1:0", "--database-url", service, "--snapshot-url", "nonsense")
	refused(t, r, exitFailed, "BERTH_SNAPSHOT_URL", "file:///")
}

func TestServeSaysWhatOneRoleForEverythingDoesNotProtect(t *testing.T) {
	t.Parallel()
	database := dbtest.New(t)
	for role, address := range map[string]string{"owns the schema": database.OwnerURL, "superuser": database.AdminURL} {
		s := start(t, openTempDir(t), nil, "--database-url", address)
		wants(t, s.log.String(), role, "nothing protects the history", "--migrate-url")
		s.end(syscall.SIGINT)
	}
}

func TestServeNamesADatabaseThatIsNotThere(t *testing.T) {
	t.Parallel()
	r := invoke(t, openTempDir(t), nil, "serve", "--addr", "127.0.0.1:0", "--database-url", "postgres://berth:hidden@127.0.0.1:1/berth")
	refused(t, r, exitFailed, "connect to the database", "refused")
	if strings.Contains(r.stderr, "hidden") {
		t.Error("the message has the password")
	}
}

func TestMigrateWorksOnThePrivateServer(t *testing.T) {
	t.Parallel()
	dir := openTempDir(t)
	if r := invoke(t, dir, nil, "migrate", "up"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	wants(t, invoke(t, dir, nil, "migrate", "status").stdout, "up to date")
	s := start(t, dir, nil)
	refused(t, s.berth(t, "migrate", "status"), exitFailed, "another berth serve")
}

// emptyDatabase makes a database without a schema, and returns its URLs for the
// owner and for the service.
func emptyDatabase(t *testing.T) (owner, service string) {
	t.Helper()
	base := dbtest.New(t)
	name := "cli_" + strings.ToLower(strings.TrimPrefix(t.Name(), "Test"))
	name = name[:min(len(name), 60)]
	admin(t, base.AdminURL, "CREATE DATABASE "+name+" OWNER berth_owner")
	t.Cleanup(func() { admin(t, base.AdminURL, "DROP DATABASE "+name+" WITH (FORCE)") })
	return inDatabase(t, base.OwnerURL, name), inDatabase(t, base.ServiceURL, name)
}

func admin(t *testing.T, address, statement string) {
	t.Helper()
	ctx := context.Background() // a clean-up runs after the test's own is over
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Fatal(err)
	}
}

func inDatabase(t *testing.T, address, name string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}
