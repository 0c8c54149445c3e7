//go:build unix && !linux

package postgres

import "os/exec"

// startTied starts cmd as a process that ends together with this program.
func startTied(cmd *exec.Cmd) (release func(), err error) { return startWatched(cmd) }
