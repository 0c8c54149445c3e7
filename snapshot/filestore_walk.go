package snapshot

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Walk implements Store. What the store keeps for itself begins with a dot and is no object.
func (s *FileStore) Walk(ctx context.Context, visit func(Object) error) error {
	root, err := s.open()
	if err != nil {
		return err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, item fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isMissing(err):
			return nil // deleted while we walk
		case err != nil:
			return err
		case item.IsDir() || strings.HasPrefix(path.Base(name), "."):
			return nil
		}
		info, err := item.Info()
		if isMissing(err) || err == nil && !info.Mode().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		return visit(Object{Key: name, Size: info.Size(), StoredAt: info.ModTime()})
	})
	if err != nil {
		return fmt.Errorf("walk the snapshot store: %w", err)
	}
	return nil
}
