package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// settings are the server's, in the order of the command line, which beats
// postgresql.conf and ALTER SYSTEM.
func (s *Server) settings() []string {
	listen := ""
	if s.tcp {
		listen = "127.0.0.1"
	}
	settings := []string{
		"listen_addresses=" + listen,
		"port=" + strconv.Itoa(s.port),
		// A list of folders: the quotes keep commas and spaces in the name.
		`unix_socket_directories="` + strings.ReplaceAll(s.sockets, `"`, `""`) + `"`,
		"unix_socket_permissions=0700",
		"hba_file=" + s.accessFile(),
		"password_encryption=scram-sha-256",
		"cluster_name=berth", // shown by ps
		"timezone=UTC",
		"log_timezone=UTC",
		"lc_messages=C", // launchFailure reads the log
		"logging_collector=off",
		"log_destination=stderr",
		"log_line_prefix=%m [%p] %q%u@%d ",
		"log_min_error_statement=panic", // statements hold what users wrote
		"log_checkpoints=off",
		"jit=off", // compiling costs more than Berth's short statements
	}
	if s.ephemeral {
		settings = append(settings,
			// Commits are still written, so a killed server loses none.
			"fsync=off", "full_page_writes=off",
			"wal_level=minimal", "max_wal_senders=0", "autovacuum=off",
			"shared_buffers=64MB", "max_connections=300",
			// In the data folder, so that nothing stays when that is removed.
			"dynamic_shared_memory_type=mmap")
	}
	return settings
}

var (
	// errOldServer says that processes of an earlier server are still there.
	errOldServer = errors.New("an earlier server is still at work on the data")

	// errPasswords says that the superuser's password is not the one on file.
	errPasswords = errors.New("the password on file is not the server's")
)

// oldServerPatience is how long a start waits for an earlier server to leave.
// It is on its way out when its program was killed a moment ago.
const oldServerPatience = 10 * time.Second

// launch starts the server and waits until it takes connections.
func (s *Server) launch(ctx context.Context) (p *process, err error) {
	err = s.patiently(ctx, func() error {
		p, err = s.launchOnce(ctx)
		return err
	})
	return p, err
}

// awaitOldServer waits until no server is on the cluster.
func (s *Server) awaitOldServer(ctx context.Context) error {
	return s.patiently(ctx, s.disownStalePID)
}

// patiently repeats try for as long as it meets an earlier server that may be
// on its way out.
func (s *Server) patiently(ctx context.Context, try func() error) error {
	deadline := time.Now().Add(oldServerPatience)
	for {
		err := try()
		if !errors.Is(err, errOldServer) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

func (s *Server) launchOnce(ctx context.Context) (*process, error) {
	if err := s.disownStalePID(); err != nil {
		return nil, err
	}
	s.removeSockets()
	log, offset, err := s.openLog()
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the server has its own
	args := []string{"-D", s.data()}
	for _, setting := range s.settings() {
		args = append(args, "-c", setting)
	}
	cmd := s.command("postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := startProcess(cmd)
	if err != nil {
		return nil, fmt.Errorf("private Postgres: start %s: %w", cmd.Path, err)
	}
	if err := s.waitReady(ctx, p); err != nil {
		if ctx.Err() != nil {
			p.stop()
			return nil, fmt.Errorf("private Postgres: not ready in time: %w", err)
		}
		return nil, s.launchFailure(p, s.logSince(offset))
	}
	return p, nil
}

// waitReady waits for the server's own word that it is ready, in its
// postmaster.pid: the process number in line 1, so that no other server's word
// is taken for it, and the status in line 8. A connection would prove less: it
// may reach another server.
func (s *Server) waitReady(ctx context.Context, p *process) error {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	slow := time.NewTicker(10 * time.Second)
	defer slow.Stop()
	for {
		select {
		case <-p.exited:
			return errors.New("it ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-slow.C:
			s.log.Info("private Postgres is still starting; it may be replaying its log", "dir", s.dir)
		case <-ticker.C:
			lines := s.pidFile()
			if len(lines) >= 8 && lines[0] == strconv.Itoa(p.cmd.Process.Pid) && strings.TrimSpace(lines[7]) == "ready" {
				return nil
			}
		}
	}
}

// pidFile is the content of postmaster.pid by lines, none if there is no file.
func (s *Server) pidFile() []string {
	content, err := os.ReadFile(s.pidPath())
	if err != nil {
		return nil
	}
	return strings.Split(string(content), "\n")
}

func (s *Server) pidPath() string { return filepath.Join(s.data(), "postmaster.pid") }

// launchFailure tells why a server ended before it was ready.
func (s *Server) launchFailure(p *process, log string) error {
	switch {
	case strings.Contains(log, `lock file "postmaster.pid" already exists`),
		strings.Contains(log, "pre-existing shared memory block"):
		return fmt.Errorf("private Postgres: %w in %s; end it, then start again. The server says:\n%s",
			errOldServer, s.data(), lastLines(log))
	case s.tcp && strings.Contains(log, "could not create any TCP/IP sockets") && portTaken(s.port):
		return fmt.Errorf("private Postgres: port %d of 127.0.0.1 is taken by another program: choose another port, or none",
			s.port)
	}
	return fmt.Errorf("private Postgres: the server ended at once (%w). It says, in %s:\n%s", p.err, s.logFile(), lastLines(log))
}

func portTaken(port int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return true
	}
	_ = listener.Close()
	return false
}

// disownStalePID deals with a postmaster.pid that a crash left and whose
// process number belongs to another process by now, which makes Postgres
// refuse to start. Its first line is set to this program's number: a server
// takes its parent's number for a stale one. The file is not removed, because
// the server also finds by it the shared memory that stray processes of the
// crashed server may still use.
func (s *Server) disownStalePID() error {
	lines := s.pidFile()
	if len(lines) == 0 {
		return nil
	}
	pid, err := strconv.Atoi(lines[0])
	if err != nil || pid <= 0 || !processExists(pid) {
		return nil //nolint:nilerr // no number is no process, and Postgres goes on over such a file
	}
	if isServerOf(pid, s.data()) {
		return fmt.Errorf("private Postgres: %w: process %d serves %s, and this program did not start it; "+
			"end it with: kill -INT %d", errOldServer, pid, s.data(), pid)
	}
	s.log.Warn("postmaster.pid names a process that is not this server; it is from before a crash", "pid", pid, "dir", s.dir)
	lines[0] = strconv.Itoa(os.Getpid())
	if err := os.WriteFile(s.pidPath(), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		return fmt.Errorf("private Postgres: %w", err)
	}
	return nil
}
