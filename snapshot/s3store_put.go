package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7"
)

const (
	// s3PartSize is what one Put holds in memory at most, in bytes. Every service takes parts of this size.
	s3PartSize = 16 << 20
	// s3MaxParts is how many parts every service takes.
	s3MaxParts = 10_000
	// s3DigestMetadata is kept with an object of several parts, of which no service knows the sha256.
	s3DigestMetadata = "Berth-Sha256"
)

// Put implements Store. What fits into one part is checked in memory and put in one request. Of what is longer, the parts
// are sent while it arrives, each with its own hash; the object is there only when the last request joins them,
// and that is sent once the whole was checked.
func (s *S3Store) Put(ctx context.Context, key string, content io.Reader, want Digest) error {
	if err := want.Validate(); err != nil {
		return fmt.Errorf("put %q: %w", key, err)
	}
	name, err := s.nameFor(ctx, key)
	if err != nil {
		return err
	}
	if most := s.partSize * s3MaxParts; want.Size > most {
		return fmt.Errorf("put %q: %w: %d bytes, of at most %d", key, ErrObjectTooLarge, want.Size, most)
	}
	parts := newPartReader(ctx, content, want, s.partSize)
	first, err := parts.next()
	switch {
	case err != nil:
	case want.Size < s.partSize:
		if err = parts.check(key); err == nil {
			err = s.putBytes(ctx, name, first, minio.PutObjectOptions{})
		}
	case int64(len(first)) < s.partSize:
		err = parts.check(key)
	default:
		err = s.putParts(ctx, key, first, parts)
	}
	if err != nil {
		return fmt.Errorf("put %q: %w", key, err)
	}
	return nil
}

// partReader cuts content into parts and takes the digest of the whole. It reads at most one byte more than is wanted.
type partReader struct {
	from   io.Reader
	buffer []byte
	whole  *digestWriter
	want   Digest
}

func newPartReader(ctx context.Context, content io.Reader, want Digest, partSize int64) *partReader {
	return &partReader{
		from:   io.LimitReader(contextReader{ctx, content}, want.Size+1),
		buffer: make([]byte, min(want.Size+1, partSize)),
		whole:  newDigestWriter(io.Discard),
		want:   want,
	}
}

// next returns the next part, which is good until the one after it. It is shorter than the others only at the end.
func (p *partReader) next() ([]byte, error) {
	n, err := io.ReadFull(p.from, p.buffer)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	_, err = p.whole.Write(p.buffer[:n])
	return p.buffer[:n], err
}

func (p *partReader) check(key string) error { return p.whole.match(key, p.want) }

// putBytes sends a small object. Its sha256 is part of the signed request: what was changed on the way is refused.
func (s *S3Store) putBytes(ctx context.Context, name string, content []byte, options minio.PutObjectOptions) error {
	options.DisableContentSha256 = true // of the streaming signature; not all services know it
	_, err := s.core.PutObject(ctx, s.bucket, name, bytes.NewReader(content), int64(len(content)), "", sumOf(content), options)
	if err != nil {
		return s3Error(err)
	}
	return nil
}

// abortPatience bounds how long a Put that failed tries to clean up. SweepTemporary removes what stays.
const abortPatience = 20 * time.Second

func (s *S3Store) putParts(ctx context.Context, key string, first []byte, parts *partReader) (err error) {
	name := s.name(key)
	upload, err := s.core.NewMultipartUpload(ctx, s.bucket, name, minio.PutObjectOptions{
		UserMetadata: map[string]string{s3DigestMetadata: parts.want.SHA256},
	})
	if err != nil {
		return s3Error(err)
	}
	defer func() {
		if err != nil {
			after, stop := context.WithTimeout(context.WithoutCancel(ctx), abortPatience)
			defer stop()
			s.core.AbortMultipartUpload(after, s.bucket, name, upload) //nolint:errcheck // the first error counts
		}
	}()
	var sent []minio.CompletePart
	for part := first; len(part) > 0; {
		done, err := s.putPart(ctx, name, upload, len(sent)+1, part)
		if err != nil {
			return err
		}
		sent = append(sent, done)
		if part, err = parts.next(); err != nil {
			return err
		}
	}
	if err := parts.check(key); err != nil {
		return err
	}
	_, err = s.core.CompleteMultipartUpload(ctx, s.bucket, name, upload, sent, minio.PutObjectOptions{})
	if err != nil && !s.joinedBefore(ctx, name, parts.want, err) {
		return s3Error(err)
	}
	return nil
}

func (s *S3Store) putPart(ctx context.Context, name, upload string, number int, part []byte) (minio.CompletePart, error) {
	done, err := s.core.PutObjectPart(ctx, s.bucket, name, upload, number, bytes.NewReader(part), int64(len(part)),
		minio.PutObjectPartOptions{Sha256Hex: sumOf(part), DisableContentSha256: true})
	if err != nil {
		return minio.CompletePart{}, s3Error(err)
	}
	return minio.CompletePart{PartNumber: number, ETag: done.ETag}, nil
}

// joinedBefore reports whether the parts were joined by an earlier try whose answer was lost: then the upload is not known
// any more, and the object is there.
func (s *S3Store) joinedBefore(ctx context.Context, name string, want Digest, err error) bool {
	if s3Code(err) != minio.NoSuchUpload {
		return false
	}
	info, err := s.core.StatObject(ctx, s.bucket, name, minio.StatObjectOptions{})
	return err == nil && info.Size == want.Size && info.UserMetadata[s3DigestMetadata] == want.SHA256
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
