package postgres

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrRunning says that another program runs the server of this directory.
var ErrRunning = errors.New("another program runs the private Postgres of this directory")

// lockDir takes the directory's lock, which the kernel gives back when this
// program ends, however it ends.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("private Postgres: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := make([]byte, 32)
		n, _ := file.ReadAt(holder, 0)
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("private Postgres: %w: %s is held by process %s; stop that one, or choose another directory",
				ErrRunning, path, strings.TrimSpace(string(holder[:n])))
		}
		return nil, fmt.Errorf("private Postgres: lock %s: %w", path, err)
	}
	// The number is for the message above; only the lock itself counts.
	if err := errors.Join(file.Truncate(0), writeAt(file, fmt.Sprintln(os.Getpid()))); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("private Postgres: %w", err)
	}
	return file, nil
}

func writeAt(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

// loadPasswords reads the passwords of the roles, and makes those that are
// missing. They are on disk before any role has one.
func loadPasswords(dir string) (map[string]string, error) {
	path := filepath.Join(dir, "passwords.json")
	passwords := make(map[string]string)
	content, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(content, &passwords); err != nil {
			return nil, fmt.Errorf("private Postgres: %s cannot be read (%w): remove it, and the next start makes new passwords", path, err)
		}
		if err := os.Chmod(path, 0o600); err != nil { // a copy may have opened it
			return nil, fmt.Errorf("private Postgres: %w", err)
		}
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("private Postgres: %w", err)
	}
	complete := true
	for _, role := range []string{Superuser, Owner, Service} {
		if passwords[role] == "" {
			passwords[role] = rand.Text()
			complete = false
		}
	}
	if complete {
		return passwords, nil
	}
	content, err = json.MarshalIndent(passwords, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("private Postgres: %w", err)
	}
	if err := replaceFile(path, append(content, '\n'), 0o600); err != nil {
		return nil, fmt.Errorf("private Postgres: %w", err)
	}
	return passwords, nil
}

// replaceFile puts content at path so that a crash leaves the old file or the
// new one.
func replaceFile(path string, content []byte, mode os.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // gone after the rename
	_, err = file.Write(content)
	if err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// initCluster makes the cluster under another name and renames it when it is
// whole, so that a crash in between leaves nothing that looks like one.
func (s *Server) initCluster(ctx context.Context) error {
	draft := filepath.Join(s.dir, "data.init")
	if err := os.RemoveAll(draft); err != nil {
		return fmt.Errorf("private Postgres: remove what an interrupted start left: %w", err)
	}
	if err := os.Mkdir(draft, 0o700); err != nil {
		return fmt.Errorf("private Postgres: %w", err)
	}
	if err := s.account.own(draft); err != nil {
		return err
	}
	pwfile, err := s.passwordFile()
	if err != nil {
		return err
	}
	defer os.Remove(pwfile) //nolint:errcheck // in our own directory, and readable by the account alone
	args := []string{
		"-D", draft, "-U", Superuser, "--pwfile", pwfile, "-A", "scram-sha-256",
		"-E", "UTF8", "--locale=C", "--no-instructions",
	}
	if s.ephemeral {
		args = append(args, "--no-sync")
	} else {
		args = append(args, "--data-checksums")
	}
	if out, err := s.runToEnd(ctx, "", "initdb", args...); err != nil {
		return fmt.Errorf("private Postgres: make the cluster with %s: %w\n%s", s.binaries.path("initdb"), err, lastLines(out))
	}
	if err := os.Remove(s.data()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("private Postgres: %w", err) // an empty folder may be there, nothing else
	}
	if err := os.Rename(draft, s.data()); err != nil {
		return fmt.Errorf("private Postgres: %w", err)
	}
	if s.ephemeral {
		return nil
	}
	return syncDir(s.dir)
}

// passwordFile writes the superuser's password where initdb can read it.
func (s *Server) passwordFile() (string, error) {
	file, err := os.CreateTemp(s.dir, ".pwfile-*")
	if err != nil {
		return "", fmt.Errorf("private Postgres: %w", err)
	}
	_, err = file.WriteString(s.passwords[Superuser] + "\n")
	if err = errors.Join(err, file.Close(), s.account.own(file.Name())); err != nil {
		_ = os.Remove(file.Name())
		return "", fmt.Errorf("private Postgres: %w", err)
	}
	return file.Name(), nil
}

// accessRules is the whole pg_hba.conf: a password from everybody, through the
// socket or the loopback device, and no replication.
const accessRules = `# Written by Berth at every start: changes are lost.
local all all              scram-sha-256
host  all all 127.0.0.1/32 scram-sha-256
`

func (s *Server) writeAccessRules() error {
	if err := replaceFile(s.accessFile(), []byte(accessRules), 0o644); err != nil {
		return fmt.Errorf("private Postgres: %w", err)
	}
	return nil
}

func (s *Server) accessFile() string { return filepath.Join(s.dir, "pg_hba.conf") }
