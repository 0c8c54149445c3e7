package snapshot

import (
	"errors"
	"fmt"
)

var (
	// ErrChanged is what every ChangedError is.
	ErrChanged = errors.New("changed while it was being saved")
	// ErrInvalidArchive is what every ArchiveError is.
	ErrInvalidArchive = errors.New("snapshot archive refused")
	// ErrTargetInUse is returned by Restore when its target exists and is not an empty directory.
	ErrTargetInUse = errors.New("restore target exists and is not an empty directory")
)

// ChangedError names a path that did not hold still while Pack read it. Saving again once nothing writes there helps.
type ChangedError struct {
	Path string
	What string
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%q %v: %s; stop what writes it and save again", e.Path, ErrChanged, e.What)
}

func (e *ChangedError) Is(target error) bool { return target == ErrChanged }

// ArchiveError says why Restore refused an archive. Path is the offending member as the archive names it, or empty when
// the archive as a whole is at fault.
type ArchiveError struct {
	Path    string
	Problem string
	Err     error // the cause, may be nil
}

func (e *ArchiveError) Error() string {
	text := ErrInvalidArchive.Error()
	if e.Path != "" {
		text += fmt.Sprintf(" at %q", e.Path)
	}
	text += ": " + e.Problem
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *ArchiveError) Is(target error) bool { return target == ErrInvalidArchive }

func (e *ArchiveError) Unwrap() error { return e.Err }

// MismatchError says that bytes are not the ones that were announced.
type MismatchError struct {
	Name string // a store key, or the path of an archive file
	Want Digest
	// Got is what was found. When more bytes came than announced, reading stopped one byte later and SHA256 is empty.
	Got Digest
}

func (e *MismatchError) Error() string {
	switch {
	case e.Got.Size > e.Want.Size && e.Got.SHA256 == "":
		return fmt.Sprintf("%q does not match: more than the %d bytes announced", e.Name, e.Want.Size)
	case e.Got.Size != e.Want.Size:
		return fmt.Sprintf("%q does not match: %d bytes, %d announced", e.Name, e.Got.Size, e.Want.Size)
	default:
		return fmt.Sprintf("%q does not match: sha256 %s, %s announced", e.Name, e.Got.SHA256, e.Want.SHA256)
	}
}
