package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCreatesPrintTheIDAloneAndShowTellsTheRest(t *testing.T) {
	t.Parallel()
	s := company(t, "MAKE")
	for _, c := range []struct {
		create []string
		show   []string // the kind and the name to show it by; none where it is only listed
		list   []string
	}{
		{[]string{"agent", "coder", "-c", "MAKE", "--adapter", "claude_local"}, nil, []string{"agents", "-c", "MAKE"}},
		{[]string{"project", "Web", "-c", "MAKE", "--policy", `{"enabled": true}`}, []string{"project", "web", "-c", "MAKE"}, []string{"projects", "-c", "make"}},
		{[]string{"source", "main", "-c", "MAKE", "--project", "Web", "--type", "git_repo", "--repo-url", "https://example.com/x.git", "--primary"}, nil, []string{"sources", "-c", "MAKE", "--project", "Web"}},
		{[]string{"environment", "laptop of MAKE", "--config", `{"host": "here"}`}, []string{"environment", "laptop of MAKE"}, []string{"environments"}},
		{[]string{"issue", "Parent", "-c", "MAKE", "--project", "Web", "--assignee", "coder", "--status", "in_progress"}, []string{"issue", "make-1"}, []string{"issues", "-c", "MAKE", "--status", "in_progress", "--assignee", "coder"}},
		{[]string{"workspace", "the workspace", "--issue", "MAKE-1"}, []string{"workspace", "the workspace", "-c", "MAKE"}, []string{"workspaces", "-c", "MAKE", "--status", "active"}},
		{[]string{"issue", "Child", "--parent", "MAKE-1"}, []string{"issue", "MAKE-2"}, []string{"issues", "-c", "MAKE", "--parent", "MAKE-1", "--workspace", "MAKE-1"}},
		{[]string{"issue", "Stranger", "--parent", "MAKE-1", "--no-inherit"}, []string{"issue", "MAKE-3"}, []string{"issues", "-c", "MAKE"}},
	} {
		id := s.must(t, append([]string{"create"}, c.create...)...)
		if len(id) != 36 {
			t.Errorf("create %v printed %q", c.create, id)
		}
		wants(t, s.must(t, append([]string{"list"}, c.list...)...), id)
		if c.show == nil {
			continue
		}
		show := append([]string{"show"}, c.show...)
		wants(t, s.must(t, show...), id, "createdAt")
		if got := memberOf(t, s.must(t, append(show, "--output", "json")...), "id"); got != id {
			t.Errorf("%v shows %v, not %s", show, got, id)
		}
	}
	workspace := memberOf(t, s.must(t, "show", "issue", "MAKE-1", "-o", "json"), "executionWorkspaceId")
	if inherited := memberOf(t, s.must(t, "show", "issue", "MAKE-2", "-o", "json"), "executionWorkspaceId"); inherited != workspace {
		t.Errorf("the child has workspace %v, not %v", inherited, workspace)
	}
	if own := memberOf(t, s.must(t, "show", "issue", "MAKE-3", "-o", "json"), "executionWorkspaceId"); own != nil {
		t.Errorf("the child that inherits nothing has workspace %v", own)
	}
	refused(t, s.berth(t, "create", "workspace", "--issue", "MAKE-2"), exitFailed, "is bound to workspace", workspace.(string))
	wants(t, s.must(t, "show", "company", "make"), "MAKE Inc")
	wants(t, s.must(t, "show", "settings"), "enableIsolatedWorkspaces")
	wants(t, s.must(t, "create", "issue", "As JSON", "-c", "MAKE", "-o", "json"), `"identifier": "MAKE-4"`)
}

