package runner

import (
	"os"
	"strings"
	"testing"
)

func TestTheCommandSeesItsRunAndNoSecretOfBerth(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	// The child of a child, as it really is: what the kernel gave it.
	p := s.script(s.first, `sh -c 'cat /proc/$$/environ > ../environ.new'; mv ../environ.new ../environ`)
	secrets := map[string]string{
		"BERTH_TOKEN": s.OperatorToken, "BERTH_OPERATOR_TOKEN": s.OperatorToken,
		"BERTH_DATABASE_URL": "postgres://user:secret-1@db/berth", "BERTH_MIGRATE_URL": "postgres://owner:secret-2@db/berth",
		"BERTH_SNAPSHOT_URL": "s3://key:secret-3@bucket", "BERTH_DATA_DIR": "/secret-4", "BERTH_A_SECRET_OF_NEXT_YEAR": "secret-5",
		"BERTH_DIR": "/elsewhere", "BERTH_EPOCH": "99",
	}
	p.Command.Env = append(os.Environ(), "KEPT=yes", "NOT_BERTH_=kept too")
	for name, value := range secrets {
		p.Command.Env = append(p.Command.Env, name+"="+value)
	}
	result := p.mustRun()

	raw := p.awaitFile("../environ")
	env := map[string]string{}
	for variable := range strings.SplitSeq(raw, "\x00") {
		name, value, _ := strings.Cut(variable, "=")
		env[name] = value
	}
	for name, want := range map[string]string{
		"BERTH_URL": s.URL, "BERTH_RUN_ID": result.RunID.String(), "BERTH_ISSUE_ID": s.first.String(),
		"BERTH_WORKSPACE_ID": s.workspace, "BERTH_EPOCH": "1", "KEPT": "yes", "NOT_BERTH_": "kept too", "PWD": p.Dir,
	} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
	for name, value := range secrets {
		if strings.Contains(raw, value) && name != "BERTH_EPOCH" {
			t.Errorf("the value of %s reaches the command", name)
		}
	}
	allowed := "BERTH_URL BERTH_RUN_ID BERTH_ISSUE_ID BERTH_WORKSPACE_ID BERTH_EPOCH BERTH_TOKEN BERTH_TOKEN_FILE"
	for name := range env {
		if strings.HasPrefix(name, "BERTH_") && !strings.Contains(allowed, name) {
			t.Errorf("%s reaches the command", name)
		}
	}
	if env["BERTH_TOKEN"] == "" || env["BERTH_TOKEN"] == s.OperatorToken {
		t.Errorf("the command's token is %q", env["BERTH_TOKEN"])
	}
}
