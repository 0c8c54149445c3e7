package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// Walk implements Store. What is not named like a key is not the store's, or is kept for itself.
func (s *S3Store) Walk(ctx context.Context, visit func(Object) error) error {
	err := s.list(ctx, "", func(object minio.ObjectInfo) error {
		key := strings.TrimPrefix(object.Key, s.prefix)
		if checkKey(key) != nil {
			return nil //nolint:nilerr // somebody else's object is none of ours
		}
		return visit(Object{Key: key, Size: object.Size, StoredAt: object.LastModified})
	})
	if err != nil {
		return fmt.Errorf("walk the snapshot store: %w", err)
	}
	return nil
}

// SweepTemporary implements Store: the leftovers are multipart uploads that nobody will finish, and claims of installations
// that were killed while they marked the store. How old they are is told by the difference between this machine's clock
// and the service's.
//
// A MinIO server lists uploads only by their full name, and so hides them from the sweep; it removes them by itself.
func (s *S3Store) SweepTemporary(ctx context.Context, olderThan time.Duration) (int, error) {
	limit := time.Now().Add(-olderThan)
	uploads, err := s.sweepUploads(ctx, limit)
	claims, claimsErr := s.sweepClaims(ctx, limit)
	if err := errors.Join(err, claimsErr); err != nil {
		return uploads + claims, fmt.Errorf("sweep the snapshot store: %w", err)
	}
	return uploads + claims, nil
}

// sweepPage is how many uploads or parts one answer holds at most.
const sweepPage = 1000

func (s *S3Store) sweepUploads(ctx context.Context, limit time.Time) (int, error) {
	removed, keyMarker, uploadMarker := 0, "", ""
	for {
		page, err := s.core.ListMultipartUploads(ctx, s.bucket, s.prefix, keyMarker, uploadMarker, "", sweepPage)
		if err != nil {
			return removed, s3Error(err)
		}
		for _, upload := range page.Uploads {
			key, ours := strings.CutPrefix(upload.Key, s.prefix)
			if !ours || checkKey(key) != nil || upload.Initiated.After(limit) {
				continue
			}
			swept, err := s.sweepUpload(ctx, upload, limit)
			if err != nil {
				return removed, err
			}
			if swept {
				removed++
			}
		}
		if !page.IsTruncated {
			return removed, nil
		}
		keyMarker, uploadMarker = page.NextKeyMarker, page.NextUploadIDMarker
	}
}

// sweepUpload gives an upload up unless a part of it came after the limit. One that somebody else finished or gave up
// meanwhile is not counted.
func (s *S3Store) sweepUpload(ctx context.Context, upload minio.ObjectMultipartInfo, limit time.Time) (bool, error) {
	for marker := 0; ; {
		page, err := s.core.ListObjectParts(ctx, s.bucket, upload.Key, upload.UploadID, marker, sweepPage)
		if s3Code(err) == minio.NoSuchUpload {
			return false, nil
		}
		if err != nil {
			return false, s3Error(err)
		}
		for _, part := range page.ObjectParts {
			if part.LastModified.After(limit) {
				return false, nil
			}
		}
		if !page.IsTruncated {
			break
		}
		marker = page.NextPartNumberMarker
	}
	err := s.core.AbortMultipartUpload(ctx, s.bucket, upload.Key, upload.UploadID)
	if s3Code(err) == minio.NoSuchUpload {
		return false, nil
	}
	if err != nil {
		return false, s3Error(err)
	}
	return true, nil
}

func (s *S3Store) sweepClaims(ctx context.Context, limit time.Time) (int, error) {
	removed := 0
	err := s.list(ctx, claimPrefix, func(claim minio.ObjectInfo) error {
		if claim.LastModified.After(limit) {
			return nil
		}
		if err := s.remove(ctx, claim.Key); err != nil {
			return s3Error(err)
		}
		removed++
		return nil
	})
	return removed, err
}
