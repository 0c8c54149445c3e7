package runner

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/snapshot"
)

// leftoverAge is how old something has to be before it counts as left behind by a wrapper that was killed: a run's token
// lives for a day from when it was last written, and nobody restores for that long.
const leftoverAge = 25 * time.Hour

// removeLeftovers removes what killed wrappers left beside the directory (downloads, half-restored trees) and where run
// tokens are kept: what this user made, under names that only Berth uses, and that is too old to be in use. That
// something cannot be removed is no reason not to run.
func removeLeftovers(beside, tokens string) {
	removeOld(beside, snapshot.TemporaryPrefix)
	removeOld(tokens, tokenDirPrefix)
}

func removeOld(dir, prefix string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !strings.HasPrefix(entry.Name(), prefix) || time.Since(newest(dir, info)) < leftoverAge || !ownedByUs(info) {
			continue
		}
		_ = os.RemoveAll(filepath.Join(dir, entry.Name()))
	}
}

// newest is when something was last written to, itself or just below: a token is replaced inside of its directory.
func newest(dir string, info os.FileInfo) time.Time {
	last := info.ModTime()
	below, err := os.ReadDir(filepath.Join(dir, info.Name()))
	if err != nil {
		return last
	}
	for _, entry := range below {
		if in, err := entry.Info(); err == nil && in.ModTime().After(last) {
			last = in.ModTime()
		}
	}
	return last
}

func ownedByUs(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
