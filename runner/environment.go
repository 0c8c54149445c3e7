package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// ownVariables is how every environment variable of Berth begins.
const ownVariables = "BERTH_"

// Environment is what a command gets to see of its run:
//
//	BERTH_URL           where the service is
//	BERTH_RUN_ID        the run
//	BERTH_ISSUE_ID      its task
//	BERTH_WORKSPACE_ID  the workspace that it is the writer of
//	BERTH_EPOCH         at which epoch
//	BERTH_TOKEN         the run's own token, as it was at the start
//	BERTH_TOKEN_FILE    a file with the newest one: a token lives for a day, and
//	                    the file is replaced when a renewal brings another
//
// No other variable of Berth's is passed on: some of them are secrets of the
// operator, or of the service, and the rest would steer commands of Berth's own
// that the command starts. It hides nothing that the command's user can read
// elsewhere, such as the operator token's file: run agents as another user.
type Environment struct {
	URL         string
	RunID       uuid.UUID
	IssueID     uuid.UUID
	WorkspaceID uuid.UUID
	Epoch       int64
	Token       string
	TokenFile   string
}

// Apply returns base, an environment as in os.Environ, with these variables in
// the place of all that are Berth's.
func (e Environment) Apply(base []string) []string {
	env := make([]string, 0, len(base)+7)
	for _, variable := range base {
		if !strings.HasPrefix(variable, ownVariables) {
			env = append(env, variable)
		}
	}
	return append(env,
		ownVariables+"URL="+e.URL,
		ownVariables+"RUN_ID="+e.RunID.String(),
		ownVariables+"ISSUE_ID="+e.IssueID.String(),
		ownVariables+"WORKSPACE_ID="+e.WorkspaceID.String(),
		ownVariables+"EPOCH="+strconv.FormatInt(e.Epoch, 10),
		ownVariables+"TOKEN="+e.Token,
		ownVariables+"TOKEN_FILE="+e.TokenFile,
	)
}

// tokenFile is where the newest token of a run can be read, by this user alone.
type tokenFile struct{ dir string }

// tokenDirPrefix begins the name of each directory with a run's token.
const tokenDirPrefix = "berth-run-"

// newTokenFile makes the file in a directory of its own, outside the workspace:
// what is in there is saved. A run that is killed leaves it, for removeLeftovers;
// its token then lives for a day at most.
func newTokenFile(in, token string) (tokenFile, error) {
	if in == "" {
		in = os.Getenv("XDG_RUNTIME_DIR")
	}
	dir, err := os.MkdirTemp(in, tokenDirPrefix) // mode 0700
	if err != nil {
		if dir, err = os.MkdirTemp("", tokenDirPrefix); err != nil {
			return tokenFile{}, fmt.Errorf("make a file for the run's token: %w", err)
		}
	}
	f := tokenFile{dir: dir}
	if err := f.write(token); err != nil {
		f.remove()
		return tokenFile{}, err
	}
	return f, nil
}

func (f tokenFile) path() string { return filepath.Join(f.dir, "token") }

// write replaces the token in one step: a reader sees the old one or the new one.
func (f tokenFile) write(token string) error {
	next := f.path() + ".next"
	err := os.WriteFile(next, []byte(token+"\n"), 0o600)
	if err == nil {
		err = os.Rename(next, f.path())
	}
	if err != nil {
		return fmt.Errorf("write the run's token: %w", err)
	}
	return nil
}

func (f tokenFile) remove() { _ = os.RemoveAll(f.dir) }