func TestListsAreWholeUnlessLimited(t *testing.T) {
	t.Parallel()
	s := company(t, "LIST")
	for range 3 {
		s.must(t, "create", "issue", "One of many", "-c", "LIST")
	}
	all := s.must(t, "list", "issues", "-c", "LIST", "-o", "json")
	if items := memberOf(t, all, "items").([]any); len(items) != 3 {
		t.Errorf("%d items", len(items))
	}
	if cursor := memberOf(t, all, "nextCursor"); cursor != nil {
		t.Errorf("a whole list goes on at %v", cursor)
	}
	if rows := strings.Count(s.must(t, "list", "issues", "-c", "LIST", "--limit", "2"), "LIST-"); rows != 2 {
		t.Errorf("%d rows", rows)
	}
	if empty := memberOf(t, s.must(t, "list", "leases", "-c", "LIST", "-o", "json"), "items"); len(empty.([]any)) != 0 {
		t.Errorf("leases: %v", empty)
	}
}

func TestListReadsEveryPage(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pages := map[string]string{
			"":  `{"items":[{"id":"00000000-0000-7000-8000-000000000001","name":"one"}],"nextCursor":"b"}`,
			"b": `{"items":[{"id":"00000000-0000-7000-8000-000000000002","name":"two"}],"nextCursor":null}`,
		}
		_, _ = w.Write([]byte(pages[r.URL.Query().Get("cursor")]))
	}))
	defer service.Close()
	r := invoke(t, t.TempDir(), []string{"BERTH_URL=" + service.URL, "BERTH_TOKEN=any"}, "list", "environments")
	if r.code != 0 {
		t.Fatal(r.stderr)
	}
	wants(t, r.stdout, "one", "two")
}

func TestNamesThatDoNotSayWhichAreRefused(t *testing.T) {
	t.Parallel()
	s := company(t, "NAME")
	company(t, "OTHER")
	first := s.must(t, "create", "project", "Twin", "-c", "NAME")
	second := s.must(t, "create", "project", "twin", "-c", "NAME")
	refused(t, s.berth(t, "show", "project", "Twin", "-c", "NAME"), exitFailed, "2 projects are called", first, second)
	refused(t, s.berth(t, "list", "agents"), exitUsage, "which company", "--company")
	refused(t, s.berth(t, "list", "agents", "-c", "NOSUCH"), exitFailed, `no company "NOSUCH"`)
	refused(t, s.berth(t, "show", "issue", "NAME-99"), exitFailed, `no task "NAME-99"`)
	refused(t, s.berth(t, "show", "issue", "gibberish"), exitUsage, "identifier")
	refused(t, s.berth(t, "show", "run", "gibberish"), exitUsage, "not an id")
	refused(t, s.berth(t, "show", "issue"), exitUsage, "which issue")
	refused(t, s.berth(t, "show", "settings", "extra"), exitUsage, "only one")
	refused(t, s.berth(t, "show", "nonsense", "x"), exitUsage, "nonsense")
	s.must(t, "create", "issue", "Without a workspace", "-c", "NAME")
	refused(t, s.berth(t, "history", "NAME-1"), exitFailed, "NAME-1 has no workspace yet")
}

func TestRefusalsNameTheFieldTheCodeAndTheWayOut(t *testing.T) {
	t.Parallel()
	s := company(t, "WRONG")
	refused(t, s.berth(t, "create", "company", ""), exitFailed, "validation_failed", "body.name")
	refused(t, s.berth(t, "create", "company", "Wrong again", "--prefix", "WRONG"), exitFailed, "body.issuePrefix", "taken")
	refused(t, s.berth(t, "create", "issue", "x", "-c", "WRONG", "--status", "odd"), exitFailed, "body.status")
	refused(t, s.berth(t, "create", "project", "x", "-c", "WRONG", "--policy", "[]"), exitUsage, "--policy")
	refused(t, s.berth(t, "show", "issue", "00000000-0000-7000-8000-000000000000"), exitFailed, "issue_not_found")
	refused(t, s.berth(t, "create", "issue"), exitUsage, "title", "berth create issue --help")
	refused(t, s.berth(t, "nonsense"), exitUsage, "nonsense", "Try: berth --help")
	refused(t, s.berth(t), exitUsage, "Try: berth --help")
	refused(t, s.berth(t, "list", "companies", "--output", "xml"), exitUsage, "xml")
	refused(t, s.berthAs(t, []string{"BERTH_TOKEN=nonsense"}, "list", "companies"), exitFailed, "unauthenticated", "BERTH_TOKEN")
}

