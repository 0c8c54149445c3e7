package snapshot

import (
	"bytes"
	"context"
	"slices"
	"sync"
)

// Empty returns the archive of an empty tree: the first snapshot of a new workspace. It is the same for every workspace.
func Empty() ([]byte, Summary) {
	archive, summary := emptyArchive()
	return slices.Clone(archive), summary
}

var emptyArchive = sync.OnceValues(func() ([]byte, Summary) {
	var archive bytes.Buffer
	summary, err := writeArchive(context.Background(), &archive, Limits{}.orDefault(), func(*packer) error { return nil })
	if err != nil {
		panic("snapshot: the empty archive could not be made in memory: " + err.Error())
	}
	return archive.Bytes(), summary
})
