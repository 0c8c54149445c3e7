package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// spec is a command with every choice made: what the starting process needs.
type spec struct {
	Path  string // as execve takes it
	Argv  []string
	Dir   string // absolute
	Env   []string
	Grace time.Duration
}

// The exit codes of a shell for a command that it cannot run.
const (
	codeCannotRun = 126
	codeNotFound  = 127
)

// resolve looks the command up and fills in what was left open.
func (c Command) resolve() (spec, error) {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return spec{}, fmt.Errorf("start %s: working directory: %w", c.Path, err)
	}
	if info, err := os.Stat(dir); err != nil {
		return spec{}, fmt.Errorf("start %s: working directory: %w", c.Path, err)
	} else if !info.IsDir() {
		return spec{}, fmt.Errorf("start %s: working directory: %s is not a directory", c.Path, dir)
	}
	for _, s := range append(append([]string{c.Path}, c.Args...), c.Env...) {
		if strings.ContainsRune(s, 0) {
			return spec{}, fmt.Errorf("start %q: a NUL byte in the command, an argument or the environment", c.Path)
		}
	}
	path, err := c.find()
	if err != nil {
		return spec{}, err
	}
	grace := c.Grace
	if grace == 0 {
		grace = DefaultGrace
	}
	// exec.Cmd knows how to settle duplicates and PWD in an environment.
	env := (&exec.Cmd{Dir: dir, Env: c.Env}).Environ()
	return spec{Path: path, Argv: append([]string{c.Path}, c.Args...), Dir: dir, Env: env, Grace: grace}, nil
}

// find turns a bare name into a path, as a shell does.
func (c Command) find() (string, error) {
	if c.Path == "" {
		return "", &StartError{Path: `""`, Code: codeNotFound, Err: errors.New("no command given")}
	}
	if strings.Contains(c.Path, "/") {
		return c.Path, nil
	}
	path, err := exec.LookPath(c.Path)
	if err == nil {
		return path, nil
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		candidate := filepath.Join(dir, c.Path)
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() {
			return "", &StartError{Path: c.Path, Code: codeCannotRun, Err: fmt.Errorf("%s is not executable: %w", candidate, fs.ErrPermission)}
		}
	}
	return "", &StartError{Path: c.Path, Code: codeNotFound, Err: errors.New("command not found in PATH")}
}

// startError puts what execve answered into a shell's terms.
func (s spec) startError(errno syscall.Errno) *StartError {
	e := &StartError{Path: s.Argv[0], Code: codeCannotRun, Err: errno}
	switch errno {
	case syscall.ENOENT:
		path := s.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(s.Dir, path)
		}
		if _, err := os.Stat(path); err == nil {
			e.Err = fmt.Errorf("the interpreter that its first line names does not exist: %w", errno)
		} else {
			e.Code = codeNotFound
			e.Err = fmt.Errorf("command not found: %w", errno)
		}
	case syscall.ENOTDIR:
		e.Code = codeNotFound
	case syscall.ENOEXEC:
		e.Err = fmt.Errorf("neither a program for this machine nor a script that begins with #!: %w", errno)
	}
	return e
}

// files gives the command's three streams, with /dev/null where none is named.
func (c Command) files() (files [3]*os.File, closeAll func(), err error) {
	files = [3]*os.File{c.Stdin, c.Stdout, c.Stderr}
	var null *os.File
	for i := range files {
		if files[i] != nil {
			continue
		}
		if null == nil {
			if null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
				return files, nil, fmt.Errorf("start %s: %w", c.Path, err)
			}
		}
		files[i] = null
	}
	return files, func() {
		if null != nil {
			_ = null.Close()
		}
	}, nil
}
