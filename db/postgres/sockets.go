package postgres

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// maxSocketPath is how long the path of a Unix socket may be, in bytes: the
// kernel's limit without the closing zero.
func maxSocketPath() int {
	if runtime.GOOS == "linux" {
		return 107
	}
	return 103
}

// shortSocketDir is how the folders begin that take the socket of a directory
// whose name does not do.
var shortSocketDir = filepath.Join("/tmp", "berth-socket-")

// makeSocketDir makes the folder of the socket, which only the account and root
// may enter. It is dir/run. If the socket's path were too long there, or hold a
// comma, which clients read as the end of a host's name, dir/run becomes a link
// to a folder in /tmp; the link is how the next start finds and removes what a
// crash left.
func (s *Server) makeSocketDir() (string, error) {
	run := filepath.Join(s.dir, "run")
	s.removeSocketDir()
	socket := filepath.Join(run, fmt.Sprintf(".s.PGSQL.%d", s.port))
	if len(socket) <= maxSocketPath() && !strings.Contains(socket, ",") {
		if err := os.Mkdir(run, 0o700); err != nil {
			return "", fmt.Errorf("private Postgres: %w", err)
		}
		return run, s.account.own(run)
	}
	short, err := os.MkdirTemp(filepath.Dir(shortSocketDir), filepath.Base(shortSocketDir)+"*")
	if err != nil {
		return "", fmt.Errorf("private Postgres: %s does not do as the path of a socket, and a folder elsewhere failed: %w", socket, err)
	}
	if err := errors.Join(s.account.own(short), os.Symlink(short, run)); err != nil {
		_ = os.RemoveAll(short)
		return "", fmt.Errorf("private Postgres: %w", err)
	}
	return short, nil
}

// removeSockets removes what a killed server left in the folder: its socket,
// and a file with its process number, which may be another process's by now.
func (s *Server) removeSockets() {
	for _, name := range []string{".s.PGSQL.%d", ".s.PGSQL.%d.lock"} {
		_ = os.Remove(filepath.Join(s.sockets, fmt.Sprintf(name, s.port)))
	}
}

// removeSocketDir removes the socket's folder, wherever it is. The caller has
// made sure that no server is using it.
func (s *Server) removeSocketDir() {
	run := filepath.Join(s.dir, "run")
	if target, err := os.Readlink(run); err == nil && strings.HasPrefix(target, shortSocketDir) {
		_ = os.RemoveAll(target)
	}
	_ = os.RemoveAll(run)
}
