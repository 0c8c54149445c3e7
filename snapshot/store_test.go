package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"berth/snapshot"
	"berth/snapshot/storetest"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// storePromises are what every kind of store keeps; open returns a new, empty one.
func storePromises(t *testing.T, open func(t *testing.T) snapshot.Store) {
	for name, promise := range map[string]func(*testing.T, snapshot.Store){
		"an object that was put can be read":             putThenOpen,
		"a missing object is ErrNotFound":                missingObject,
		"a mismatch leaves nothing":                      mismatchLeavesNothing,
		"a mismatch leaves the old object":               mismatchLeavesTheOld,
		"no more is read than one byte too many":         readsAtMostOneByteMore,
		"a broken upload leaves nothing":                 brokenUpload,
		"a cancelled upload leaves nothing":              cancelledUpload,
		"simultaneous puts never tear an object":         simultaneousPuts,
		"puts and deletes of one directory do not clash": putsBesideDeletes,
		"a walk visits every object and no other":        walksObjects,
		"a key that could lead elsewhere is refused":     refusesKeys,
		"the marker is written once":                     markerOnce,
		"of two installations one marks the store":       markerRace,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			promise(t, open(t))
		})
	}
}

const someKey = "companies/c/workspaces/w/1/s.tar.zst"

func put(tb testing.TB, store snapshot.Store, key, content string) {
	tb.Helper()
	must(tb, store.Put(tb.Context(), key, strings.NewReader(content), digestOf([]byte(content))))
}

func read(tb testing.TB, store snapshot.Store, key string) string {
	tb.Helper()
	reader, size, err := store.Open(tb.Context(), key)
	must(tb, err)
	content, err := io.ReadAll(reader)
	must(tb, errors.Join(err, reader.Close()))
	if size != int64(len(content)) {
		tb.Errorf("Open says %d bytes, there are %d", size, len(content))
	}
	return string(content)
}

func requireMissing(tb testing.TB, store snapshot.Store, key string) {
	tb.Helper()
	if _, _, err := store.Open(tb.Context(), key); !errors.Is(err, snapshot.ErrNotFound) {
		tb.Errorf("Open of %q: error %v, want ErrNotFound", key, err)
	}
	if _, err := store.Stat(tb.Context(), key); !errors.Is(err, snapshot.ErrNotFound) {
		tb.Errorf("Stat of %q: error %v, want ErrNotFound", key, err)
	}
}

func putThenOpen(t *testing.T, store snapshot.Store) {
	put(t, store, someKey, long("first"))
	put(t, store, "companies/c/workspaces/w/1/empty.tar.zst", "")
	if got := read(t, store, "companies/c/workspaces/w/1/empty.tar.zst"); got != "" {
		t.Errorf("nothing is read as %q", got)
	}
	if got := read(t, store, someKey); got != long("first") {
		t.Errorf("read %q", got)
	}
	size, err := store.Stat(t.Context(), someKey)
	if err != nil || size != 5000 {
		t.Errorf("Stat = %d, %v", size, err)
	}
	reader, _, err := store.Open(t.Context(), someKey)
	must(t, err)
	defer reader.Close()
	put(t, store, someKey, "second")
	must(t, store.Delete(t.Context(), "companies/c/workspaces/w/1/empty.tar.zst"))
	if old, err := io.ReadAll(reader); string(old) != long("first") {
		t.Errorf("a reader that began before the replacement read %q, %v", old, err)
	}
	if got := read(t, store, someKey); got != "second" {
		t.Errorf("after the replacement: %q", got)
	}
}

func missingObject(t *testing.T, store snapshot.Store) {
	requireMissing(t, store, someKey)
	put(t, store, someKey, "x")
	requireMissing(t, store, "companies/c") // a part of a key is no object
	requireMissing(t, store, someKey+"/below")
	must(t, store.Delete(t.Context(), "companies/c"))
	must(t, store.Delete(t.Context(), someKey+"/below"))
	must(t, store.Delete(t.Context(), someKey))
	requireMissing(t, store, someKey)
	must(t, store.Delete(t.Context(), someKey))
}

