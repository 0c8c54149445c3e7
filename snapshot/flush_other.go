//go:build !linux

package snapshot

import "os"

// syncTree flushes the directory itself; what it contains was flushed by syncOne.
func syncTree(directory *os.File) error { return directory.Sync() }

func syncOne(file *os.File) error { return file.Sync() }
