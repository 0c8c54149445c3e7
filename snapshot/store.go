package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// StoreVariable is the environment variable that says where snapshots are kept; errors about its value name it.
const StoreVariable = "BERTH_SNAPSHOT_URL"

var (
	// ErrNotFound means that the store has no object of that key.
	ErrNotFound = errors.New("no such object in the snapshot store")
	// ErrNoMarker means that the store was never marked: it is new, or it is not the store it is taken for.
	ErrNoMarker = errors.New("the snapshot store has no marker")
	// ErrOtherMarker means that the store belongs to another installation.
	ErrOtherMarker = errors.New("the snapshot store carries the marker of another installation")
	// ErrStoreFull means that the store has no room left. Nothing of the object was kept; the call may succeed later.
	ErrStoreFull = errors.New("the snapshot store is full")
	// ErrStoreUnavailable means that the store is out of reach or too busy; the call may succeed later.
	ErrStoreUnavailable = errors.New("the snapshot store is out of reach")
	// ErrObjectTooLarge means that the store cannot hold an object of that size.
	ErrObjectTooLarge = errors.New("too large for the snapshot store")
	// ErrInvalidKey means that a key is not of the form that Key makes.
	ErrInvalidKey = errors.New("invalid snapshot store key")
)

// Store keeps whole archives under keys. An object is there completely or not at all. All methods may be called at once,
// from any number of processes on the same store.
type Store interface {
	// Put keeps content under key; it is durable when Put returns nil. Content that has not the digest want is a
	// MismatchError and leaves nothing; at most want.Size+1 bytes of it are read. An object of that key is replaced in one
	// step; of two Puts at once the later one stays. After an error the key holds what it did before, or, when only
	// the last flush failed, the whole new content.
	Put(ctx context.Context, key string, content io.Reader, want Digest) error
	// Open returns the content of key and its size in bytes, or ErrNotFound.
	Open(ctx context.Context, key string) (io.ReadCloser, int64, error)
	// Stat returns the size of key in bytes, or ErrNotFound.
	Stat(ctx context.Context, key string) (int64, error)
	// Delete removes key. It is no error when there is none, so that a deletion can be repeated after a crash.
	Delete(ctx context.Context, key string) error
	// Walk calls visit for each object, in any order, until visit returns an error, which Walk then returns. An object
	// that comes or goes meanwhile may be left out.
	Walk(ctx context.Context, visit func(Object) error) error
	// Marker returns the id that WriteMarker left, or ErrNoMarker.
	Marker(ctx context.Context) (string, error)
	// WriteMarker marks the store as belonging to the installation id. It never replaces another mark: that is
	// ErrOtherMarker. Writing the same id again is no error.
	WriteMarker(ctx context.Context, id string) error
	// SweepTemporary removes what Puts that were killed left behind and that nobody has written to for at least olderThan,
	// and returns how many there were. Such leftovers are never visible to the other methods. olderThan must be longer
	// than a Put may stall: sweeping under a Put that still runs makes it fail.
	SweepTemporary(ctx context.Context, olderThan time.Duration) (int, error)
}

// Object is what a store holds under a key.
type Object struct {
	Key      string
	Size     int64     // in bytes
	StoredAt time.Time // by the store's clock
}

// OpenStore opens the store that a BERTH_SNAPSHOT_URL names. file:///path is a directory, made when it is missing.
// s3://bucket/prefix?endpoint=URL&region=NAME&pathStyle=BOOL is a bucket, whose keys and, unless the URL names it, region
// getenv knows; nothing is asked of it yet.
func OpenStore(location string, getenv func(string) string) (Store, error) {
	parsed, err := url.Parse(location)
	if err != nil {
		// The parser's error would repeat the URL, which may hold a secret.
		return nil, storeURLError("it is not a URL")
	}
	switch parsed.Scheme {
	case "file":
		if parsed.Host != "" && parsed.Host != "localhost" {
			return nil, storeURLError(fmt.Sprintf("a file URL has three slashes before the path, and %q is taken for a host", parsed.Host))
		}
		if !filepath.IsAbs(parsed.Path) || parsed.RawQuery != "" || parsed.Fragment != "" || strings.ContainsRune(parsed.Path, 0) {
			return nil, storeURLError("a file URL is an absolute path and nothing else")
		}
		return OpenFileStore(parsed.Path)
	case "s3":
		return openS3Store(parsed, getenv, s3Tuning{partSize: s3PartSize, patience: s3Patience})
	case "":
		return nil, storeURLError("it has no scheme")
	default:
		return nil, storeURLError(fmt.Sprintf("scheme %q is not known", parsed.Scheme))
	}
}

func storeURLError(problem string) error {
	return fmt.Errorf("%s: %s (allowed: file:///absolute/path, s3://bucket/prefix?endpoint=URL)", StoreVariable, problem)
}

// maxKeyBytes is what S3 allows a key, less room for a prefix.
const maxKeyBytes = 512

// checkKey allows what every kind of store can hold and no file system can misread: components of letters, digits, '-',
// '_' and '.', none of which begins with a dot. Names that begin with one are the store's own.
func checkKey(key string) error {
	refuse := func(problem string) error { return fmt.Errorf("%w %q: %s", ErrInvalidKey, key, problem) }
	if len(key) > maxKeyBytes {
		return refuse(fmt.Sprintf("longer than %d bytes", maxKeyBytes))
	}
	for component := range strings.SplitSeq(key, "/") {
		if component == "" {
			return refuse("empty, absolute, or an empty component")
		}
		if component[0] == '.' {
			return refuse("a component that begins with a dot")
		}
		for _, c := range []byte(component) {
			letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
			if !letter && !strings.ContainsRune("-_.", rune(c)) {
				return refuse("a character that is not a letter, a digit or one of -_.")
			}
		}
	}
	return nil
}