func mismatchLeavesNothing(t *testing.T, store snapshot.Store) {
	for name, content := range map[string]string{"shorter": "conten", "longer": "content!", "other": "CONTENT", "empty": ""} {
		content = long(content)
		want := digestOf([]byte(long("content")))
		err := store.Put(t.Context(), someKey, strings.NewReader(content), want)
		var mismatch *snapshot.MismatchError
		if !errors.As(err, &mismatch) || mismatch.Want != want || mismatch.Name != someKey {
			t.Errorf("%s: error %v, want a MismatchError", name, err)
		}
		requireMissing(t, store, someKey)
	}
	if err := store.Put(t.Context(), someKey, strings.NewReader(""), snapshot.Digest{}); err == nil {
		t.Error("a digest without a hash was accepted")
	}
}

func mismatchLeavesTheOld(t *testing.T, store snapshot.Store) {
	put(t, store, someKey, long("old"))
	if err := store.Put(t.Context(), someKey, strings.NewReader(long("new")), digestOf([]byte(long("NEW")))); err == nil {
		t.Error("a mismatch was accepted")
	}
	if got := read(t, store, someKey); got != long("old") {
		t.Errorf("the old object is now %q", got)
	}
}

// long makes a text so long that a store which cuts objects into parts may cut it.
func long(text string) string { return strings.Repeat(text, 1000) }

type countingReader struct{ count int64 }

func (r *countingReader) Read(p []byte) (int, error) {
	r.count += int64(len(p))
	return len(p), nil
}

func readsAtMostOneByteMore(t *testing.T, store snapshot.Store) {
	endless := &countingReader{}
	want := digestOf(make([]byte, 3000))
	var mismatch *snapshot.MismatchError
	if err := store.Put(t.Context(), someKey, endless, want); !errors.As(err, &mismatch) {
		t.Errorf("error %v, want a MismatchError", err)
	}
	if endless.count != 3001 {
		t.Errorf("%d bytes were read, want 3001", endless.count)
	}
}

func brokenUpload(t *testing.T, store snapshot.Store) {
	broken := errors.New("connection lost")
	reader, writer := io.Pipe()
	go func() {
		writer.Write([]byte(long("half"))) //nolint:errcheck // it comes to the same
		writer.CloseWithError(broken)
	}()
	if err := store.Put(t.Context(), someKey, reader, digestOf([]byte(long("half and more")))); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of the upload", err)
	}
	requireMissing(t, store, someKey)
}

