package authority

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"berth/db"
	"berth/snapshot"
)

// fillSnapshot takes the bytes of a snapshot that was imported without them. Nobody announced their
// hash, so they are unpacked once, beside: what could not be restored is not accepted.
func (s *Service) fillSnapshot(ctx context.Context, by Principal, row db.Snapshot, content io.Reader) (Snapshot, error) {
	if err := by.requireOperator(); err != nil {
		return Snapshot{}, err
	}
	directory, err := os.MkdirTemp("", "berth-import-")
	if err != nil {
		return Snapshot{}, fmt.Errorf("make room for an imported snapshot: %w", err)
	}
	defer os.RemoveAll(directory) //nolint:errcheck // what cannot be removed is the system's temporary file
	archive := filepath.Join(directory, "archive")
	digest, err := writeArchive(archive, content)
	if err != nil {
		return Snapshot{}, err
	}
	summary, err := snapshot.Restore(ctx, archive, filepath.Join(directory, "tree"), digest, snapshot.Limits{})
	if err != nil {
		return Snapshot{}, ErrSnapshotContent.Say("The content is not an archive that can be restored: %s.", err)
	}
	stored, err := os.Open(archive)
	if err != nil {
		return Snapshot{}, fmt.Errorf("read the imported snapshot: %w", err)
	}
	defer stored.Close() //nolint:errcheck // it was only read
	key := snapshot.Key(row.CompanyID, row.WorkspaceID, row.Epoch, row.ID)
	if err := s.putContent(ctx, key, stored, digest); err != nil {
		return Snapshot{}, err
	}
	filled, err := s.queries.FillSnapshot(ctx, s.pool, db.FillSnapshotParams{
		LocationProvider: storeProvider, LocationKey: key, Size: digest.Size, FileCount: summary.FileCount,
		Sha256: digest.SHA256, CompanyID: row.CompanyID, SnapshotID: row.ID,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Snapshot{}, ErrSnapshotNotPending.Say("The snapshot has its content already.")
	}
	if err != nil {
		return Snapshot{}, fmt.Errorf("record the imported snapshot's content: %w", err)
	}
	return snapshotOf(filled), nil
}

func writeArchive(path string, content io.Reader) (snapshot.Digest, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return snapshot.Digest{}, fmt.Errorf("make room for an imported snapshot: %w", err)
	}
	hash := sha256.New()
	size, err := io.Copy(io.MultiWriter(file, hash), content)
	if err := errors.Join(err, file.Close()); err != nil {
		return snapshot.Digest{}, fmt.Errorf("receive an imported snapshot: %w", err)
	}
	return snapshot.Digest{Size: size, SHA256: hex.EncodeToString(hash.Sum(nil))}, nil
}
