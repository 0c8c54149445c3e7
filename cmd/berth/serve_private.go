package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"berth/db/postgres"
)

// privateServer is the Postgres server of a data directory.
type privateServer struct {
	server  *postgres.Server
	dataDir string // absolute
}

func (p privateServer) ownerURL() string { return p.server.URL(postgres.Owner, postgres.Database) }

func (p privateServer) serviceURL() string { return p.server.URL(postgres.Service, postgres.Database) }

// startPrivate starts the private server of the data directory, which it makes
// when it is not there.
func startPrivate(ctx context.Context, flag dataDirFlag, log *slog.Logger) (*privateServer, error) {
	dir, err := flag.forPrivateServer(log)
	if err != nil {
		return nil, err
	}
	server, err := postgres.Start(ctx, postgres.Config{Dir: filepath.Join(dir, privateServerDir), Logger: log})
	switch {
	case errors.Is(err, postgres.ErrRunning):
		return nil, fmt.Errorf("another berth serve uses the data directory %s: %w", dir, err)
	case err != nil:
		return nil, err
	}
	return &privateServer{server: server, dataDir: dir}, nil
}

// forPrivateServer decides where the data is, and makes that directory so that
// the user of the private server gets to its part of it.
func (f dataDirFlag) forPrivateServer(log *slog.Logger) (string, error) {
	dir := f.DataDir
	if dir == "" {
		dir = defaultDataDir
		if err := postgres.CheckDir(dir); err != nil {
			dir = fallbackDataDir()
			log.Warn("the data goes elsewhere than "+defaultDataDir+" here", "dir", dir, "reason", err)
		}
	} else if err := postgres.CheckDir(dir); err != nil {
		return "", err
	}
	return makeDataDir(dir)
}

// forOutsideDatabase is where the operator token is kept, and the snapshots
// unless they go elsewhere, when the database is somebody else's.
func (f dataDirFlag) forOutsideDatabase() (string, error) {
	dir := f.DataDir
	if dir == "" {
		dir = defaultDataDir
	}
	return makeDataDir(dir)
}

// makeDataDir makes the data directory unless it is there, and returns its
// absolute path. Others may pass through it, though not look into it, only when
// it is root's: the private server of root runs as another user.
func makeDataDir(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("data directory: %w", err)
	}
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return "", fmt.Errorf("data directory: %w", err)
	}
	// The fallback is in a folder where anybody may make directories and links,
	// also before our first start.
	if dir == fallbackDataDir() {
		if info, err := os.Lstat(dir); err != nil || !isOwnDir(info) {
			return "", fmt.Errorf("data directory: %s is not a directory of this user: choose another with --data-dir", dir)
		}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", fmt.Errorf("data directory: %w", err)
	}
	if passable := info.Mode().Perm() | mode&0o011; passable != info.Mode().Perm() {
		if err := os.Chmod(dir, passable); err != nil {
			return "", fmt.Errorf("data directory: %w", err)
		}
	}
	return dir, nil
}

func isOwnDir(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.IsDir() && int(stat.Uid) == os.Geteuid()
}