func cancelledUpload(t *testing.T, store snapshot.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	content := io.MultiReader(strings.NewReader(long("half")), readerFunc(func(p []byte) (int, error) {
		cancel()
		return copy(p, "full"), nil
	}), strings.NewReader(long("more")))
	err := store.Put(ctx, someKey, content, digestOf([]byte(long("half")+"full"+long("more"))))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	requireMissing(t, store, someKey)
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func simultaneousPuts(t *testing.T, store snapshot.Store) {
	contents := map[string]bool{}
	var writers errgroup.Group
	for i := range 8 {
		content := strings.Repeat(string(rune('a'+i)), 300_000+i)
		contents[content] = true
		writers.Go(func() error {
			return store.Put(t.Context(), someKey, strings.NewReader(content), digestOf([]byte(content)))
		})
	}
	done := make(chan error, 1)
	go func() { done <- writers.Wait() }()
	for {
		reader, _, err := store.Open(t.Context(), someKey)
		if err == nil {
			content, readErr := io.ReadAll(reader)
			must(t, errors.Join(readErr, reader.Close()))
			if !contents[string(content)] {
				t.Fatalf("read %d bytes that nobody wrote", len(content))
			}
		} else if !errors.Is(err, snapshot.ErrNotFound) {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			must(t, err)
			if !contents[read(t, store, someKey)] {
				t.Error("the object that stayed is none of those written")
			}
			return
		default:
		}
	}
}

func putsBesideDeletes(t *testing.T, store snapshot.Store) {
	var workers errgroup.Group
	for _, name := range []string{"a", "b", "c", "d"} {
		key := "companies/c/" + name
		workers.Go(func() error {
			for range 25 {
				err := store.Put(t.Context(), key, strings.NewReader(name), digestOf([]byte(name)))
				if err != nil {
					return err
				}
				if _, err := store.Stat(t.Context(), key); err != nil {
					return err
				}
				if err := store.Delete(t.Context(), key); err != nil {
					return err
				}
			}
			return nil
		})
	}
	must(t, workers.Wait())
}

func walksObjects(t *testing.T, store snapshot.Store) {
	visit := func(snapshot.Object) error { return errors.New("there is nothing to visit") }
	must(t, store.WriteMarker(t.Context(), "id")) // nor is that
	must(t, store.Walk(t.Context(), visit))
	before := time.Now().Add(-time.Minute)
	want := map[string]int64{}
	for i := range 40 {
		key := fmt.Sprintf("companies/c/workspaces/w/%d/s.tar.zst", i)
		want[key] = int64(i)
		put(t, store, key, strings.Repeat("x", i))
	}
	must(t, store.Delete(t.Context(), "companies/c/workspaces/w/7/s.tar.zst"))
	delete(want, "companies/c/workspaces/w/7/s.tar.zst")
	got := map[string]int64{}
	must(t, store.Walk(t.Context(), func(o snapshot.Object) error {
		got[o.Key] = o.Size
		if o.StoredAt.Before(before) || o.StoredAt.After(time.Now().Add(time.Minute)) {
			t.Errorf("%s was stored at %s", o.Key, o.StoredAt)
		}
		return nil
	}))
	if !maps.Equal(got, want) {
		t.Errorf("visited %v, want %v", got, want)
	}
	enough, visited := errors.New("enough"), 0
	err := store.Walk(t.Context(), func(snapshot.Object) error {
		visited++
		return enough
	})
	if !errors.Is(err, enough) || visited != 1 {
		t.Errorf("a walk that was stopped at once: %d visits, error %v", visited, err)
	}
	must(t, store.Walk(t.Context(), func(o snapshot.Object) error { return store.Delete(t.Context(), o.Key) }))
	must(t, store.Walk(t.Context(), visit))
	if id, err := store.Marker(t.Context()); err != nil || id != "id" {
		t.Errorf("after all was deleted the marker is %q, %v", id, err)
	}
}

func refusesKeys(t *testing.T, store snapshot.Store) {
	for _, key := range []string{
		"", "/", "/etc/passwd", "..", "../a", "a/../b", "a/..", ".", "./a", "a/./b", "a//b", "a/", "a\x00b", "a\nb", `a\b`, "a b",
		"ü", ".berth-store", "a/.hidden", "a/" + snapshot.TemporaryPrefix + "x", strings.Repeat("k", 600),
	} {
		put := store.Put(t.Context(), key, strings.NewReader("x"), digestOf([]byte("x")))
		_, _, open := store.Open(t.Context(), key)
		_, stat := store.Stat(t.Context(), key)
		for method, err := range map[string]error{"Put": put, "Open": open, "Stat": stat, "Delete": store.Delete(t.Context(), key)} {
			if !errors.Is(err, snapshot.ErrInvalidKey) {
				t.Errorf("%s of %q: error %v, want ErrInvalidKey", method, key, err)
			}
		}
	}
}

func markerOnce(t *testing.T, store snapshot.Store) {
	if _, err := store.Marker(t.Context()); !errors.Is(err, snapshot.ErrNoMarker) {
		t.Errorf("Marker of a new store: error %v, want ErrNoMarker", err)
	}
	for _, id := range []string{"", "two\nlines", strings.Repeat("x", 1000)} {
		if err := store.WriteMarker(t.Context(), id); err == nil {
			t.Errorf("marker %q was accepted", id)
		}
	}
	must(t, store.WriteMarker(t.Context(), "ours"))
	must(t, store.WriteMarker(t.Context(), "ours"))
	if err := store.WriteMarker(t.Context(), "theirs"); !errors.Is(err, snapshot.ErrOtherMarker) {
		t.Errorf("another marker: error %v, want ErrOtherMarker", err)
	}
	if id, err := store.Marker(t.Context()); err != nil || id != "ours" {
		t.Errorf("Marker = %q, %v", id, err)
	}
}

func markerRace(t *testing.T, store snapshot.Store) {
	ids := []string{"a", "b", "c", "d", "e", "f"}
	results := make([]error, len(ids))
	var writers errgroup.Group
	for i, id := range ids {
		writers.Go(func() error {
			results[i] = store.WriteMarker(t.Context(), id)
			return nil
		})
	}
	must(t, writers.Wait())
	winner, err := store.Marker(t.Context())
	must(t, err)
	for i, id := range ids {
		if won := results[i] == nil; won != (id == winner) || !won && !errors.Is(results[i], snapshot.ErrOtherMarker) {
			t.Errorf("the marker is %q; writing %q gave %v", winner, id, results[i])
		}
	}
}

func TestOpenStoreRefusesOtherURLsAndNamesItsVariable(t *testing.T) {
	t.Parallel()
	for location, problem := range map[string]string{
		"":                                            "no scheme",
		"/var/lib/berth":                              "no scheme",
		"file:relative":                               "absolute path",
		"file://host/path":                            "taken for a host",
		"file:///path?x=1":                            "absolute path",
		"s3://bucket/prefix?secret=hush":              "AWS_ACCESS_KEY_ID",
		"s3://hush:hush@bucket/prefix":                "AWS_ACCESS_KEY_ID",
		"s3:///prefix":                                "name of a bucket",
		"s3://Bucket_hush/":                           "name of a bucket",
		"s3://bucket:80/":                             "name of a bucket",
		"s3://bucket/.hush":                           "prefix",
		"s3://bucket/a/../hush":                       "prefix",
		"s3://bucket/?%zz=hush":                       "parameters",
		"s3://bucket/?region=a&region=b":              "at most once",
		"s3://bucket/?pathStyle=hush":                 "true or false",
		"s3://bucket/?endpoint=hush":                  "endpoint",
		"s3://bucket/?endpoint=http://hush:hush@host": "endpoint",
		"s3://bucket/?endpoint=http://host/hush":      "endpoint",
		"https://user:hush@example.org/":              `scheme "https"`,
		"file:///%zz?secret=hush":                     "not a URL",
		"file:///with%00zero":                         "absolute path",
		"postgres://user:hush@host/store":             `scheme "postgres"`,
	} {
		_, err := snapshot.OpenStore(location, storetest.Getenv)
		if err == nil || !strings.Contains(err.Error(), problem) || !strings.Contains(err.Error(), "BERTH_SNAPSHOT_URL") ||
			!strings.Contains(err.Error(), "file:///") || strings.Contains(err.Error(), "hush") {
			t.Errorf("OpenStore(%q): error %v", location, err)
		}
	}
}

func TestKeyPutsTheEpochIntoThePath(t *testing.T) {
	t.Parallel()
	id := func(n string) uuid.UUID { return uuid.MustParse("00000000-0000-7000-8000-00000000000" + n) }
	got := snapshot.Key(id("1"), id("2"), 9007199254740991, id("3"))
	want := "companies/00000000-0000-7000-8000-000000000001/workspaces/00000000-0000-7000-8000-000000000002/9007199254740991/" +
		"00000000-0000-7000-8000-000000000003.tar.zst"
	if got != want {
		t.Errorf("Key = %q, want %q", got, want)
	}
	put(t, openFileStore(t), got, "x")
}
