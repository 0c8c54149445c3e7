package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// S3Store is a Store in a bucket of any service that speaks the S3 protocol, below a prefix. Nobody else may
// write there. The service must show a change in every answer that begins after it, as Amazon's and all common ones do.
//
// The keys need to be allowed, for the objects: get, put, delete, abort a multipart upload and list its parts; for the
// bucket: list it, and list its multipart uploads. The bucket is never made, so that a wrong name is an error.
type S3Store struct {
	core     *minio.Core
	bucket   string
	prefix   string
	partSize int64
}

var _ Store = (*S3Store)(nil)

// s3Tuning is what tests make smaller.
type s3Tuning struct {
	partSize int64         // in bytes
	patience time.Duration // with a connection that stands still
}

// openS3Store prepares connections to the store and makes none yet.
func openS3Store(location *url.URL, getenv func(string) string, tuning s3Tuning) (*S3Store, error) {
	l, err := parseS3Location(location, getenv)
	if err != nil {
		return nil, storeURLError(err.Error())
	}
	core, err := connectS3(l, tuning.patience)
	if err != nil {
		return nil, storeURLError("the endpoint of an s3 URL cannot be used")
	}
	return &S3Store{core: core, bucket: l.bucket, prefix: l.prefix, partSize: tuning.partSize}, nil
}

// name is where an object of the store's is in the bucket.
func (s *S3Store) name(key string) string { return s.prefix + key }

func (s *S3Store) nameFor(ctx context.Context, key string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return s.name(key), checkKey(key)
}

// Open implements Store. A connection that breaks before the last byte is an error of the reader's.
func (s *S3Store) Open(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	name, err := s.nameFor(ctx, key)
	if err != nil {
		return nil, 0, err
	}
	content, size, err := s.open(ctx, name)
	if err != nil {
		return nil, 0, s3KeyError("open", key, err)
	}
	return content, size, nil
}

func (s *S3Store) open(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	content, info, _, err := s.core.GetObject(ctx, s.bucket, name, minio.GetObjectOptions{})
	if err != nil {
		return nil, 0, err
	}
	if info.Size < 0 {
		// Then the end of the connection could not be told from the end of the object.
		return nil, 0, errors.Join(errors.New("the answer does not say how long it is"), content.Close())
	}
	return content, info.Size, nil
}

// Stat implements Store.
func (s *S3Store) Stat(ctx context.Context, key string) (int64, error) {
	name, err := s.nameFor(ctx, key)
	if err != nil {
		return 0, err
	}
	info, err := s.core.StatObject(ctx, s.bucket, name, minio.StatObjectOptions{})
	if s3Code(err) == minio.NoSuchKey {
		return s.confirmMissing(ctx, key)
	}
	if err != nil {
		return 0, s3KeyError("look up", key, err)
	}
	return info.Size, nil
}

// confirmMissing asks again by a method whose answers have a text: that of Stat cannot tell a missing bucket from a
// missing object.
func (s *S3Store) confirmMissing(ctx context.Context, key string) (int64, error) {
	content, size, err := s.open(ctx, s.name(key))
	if err != nil {
		return 0, s3KeyError("look up", key, err)
	}
	return size, content.Close()
}

// Delete implements Store. Where the bucket keeps versions, the old ones stay until a rule of the bucket's removes them.
func (s *S3Store) Delete(ctx context.Context, key string) error {
	name, err := s.nameFor(ctx, key)
	if err != nil {
		return err
	}
	if err := s.remove(ctx, name); err != nil {
		return s3KeyError("delete", key, err)
	}
	return nil
}

func (s *S3Store) remove(ctx context.Context, name string) error {
	err := s.core.RemoveObject(ctx, s.bucket, name, minio.RemoveObjectOptions{})
	if s3Code(err) == minio.NoSuchKey {
		return nil
	}
	return err
}

// list calls visit for each object whose name below the store's prefix begins with start.
func (s *S3Store) list(ctx context.Context, start string, visit func(minio.ObjectInfo) error) error {
	ctx, stop := context.WithCancel(ctx) // ends the listing when visit has had enough
	defer stop()
	for object := range s.core.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.name(start), Recursive: true}) {
		if object.Err != nil {
			return s3Error(object.Err)
		}
		if err := visit(object); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// s3Code is the code that the service answered with, or empty when err is no answer.
func s3Code(err error) string {
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		return answer.Code
	}
	return ""
}

func s3KeyError(verb, key string, err error) error {
	if s3Code(err) == minio.NoSuchKey {
		return fmt.Errorf("%w: %s", ErrNotFound, key)
	}
	return fmt.Errorf("%s %q in the snapshot store: %w", verb, key, s3Error(err))
}

// s3FullCodes are what services answer that have no room left, or none for these keys.
var s3FullCodes = map[string]bool{
	"InsufficientStorage":            true,
	"QuotaExceeded":                  true, // Ceph
	"StorageCapExceeded":             true, // Backblaze
	"XMinioAdminBucketQuotaExceeded": true,
	"XMinioStorageFull":              true,
}

// s3Error makes recognisable what the service or the way to it is to blame for, and adds the code of an answer, which its
// text may lack.
func s3Error(err error) error {
	var answer minio.ErrorResponse
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case !errors.As(err, &answer):
		return fmt.Errorf("%w: %w", ErrStoreUnavailable, err)
	case s3FullCodes[answer.Code] || answer.StatusCode == 507:
		return fmt.Errorf("%w: %s: %w", ErrStoreFull, answer.Code, err)
	case answer.StatusCode >= 500 || answer.StatusCode == 429 || strings.HasPrefix(answer.Code, "SlowDown"):
		return fmt.Errorf("%w: %s: %w", ErrStoreUnavailable, answer.Code, err)
	default:
		return fmt.Errorf("%s: %w", answer.Code, err)
	}
}
