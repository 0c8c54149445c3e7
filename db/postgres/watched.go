package postgres

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// startWatched starts cmd together with a shell that ends it when this program
// is gone, for systems without a death signal. The shell waits at a pipe whose
// other end only this program holds, so that it breaks however the program
// ends. release ends the shell, when cmd has ended by itself.
func startWatched(cmd *exec.Cmd) (release func(), err error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, reader.Close(), writer.Close())
	}
	shell := exec.Command("/bin/sh", "-c", `trap "" HUP INT TERM; read -r _; kill -QUIT "$1"`,
		"sh", strconv.Itoa(cmd.Process.Pid))
	shell.Dir, shell.Env, shell.Stdin = "/", environment(), reader
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: cmd.SysProcAttr.Credential}
	if err := shell.Start(); err != nil {
		_ = cmd.Process.Kill()
		return nil, errors.Join(err, cmd.Wait(), reader.Close(), writer.Close())
	}
	_ = reader.Close() // the shell has its own
	return func() {
		// In this order: the shell must not see the pipe break and signal a
		// process number that may be somebody else's by now.
		_ = shell.Process.Kill()
		_ = shell.Wait()
		_ = writer.Close()
	}, nil
}
