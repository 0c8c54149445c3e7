package postgres

import (
	"os/exec"
	"syscall"
)

// startTied starts cmd as a process that the kernel ends together with the
// calling thread. SIGQUIT is the server's immediate shutdown: it ends its
// children too, and the next start replays the log; initdb simply dies of it.
func startTied(cmd *exec.Cmd) (release func(), err error) {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	return func() {}, cmd.Start()
}
