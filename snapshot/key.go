package snapshot

import (
	"fmt"

	"github.com/google/uuid"
)

// Key is where a store keeps the archive of one snapshot. The epoch is part of it: what a writer uploads after it lost
// the workspace lands beside the snapshots of its own dead epoch, never among those of its successor.
func Key(company, workspace uuid.UUID, epoch int64, snapshot uuid.UUID) string {
	return fmt.Sprintf("companies/%s/workspaces/%s/%d/%s.tar.zst", company, workspace, epoch, snapshot)
}
