package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The roles that a private server has. Superuser is for the server's own
// housekeeping, Owner owns the schema and migrates it, Service is what Berth
// works as: it owns nothing.
const (
	Superuser = "postgres"
	Owner     = "berth_owner"
	Service   = "berth"
)

// Database is the name of the database that Berth keeps its state in.
const Database = "berth"

// defaultPort names the socket file when no TCP port is asked for; libpq and
// psql expect this number unless told otherwise.
const defaultPort = 5432

// Config says where a private server lives and how it runs.
type Config struct {
	// Dir holds everything the server has; see the package comment. It is
	// made when it does not exist.
	Dir string

	// BinDir is the folder of the postgres and initdb programs. Empty means
	// the environment variable BERTH_POSTGRES_BINDIR, and without it a search.
	BinDir string

	// Ephemeral gives up durability for speed: nothing is forced to disk. A
	// killed server still loses nothing, but a crash of the machine may destroy
	// all. It is for tests.
	Ephemeral bool

	// Port opens 127.0.0.1:Port in addition to the Unix socket. 0 opens no
	// TCP port at all.
	Port int

	// Logger gets one line for each start, crash and restart. Nil means
	// slog.Default.
	Logger *slog.Logger
}

// Server is a running private server.
type Server struct {
	dir       string // absolute, without symbolic links
	account   account
	binaries  binaries
	ephemeral bool
	sockets   string // folder of the Unix socket
	port      int
	tcp       bool
	passwords map[string]string
	log       *slog.Logger
	lock      *os.File

	stopOnce sync.Once
	stopping chan struct{} // closed by the first Stop
	done     chan struct{} // closed when the server is gone for good
	err      error         // why, valid after done
}

// Start starts the server of the directory cfg.Dir and returns when it accepts
// connections and has its roles and its database. ctx bounds the start alone:
// the server runs until Stop, or until this program ends.
//
// It fails when another program runs the server of this directory, when no
// Postgres programs of the right version are to be had, when the directory
// cannot be entered by the user the server runs as, and when the port is
// taken; the error names what is wrong and the way out.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	s, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx, cfg.BinDir); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// prepare makes the directory, decides who the server runs as, and takes the
// directory's lock. Nothing of the cluster is touched without that lock.
func prepare(cfg Config) (*Server, error) {
	if cfg.Dir == "" {
		return nil, errors.New("private Postgres: no directory given")
	}
	if cfg.Port < 0 || cfg.Port > 65535 {
		return nil, fmt.Errorf("private Postgres: port %d is not between 0 and 65535", cfg.Port)
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("private Postgres: %w", err)
	}
	account, err := accountFor(filepath.Join(dir, "data"))
	if err != nil {
		return nil, err
	}
	if err := makeDir(dir, account); err != nil {
		return nil, err
	}
	// The server reports its folder without symbolic links; so do we.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("private Postgres: %w", err)
	}
	if err := account.canEnter(dir); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	return &Server{
		dir:       dir,
		account:   account,
		ephemeral: cfg.Ephemeral,
		port:      cmp.Or(cfg.Port, defaultPort),
		tcp:       cfg.Port != 0,
		log:       cmp.Or(cfg.Logger, slog.Default()),
		lock:      lock,
		stopping:  make(chan struct{}),
		done:      make(chan struct{}),
	}, nil
}

// start brings the server from a locked directory to a prepared database and
// leaves it to supervise.
func (s *Server) start(ctx context.Context, binDir string) error {
	began := time.Now()
	major, err := clusterMajor(s.data())
	if err != nil {
		return err
	}
	if s.binaries, err = findBinaries(ctx, search{
		explicit: cmp.Or(binDir, os.Getenv("BERTH_POSTGRES_BINDIR")),
		major:    major,
		dir:      s.dir,
		account:  s.account,
		log:      s.log,
	}); err != nil {
		return err
	}
	if s.passwords, err = loadPasswords(s.dir); err != nil {
		return err
	}
	if major == 0 {
		if err := s.initCluster(ctx); err != nil {
			return err
		}
	}
	if err := s.writeAccessRules(); err != nil {
		return err
	}
	if err := s.awaitOldServer(ctx); err != nil {
		return err
	}
	if s.sockets, err = s.makeSocketDir(); err != nil {
		return err
	}
	p, err := s.launchPrepared(ctx)
	if err != nil {
		return err
	}
	go s.supervise(p) //nolint:gosec // it watches until Stop, not until the start is over
	s.log.Info("private Postgres started",
		"dir", s.dir, "version", s.binaries.version, "user", s.account.name,
		"socket", s.sockets, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// URL is the address of a database for a role of this server, Superuser, Owner
// or Service. It holds the role's password: it is a secret.
func (s *Server) URL(role, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(role), Path: "/" + database}
	if password, known := s.passwords[role]; known {
		u.User = url.UserPassword(role, password)
	}
	// libpq does not read "+" as a space in a URL's query.
	u.RawQuery = "host=" + strings.ReplaceAll(url.QueryEscape(s.sockets), "+", "%20") +
		"&port=" + strconv.Itoa(s.port) + "&sslmode=disable"
	return u.String()
}

// Dir is the directory of the server, as Start resolved it.
func (s *Server) Dir() string { return s.dir }

// Done is closed when the server is gone for good: after Stop, or when it died
// and did not come back. Err tells which.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err is nil while the server runs and after a clean Stop, and otherwise says
// why the server is gone.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Stop ends the server and waits until it is gone: it disconnects all clients,
// writes what it has to disk and leaves a clean cluster behind. A server that
// does not manage this in ten seconds is ended the hard way, which the next
// start repairs from its log. Stop may be called more than once.
func (s *Server) Stop() error {
	s.stopOnce.Do(func() { close(s.stopping) })
	<-s.done
	return s.err
}

// release gives the directory free.
func (s *Server) release() {
	if s.sockets != "" {
		s.removeSocketDir()
	}
	_ = s.lock.Close()
}

func (s *Server) data() string    { return filepath.Join(s.dir, "data") }
func (s *Server) logFile() string { return filepath.Join(s.dir, "postgres.log") }
