package db

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/source"
)

// atomicDriver makes "dirty" mean something. golang-migrate notes a version as
// dirty, runs its file, and notes it as clean, in three transactions; a program
// that dies in between leaves a dirty version of which nobody knows whether its
// file was committed, and no later run goes on.
//
// Here the file takes the note off itself, in its own transaction. A dirty
// version is then one whose file was *not* committed, and the next run, once it
// has the lock, goes back to the version before and tries again. The price is
// that every file has to be able to run in a transaction.
type atomicDriver struct {
	database.Driver
	files source.Driver
}

// Run runs a migration together with the statement that takes the note off. It
// is one message of the simple protocol, and so one transaction.
func (d *atomicDriver) Run(migration io.Reader) error {
	const settle = "\n;\nUPDATE schema_migrations SET dirty = false"
	return d.Driver.Run(io.MultiReader(migration, strings.NewReader(settle)))
}

// Lock takes the lock that only one migrating program has, and then repairs what
// one that died left. Without the lock a dirty version may be somebody's work
// in progress.
func (d *atomicDriver) Lock() error {
	if err := d.Driver.Lock(); err != nil {
		return err
	}
	if err := d.repair(); err != nil {
		return errors.Join(err, d.Unlock())
	}
	return nil
}

func (d *atomicDriver) repair() error {
	version, dirty, err := d.Version()
	if err != nil || !dirty || version < 0 {
		return err
	}
	before := database.NilVersion
	previous, err := d.files.Prev(uint(version))
	switch {
	case err == nil:
		before = int(previous)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	default:
		// No file before it: it is the first one, or none of ours.
		first, err := d.files.First()
		if err != nil {
			return err
		}
		if first != uint(version) {
			return fmt.Errorf("the schema's version %d was interrupted, and this program does not know it: "+
				"run berth migrate up of the version of Berth that began it", version)
		}
	}
	slog.Warn("the last migration was not committed; running it again", "version", version)
	return d.SetVersion(before, false)
}
