package snapshot_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/snapshot"
	"berth/snapshot/storetest"
)

func openS3Store(tb testing.TB, options ...storetest.Option) snapshot.Store {
	tb.Helper()
	store, err := snapshot.OpenStore(storetest.NewS3(tb, options...).URL("some/prefix"), storetest.Getenv)
	must(tb, err)
	return store
}

// smallPart makes a few thousand bytes several parts.
const smallPart = 1024

// openInParts opens a store that has little patience, for objects of many parts.
func openInParts(tb testing.TB, server *storetest.S3) snapshot.Store {
	tb.Helper()
	store, err := snapshot.OpenTunedS3Store(server.URL(""), storetest.Getenv, smallPart, 2*time.Second)
	must(tb, err)
	return store
}

func TestS3Store(t *testing.T) {
	t.Parallel()
	storePromises(t, func(t *testing.T) snapshot.Store { return openS3Store(t) })
}

func TestS3StoreInParts(t *testing.T) {
	t.Parallel()
	storePromises(t, func(t *testing.T) snapshot.Store { return openInParts(t, storetest.NewS3(t)) })
}

// Some services do not know the condition that a new object must not be there. Some of them say so.
func TestS3StoreIsMarkedOnceWhereConditionsAreUnknown(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request) (answered bool){
		"and ignored": func(_ http.ResponseWriter, r *http.Request) bool {
			r.Header.Del("If-None-Match")
			return false
		},
		"and refused": func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut || r.Header.Get("If-None-Match") == "" {
				return false
			}
			storetest.Refuse(w, http.StatusNotImplemented, "NotImplemented")
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 10 {
				markerRace(t, openS3Store(t, storetest.Around(unless(answer))))
			}
			markerOnce(t, openS3Store(t, storetest.Around(unless(answer))))
		})
	}
}

// unless makes a middleware of what may answer in place of the server.
func unless(answer func(http.ResponseWriter, *http.Request) bool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !answer(w, r) {
				next.ServeHTTP(w, r)
			}
		})
	}
}

func TestS3MarkingHalfDoneByAnotherIsNamed(t *testing.T) {
	t.Parallel()
	server := storetest.NewS3(t, storetest.Around(unless(func(w http.ResponseWriter, r *http.Request) bool {
		stuck := r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/.berth-store")
		if stuck {
			storetest.Refuse(w, http.StatusForbidden, "AccessDenied")
		}
		return stuck
	})))
	store, err := snapshot.OpenStore(server.URL(""), storetest.Getenv)
	must(t, err)
	if err := store.WriteMarker(t.Context(), "first"); err == nil || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("first: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := store.WriteMarker(ctx, "second"); err == nil || !strings.Contains(err.Error(), ".berth-claim-") {
		t.Errorf("second: error %v, want one that names the claim", err)
	}
}

func TestS3StoreTellsAMissingBucketFromAMissingObject(t *testing.T) {
	t.Parallel()
	location := strings.Replace(storetest.NewS3(t).URL(""), storetest.Bucket, "elsewhere", 1)
	store, err := snapshot.OpenStore(location, storetest.Getenv)
	must(t, err)
	_, _, open := store.Open(t.Context(), someKey)
	_, stat := store.Stat(t.Context(), someKey)
	_, marker := store.Marker(t.Context())
	put := store.Put(t.Context(), someKey, strings.NewReader("x"), digestOf([]byte("x")))
	mark := store.WriteMarker(t.Context(), "id")
	for method, err := range map[string]error{"Open": open, "Stat": stat, "Marker": marker, "Put": put, "WriteMarker": mark} {
		if err == nil || errors.Is(err, snapshot.ErrNotFound) || errors.Is(err, snapshot.ErrNoMarker) || !strings.Contains(err.Error(), "NoSuchBucket") {
			t.Errorf("%s: error %v, want NoSuchBucket", method, err)
		}
	}
}

func TestS3StoreThatIsFullSaysSoAndKeepsNothing(t *testing.T) {
	t.Parallel()
	for code, status := range map[string]int{"XMinioStorageFull": 507, "QuotaExceeded": 403, "InsufficientStorage": 507} {
		server := storetest.NewS3(t, storetest.Around(unless(func(w http.ResponseWriter, r *http.Request) bool {
			full := r.Method == http.MethodPut
			if full {
				storetest.Refuse(w, status, code)
			}
			return full
		})))
		store := openInParts(t, server)
		for _, content := range []string{"short", long("longer")} {
			err := store.Put(t.Context(), someKey, strings.NewReader(content), digestOf([]byte(content)))
			if !errors.Is(err, snapshot.ErrStoreFull) {
				t.Errorf("%s, %d bytes: error %v, want ErrStoreFull", code, len(content), err)
			}
			requireMissing(t, store, someKey)
		}
		requireSwept(t, store, -time.Hour, 0)
	}
}

