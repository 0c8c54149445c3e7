package snapshot

import (
	"fmt"
	"regexp"

	"github.com/google/uuid"
)

// Key is where a store keeps the archive of one snapshot. The epoch is part of it: what a writer uploads after it lost
// the workspace lands beside the snapshots of its own dead epoch, never among those of its successor.
func Key(company, workspace uuid.UUID, epoch int64, snapshot uuid.UUID) string {
	return fmt.Sprintf("companies/%s/workspaces/%s/%d/%s.tar.zst", company, workspace, epoch, snapshot)
}

// keyForm is what Key makes.
var keyForm = regexp.MustCompile(`^companies/[0-9a-f-]{36}/workspaces/[0-9a-f-]{36}/[0-9]+/[0-9a-f-]{36}\.tar\.zst$`)

// IsKey reports whether Key may have made the key: nothing else in a store is Berth's to delete.
func IsKey(key string) bool { return keyForm.MatchString(key) }
