package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	cryptorand "crypto/rand"

	"github.com/minio/minio-go/v7"
)

// s3MarkerPatience is how long a Marker waits for the store: it is what readiness asks, and that has to answer.
const s3MarkerPatience = 10 * time.Second

// Marker implements Store.
func (s *S3Store) Marker(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	bounded, stop := context.WithTimeout(ctx, s3MarkerPatience)
	defer stop()
	id, err := s.readMarker(bounded)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: no answer within %s", ErrStoreUnavailable, s3MarkerPatience)
	}
	return id, err
}

func (s *S3Store) readMarker(ctx context.Context) (string, error) {
	content, _, err := s.open(ctx, s.name(storeMarkerName))
	if s3Code(err) == minio.NoSuchKey {
		return "", fmt.Errorf("%w (bucket %s, object %s)", ErrNoMarker, s.bucket, s.name(storeMarkerName))
	}
	if err != nil {
		return "", fmt.Errorf("read the marker of the snapshot store: %w", s3Error(err))
	}
	defer content.Close()
	text, err := io.ReadAll(io.LimitReader(content, maxMarkerBytes+2))
	if err != nil {
		return "", fmt.Errorf("read the marker of the snapshot store: %w", s3Error(err))
	}
	return parseMarker(text, s.bucket)
}

const (
	// claimPrefix begins with a dot, so no key can be the same.
	claimPrefix = ".berth-claim-"
	// claimPatience bounds how long an installation waits for another that is about to mark the store.
	claimPatience = 20 * time.Second
	// maxClaimPause is the longest pause between two tries to claim the store.
	maxClaimPause = time.Second
)

// WriteMarker implements Store. Not every service can put an object only if there is none, and some that cannot do not
// say so. Therefore each installation first puts a claim, an object of its own, and writes the marker only when it then
// sees no claim of another installation, and still no marker. Of two that do so at once, the one whose claim came second
// sees the first claim, or, when that is gone already, the first marker. Those who see each other both withdraw and try
// again after pauses of different length.
func (s *S3Store) WriteMarker(ctx context.Context, id string) error {
	if err := checkMarker(id); err != nil {
		return err
	}
	patient, stop := context.WithTimeout(ctx, claimPatience)
	defer stop()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, maxClaimPause) {
		present, err := s.Marker(ctx)
		if !errors.Is(err, ErrNoMarker) {
			if err == nil {
				err = compareMarkers(present, id)
			}
			return wrapMarking(err)
		}
		rival, err := s.tryMark(ctx, id)
		switch {
		case err != nil:
			return wrapMarking(err)
		case rival == "":
			continue // the marker is there: whose it is, the next look says
		}
		select {
		case <-patient.Done():
			return wrapMarking(fmt.Errorf("another installation began to and does not finish: start that again, or delete the object %s: %w", rival, patient.Err()))
		case <-time.After(pause/2 + rand.N(pause)): //nolint:gosec // not a secret
		}
	}
}

func wrapMarking(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("mark the snapshot store: %w", err)
}

// tryMark claims the store and marks it, or returns the name of another's claim. The claim stays when it is not known
// what became of the marker: it may still arrive, and must not replace another then.
func (s *S3Store) tryMark(ctx context.Context, id string) (rival string, err error) {
	ours := claimPrefix + sumOf([]byte(id)) + "-"
	claim := s.name(ours + cryptorand.Text())
	if err := s.putBytes(ctx, claim, []byte(id), minio.PutObjectOptions{}); err != nil {
		return "", err
	}
	unknown := false
	defer func() {
		if !unknown {
			after, stop := context.WithTimeout(context.WithoutCancel(ctx), abortPatience)
			defer stop()
			s.remove(after, claim) //nolint:errcheck // a claim beside the marker harms nobody, and is swept
		}
	}()
	err = s.list(ctx, claimPrefix, func(object minio.ObjectInfo) error {
		if !strings.HasPrefix(object.Key, s.name(ours)) {
			rival = object.Key
		}
		return nil
	})
	if err != nil || rival != "" {
		return rival, err
	}
	if _, err := s.Marker(ctx); !errors.Is(err, ErrNoMarker) {
		return "", err
	}
	err = s.putMarker(ctx, id)
	unknown = err != nil
	return "", err
}

// putMarker asks the service, too, to put the marker only if there is none: where it can, that is a second lock.
func (s *S3Store) putMarker(ctx context.Context, id string) error {
	var onlyNew minio.PutObjectOptions
	onlyNew.SetMatchETagExcept("*")
	content := []byte(id + "\n")
	err := s.putBytes(ctx, s.name(storeMarkerName), content, onlyNew)
	switch s3Code(err) {
	case minio.PreconditionFailed, minio.Conflict, "ConditionalRequestConflict":
		return nil // there is one, maybe ours by an earlier try whose answer was lost
	case minio.NotImplemented:
		return s.putBytes(ctx, s.name(storeMarkerName), content, minio.PutObjectOptions{})
	default:
		return err
	}
}