func TestS3StoreRefusesWhatItCannotHoldBeforeItReads(t *testing.T) {
	t.Parallel()
	unread := readerFunc(func([]byte) (int, error) { return 0, errors.New("it was read") })
	want := snapshot.Digest{Size: 1 << 40, SHA256: digestOf(nil).SHA256}
	err := openS3Store(t).Put(t.Context(), someKey, unread, want)
	if !errors.Is(err, snapshot.ErrObjectTooLarge) {
		t.Errorf("error %v, want ErrObjectTooLarge", err)
	}
}

func TestS3StoreTakesKeysFromTheEnvironmentAlone(t *testing.T) {
	t.Parallel()
	location := storetest.NewS3(t).URL("")
	ours := map[string]string{"BERTH_S3_ACCESS_KEY_ID": storetest.AccessKeyID, "BERTH_S3_SECRET_ACCESS_KEY": storetest.SecretAccessKey}
	others := map[string]string{"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "else"}
	both := maps.Clone(ours)
	maps.Copy(both, others)
	store, err := snapshot.OpenStore(location, func(name string) string { return both[name] })
	must(t, err)
	put(t, store, someKey, "x")

	store, err = snapshot.OpenStore(location, func(name string) string { return others[name] })
	must(t, err)
	if _, err := store.Stat(t.Context(), someKey); err == nil || errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("with keys that the server does not know: error %v", err)
	}
	for missing := range ours {
		half := maps.Clone(ours)
		delete(half, missing)
		_, err := snapshot.OpenStore(location, func(name string) string { return half[name] })
		if err == nil || !strings.Contains(err.Error(), missing) || strings.Contains(err.Error(), storetest.SecretAccessKey) {
			t.Errorf("without %s: error %v", missing, err)
		}
	}
	if _, err := snapshot.OpenStore(location, func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), "AWS_SECRET_ACCESS_KEY") {
		t.Errorf("without keys: error %v", err)
	}
}

func TestS3PrefixesAreStoresOfTheirOwn(t *testing.T) {
	t.Parallel()
	server := storetest.NewS3(t)
	stores := map[string]snapshot.Store{}
	for _, prefix := range []string{"", "a", "a/b/", "ab"} {
		store, err := snapshot.OpenStore(server.URL(prefix), storetest.Getenv)
		must(t, err)
		stores[prefix] = store
		must(t, store.WriteMarker(t.Context(), "of "+prefix))
		put(t, store, "companies/c", prefix)
	}
	for prefix, store := range stores {
		if got := read(t, store, "companies/c"); got != prefix {
			t.Errorf("prefix %q: read %q", prefix, got)
		}
		if id, err := store.Marker(t.Context()); err != nil || id != "of "+prefix {
			t.Errorf("prefix %q: marker %q, %v", prefix, id, err)
		}
	}
}

const childPutHalfToS3 = "put half an object to an S3 server"

func init() {
	childRoles[childPutHalfToS3] = func(args []string) (string, error) {
		store, err := snapshot.OpenTunedS3Store(args[0], storetest.Getenv, smallPart, time.Minute)
		if err != nil {
			return "", err
		}
		stuck := readerFunc(func([]byte) (int, error) {
			fmt.Println("half") // a part is sent before the next is read
			select {}
		})
		content := io.MultiReader(bytes.NewReader(generation(1)[:4*smallPart]), bufio.NewReader(stuck))
		return "", store.Put(context.Background(), someKey, content, digestOf(generation(1)))
	}
}

func TestKilledPutToS3LeavesTheOldObjectAndIsSwept(t *testing.T) {
	t.Parallel()
	server := storetest.NewS3(t, storetest.Behind(2*time.Hour)) // whatever it keeps was kept two hours ago
	store := openInParts(t, server)
	put(t, store, someKey, "old")
	child := startChild(t, childPutHalfToS3, server.URL(""))
	child.line(t)
	child.kill(t)
	if got := read(t, store, someKey); got != "old" {
		t.Errorf("the old object is now %d bytes", len(got))
	}
	requireSwept(t, store, 3*time.Hour, 0)
	requireSwept(t, store, time.Hour, 1)
	requireSwept(t, store, time.Hour, 0)
	if got := read(t, store, someKey); got != "old" {
		t.Errorf("after the sweep the old object is %d bytes", len(got))
	}
	put(t, store, someKey, string(generation(1)[:10*smallPart]))
}

func TestFailedPutsToS3LeaveNothingToSweep(t *testing.T) {
	t.Parallel()
	store := openInParts(t, storetest.NewS3(t))
	content := long("content")
	must(t, store.WriteMarker(t.Context(), "id"))
	if err := store.Put(t.Context(), someKey, strings.NewReader(content[1:]), digestOf([]byte(content))); err == nil {
		t.Error("a mismatch was accepted")
	}
	ctx, cancel := context.WithCancel(t.Context())
	broken := io.MultiReader(strings.NewReader(content[:3000]), readerFunc(func([]byte) (int, error) {
		cancel()
		return 0, ctx.Err()
	}))
	if err := store.Put(ctx, someKey, broken, digestOf([]byte(content))); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	requireSwept(t, store, -time.Hour, 0)
}
