package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the operating system's user that the server runs as. Postgres
// refuses to run as root, so root hands the server to somebody with no rights.
type account struct {
	name     string
	uid, gid int
	drop     bool // this program is root and has to change to the account
}

// accountFor chooses the account. It is the caller's own, unless the caller is
// root: then the owner of the cluster if there is one, else the user postgres,
// else nobody.
func accountFor(data string) (account, error) {
	self := account{name: userName(os.Geteuid()), uid: os.Geteuid(), gid: os.Getegid()}
	info, err := os.Stat(data)
	switch {
	case err == nil:
		return ownerOf(data, info, self)
	case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
		return account{}, fmt.Errorf("private Postgres: %w", err)
	case self.uid != 0:
		return self, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.Atoi(u.Uid)
		gid, errGID := strconv.Atoi(u.Gid)
		if errUID == nil && errGID == nil && uid != 0 {
			return account{name: name, uid: uid, gid: gid, drop: true}, nil
		}
	}
	return account{}, errors.New("private Postgres: Postgres does not run as root, and there is " +
		"neither a user postgres nor a user nobody to run it as: add one, or start this program as an ordinary user")
}

// ownerOf is the account of an existing cluster: only its owner can use it.
func ownerOf(data string, info os.FileInfo, self account) (account, error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return self, nil
	}
	owner := account{name: userName(int(stat.Uid)), uid: int(stat.Uid), gid: int(stat.Gid)}
	switch {
	case owner.uid == 0:
		return account{}, fmt.Errorf("private Postgres: %s belongs to root, and Postgres does not run as root: "+
			"give it to the user that made it (chown -R USER %q)", data, data)
	case self.uid == 0:
		owner.drop = true
		return owner, nil
	case owner.uid != self.uid:
		return account{}, fmt.Errorf("private Postgres: %s belongs to the user %s: start this program as %s or as root, "+
			"or choose another directory", data, owner.name, owner.name)
	}
	return self, nil
}

func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return strconv.Itoa(uid)
}

// apply makes a command run as the account.
func (a account) apply(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if a.drop {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)} //nolint:gosec // ids that the system gave
	}
}

// own gives a file or folder to the account.
func (a account) own(path string) error {
	if !a.drop {
		return nil
	}
	if err := os.Chown(path, a.uid, a.gid); err != nil {
		return fmt.Errorf("private Postgres: %w", err)
	}
	return nil
}

// canEnter tries to enter dir as the account. The system's own error for a
// parent folder that is closed to the account names the program to be run, not
// the folder; this one names the folder.
func (a account) canEnter(dir string) error {
	if !a.drop {
		return nil
	}
	cmd := exec.Command("/bin/sh", "-c", "exit 0")
	cmd.Dir = dir
	a.apply(cmd)
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if !errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("private Postgres: run a program as the user %s: %w", a.name, err)
	}
	closed := a.closedFolder(dir)
	if closed == "" {
		return fmt.Errorf("private Postgres: cannot run programs as the user %s in %s: %w", a.name, dir, err)
	}
	return fmt.Errorf("private Postgres: it runs as the user %s, who may not enter %s: "+
		"choose a directory elsewhere (below /var/lib, say), or open that folder with chmod o+x %q", a.name, closed, closed)
}

// closedFolder is the topmost folder on the way to dir whose mode shuts the
// account out, or "".
func (a account) closedFolder(dir string) string {
	if parent := filepath.Dir(dir); parent != dir {
		if closed := a.closedFolder(parent); closed != "" {
			return closed
		}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	bit := os.FileMode(0o001)
	switch {
	case int(stat.Uid) == a.uid:
		bit = 0o100
	case int(stat.Gid) == a.gid:
		bit = 0o010
	}
	if info.Mode()&bit == 0 {
		return dir
	}
	return ""
}

// CheckDir reports whether a private server could live in dir: whether the
// user that it would run as may enter it. dir need not exist yet. Only root
// has to ask, since only root's server runs as somebody else.
func CheckDir(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("private Postgres: %w", err)
	}
	account, err := accountFor(filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	// Start opens the directory itself, so only what is above it counts.
	for dir = filepath.Dir(dir); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return account.canEnter(dir)
		}
	}
}

// makeDir makes dir and the folders above it that are missing. The account may
// pass through them, and through dir, but not list or change them: what it may
// change are the data and the socket folder, which it owns.
func makeDir(dir string, a account) error {
	mode := os.FileMode(0o700)
	if a.drop {
		mode = 0o711
	}
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("private Postgres: %s is not a folder", dir)
	case err == nil && a.drop:
		if info.Mode().Perm()&0o011 == 0o011 {
			return nil
		}
		if err := os.Chmod(dir, info.Mode().Perm()|0o011); err != nil {
			return fmt.Errorf("private Postgres: %w", err)
		}
		return nil
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("private Postgres: %w", err)
	}
	if parent := filepath.Dir(dir); parent != dir {
		if _, err := os.Stat(parent); errors.Is(err, os.ErrNotExist) {
			if err := makeDir(parent, a); err != nil {
				return err
			}
		}
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("private Postgres: %w", err)
	}
	if err := os.Chmod(dir, mode); err != nil { // whatever the umask took away
		return fmt.Errorf("private Postgres: %w", err)
	}
	return nil
}