func TestAServiceThatIsNotThereIsSaidSo(t *testing.T) {
	t.Parallel()
	s := company(t, "GONE")
	token, err := os.ReadFile(filepath.Join(s.dir, ".berth/operator-token"))
	if err != nil {
		t.Fatal(err)
	}
	nobody := httptest.NewServer(nil)
	nobody.Close() // its port is free now
	for _, c := range []struct {
		url   string
		code  int
		parts []string
	}{
		{nobody.URL, exitFailed, []string{"nothing answers at " + nobody.URL, "Next: start the service with berth serve"}},
		{"ftp://127.0.0.1", exitUsage, []string{"--url", "http://127.0.0.1:8080"}},
		{"no url", exitUsage, []string{"--url"}},
	} {
		refused(t, s.berthAs(t, []string{"BERTH_URL=" + c.url, "BERTH_TOKEN=" + strings.TrimSpace(string(token))}, "list", "companies"), c.code, c.parts...)
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
	}))
	defer proxy.Close()
	refused(t, s.berthAs(t, []string{"BERTH_URL=" + proxy.URL}, "list", "companies"), exitFailed, "502 Bad Gateway", "BERTH_URL")
	odd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }))
	defer odd.Close()
	refused(t, s.berthAs(t, []string{"BERTH_URL=" + odd.URL}, "list", "companies"), exitFailed, "not Berth's", "BERTH_URL")
}

func TestTheTokenOnFileIsForThisMachineAlone(t *testing.T) {
	t.Parallel()
	s := company(t, "LOCAL")
	r := s.berthAs(t, []string{"BERTH_URL=http://berth.example:8080"}, "list", "companies")
	refused(t, r, exitFailed, "no token for http://berth.example:8080", "BERTH_TOKEN")
	elsewhere := t.TempDir()
	refused(t, invoke(t, elsewhere, []string{"BERTH_URL=" + s.url}, "list", "companies"), exitFailed, "no token", "BERTH_DATA_DIR")
	named := invoke(t, elsewhere, []string{"BERTH_URL=" + s.url, "BERTH_DATA_DIR=" + filepath.Join(s.dir, ".berth")}, "list", "companies")
	if named.code != 0 {
		t.Errorf("with the data directory named: %s", named.stderr)
	}
}

func TestTokensAreMadeListedAndRevoked(t *testing.T) {
	t.Parallel()
	s := company(t, "TOKEN")
	secret := s.must(t, "token", "create", "reader of TOKEN", "--role", "auditor", "--expires", "1h")
	as := []string{"BERTH_TOKEN=" + secret}
	if r := s.berthAs(t, as, "list", "companies"); r.code != 0 {
		t.Errorf("the new token does not read: %s", r.stderr)
	}
	refused(t, s.berthAs(t, as, "create", "company", "Not theirs"), exitFailed, "not_allowed")
	listed := s.must(t, "token", "list")
	wants(t, listed, "reader of TOKEN", "auditor")
	if strings.Contains(listed, secret) {
		t.Error("the list has the secret")
	}
	s.must(t, "token", "revoke", "reader of TOKEN")
	refused(t, s.berthAs(t, as, "list", "companies"), exitFailed, "unauthenticated")
	refused(t, s.berth(t, "token", "create", "x", "--role", "king"), exitFailed, "body.role")
	refused(t, s.berth(t, "token", "create", "x", "--role", "member"), exitFailed, "body.userId")
	refused(t, s.berth(t, "token", "revoke", "no such token"), exitFailed, "no token")
}

func TestNamesCannotSteerTheTerminal(t *testing.T) {
	t.Parallel()
	s := company(t, "STEER")
	s.must(t, "create", "issue", "red \x1b[31m\nTASK-1  forged", "-c", "STEER")
	listed := s.must(t, "list", "issues", "-c", "STEER")
	if strings.Contains(listed, "\x1b") || strings.Count(listed, "\n") != 1 {
		t.Errorf("the list is %q", listed)
	}
}
