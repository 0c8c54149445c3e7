package snapshot_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/snapshot"
	"berth/snapshot/storetest"
)

func TestPutToS3SurvivesACutConnection(t *testing.T) {
	t.Parallel()
	content := string(generation(7)[:20*smallPart+5])
	for after := int64(500); after < 30_000; after += 2500 { // anywhere from the first request to the last part
		server := storetest.NewS3(t)
		store := openInParts(t, server)
		server.Wire.CutOnceAfter(after, storetest.ToServer)
		if err := store.Put(t.Context(), someKey, strings.NewReader(content), digestOf([]byte(content))); err != nil {
			t.Errorf("cut after %d bytes: %v", after, err)
			continue
		}
		if got := read(t, store, someKey); got != content {
			t.Errorf("cut after %d bytes: the object has %d bytes", after, len(got))
		}
		requireSwept(t, store, -time.Hour, 0)
	}
}

func TestPutToS3CutForGoodLeavesTheOldObject(t *testing.T) {
	t.Parallel()
	server := storetest.NewS3(t)
	store := openInParts(t, server)
	put(t, store, someKey, "old")
	content := long("content")
	half := io.MultiReader(strings.NewReader(content[:3000]), readerFunc(func([]byte) (int, error) {
		server.Wire.Cut()
		return 0, io.EOF
	}), strings.NewReader(content[3000:]))
	err := store.Put(t.Context(), someKey, half, digestOf([]byte(content)))
	if !errors.Is(err, snapshot.ErrStoreUnavailable) {
		t.Errorf("error %v, want ErrStoreUnavailable", err)
	}
	server.Wire.Mend()
	if got := read(t, store, someKey); got != "old" {
		t.Errorf("the old object has %d bytes", len(got))
	}
	requireSwept(t, store, -time.Hour, 1)
}

// The answer to the request that joins the parts is lost: the object is there, and the upload is not known any more.
func TestPutToS3WhoseLastAnswerIsLostSucceeds(t *testing.T) {
	t.Parallel()
	var lost atomic.Int32
	server := storetest.NewS3(t, storetest.Around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || !r.URL.Query().Has("uploadId") || lost.Add(1) > 1 {
				next.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(discarding{http.Header{}}, r)
			panic(http.ErrAbortHandler)
		})
	}))
	store := openInParts(t, server)
	put(t, store, someKey, long("content"))
	if got := read(t, store, someKey); got != long("content") || lost.Load() < 2 {
		t.Errorf("read %d bytes after %d tries to join", len(got), lost.Load())
	}
}

type discarding struct{ header http.Header }

func (d discarding) Header() http.Header         { return d.header }
func (d discarding) Write(p []byte) (int, error) { return len(p), nil }
func (d discarding) WriteHeader(int)             {}

func TestGetFromS3ThatIsCutIsAnErrorAndNotAShorterObject(t *testing.T) {
	t.Parallel()
	server := storetest.NewS3(t)
	store := openInParts(t, server)
	content := string(generation(9))
	must(t, store.Put(t.Context(), someKey, strings.NewReader(content[:900]), digestOf([]byte(content[:900]))))
	big, err := snapshot.OpenStore(server.URL(""), storetest.Getenv)
	must(t, err)
	put(t, big, someKey, content)
	for _, after := range []int64{2000, 400_000, 999_000} {
		server.Wire.CutOnceAfter(after, storetest.ToClient)
		reader, size, err := store.Open(t.Context(), someKey)
		must(t, err)
		got, err := io.ReadAll(reader)
		if err == nil || len(got) >= len(content) || size != int64(len(content)) {
			t.Errorf("cut after %d bytes: read %d of %d, error %v", after, len(got), size, err)
		}
		must(t, reader.Close())
	}
	if got := read(t, store, someKey); got != content {
		t.Errorf("afterwards: read %d bytes", len(got))
	}
}

func TestS3StoreThatStandsStillIsGivenUpAndTakenUpAgain(t *testing.T) {
	t.Parallel()
	server := storetest.NewS3(t)
	store := openInParts(t, server)
	content := string(generation(3))
	big, err := snapshot.OpenStore(server.URL(""), storetest.Getenv)
	must(t, err)
	put(t, big, someKey, content)
	server.Wire.Slow(20 * time.Millisecond) // so that most of the object is still to come
	reader, _, err := store.Open(t.Context(), someKey)
	must(t, err)
	server.Wire.Freeze()
	got, err := io.ReadAll(reader)
	if err == nil {
		t.Errorf("a download that stands still ended with %d bytes and no error", len(got))
	}
	must(t, reader.Close())
	if _, err := store.Stat(t.Context(), someKey); !errors.Is(err, snapshot.ErrStoreUnavailable) {
		t.Errorf("Stat: error %v, want ErrStoreUnavailable", err)
	}
	server.Wire.Mend()
	if got := read(t, store, someKey); got != content {
		t.Errorf("afterwards: read %d bytes", len(got))
	}
}

// A slow store is not one that stands still: each transfer takes longer than the patience with a connection, and moves.
func TestSlowTransfersToAndFromS3Finish(t *testing.T) {
	t.Parallel()
	const patience = time.Second
	server := storetest.NewS3(t)
	store, err := snapshot.OpenTunedS3Store(server.URL(""), storetest.Getenv, 64<<10, patience)
	must(t, err)
	content := string(generation(5))
	server.Wire.Slow(8 * time.Millisecond)
	began := time.Now()
	put(t, store, someKey, content)
	uploaded := time.Now()
	if got := read(t, store, someKey); got != content {
		t.Errorf("read %d bytes", len(got))
	}
	for what, took := range map[string]time.Duration{"upload": uploaded.Sub(began), "download": time.Since(uploaded)} {
		if took < patience {
			t.Errorf("the %s took %s, which shows nothing", what, took)
		}
	}
}

// While a request is sent, its connection waits for the answer. That wait must not end because the request takes long.
func TestWritingKeepsTheReadThatWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	const patience = time.Second
	near, far := net.Pipe()
	defer far.Close()
	go io.Copy(io.Discard, far) //nolint:errcheck // ends with the pipe
	conn := snapshot.NewImpatientConn(near, patience)
	defer conn.Close()
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		answered <- err
	}()
	steady := time.NewTicker(20 * time.Millisecond)
	defer steady.Stop()
	for began := time.Now(); time.Since(began) < 2*patience; <-steady.C {
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-answered:
			t.Fatalf("after %s of writing the read ended: %v", time.Since(began), err)
		default:
		}
	}
	if err := <-answered; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("once nothing moves the read ends with %v", err)
	}
}

func TestPutToS3HoldsOnePartInMemory(t *testing.T) { // alone: it measures the whole process
	store, err := snapshot.OpenStore(storetest.NewS3(t, storetest.Around(unless(swallowParts))).URL(""), storetest.Getenv)
	must(t, err)
	const size = 160 << 20
	hash := sha256.New()
	_, err = io.Copy(hash, io.LimitReader(zeros, size))
	must(t, err)
	digest := snapshot.Digest{Size: size, SHA256: hex.EncodeToString(hash.Sum(nil))}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must(t, store.Put(t.Context(), someKey, io.LimitReader(zeros, size), digest))
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 40<<20 {
		t.Errorf("a Put of %d MiB allocated %d MiB in all", size>>20, grown>>20)
	}
}

var zeros = readerFunc(func(p []byte) (int, error) {
	clear(p)
	return len(p), nil
})

// swallowParts answers an upload in parts and keeps nothing of it.
func swallowParts(w http.ResponseWriter, r *http.Request) bool {
	switch query := r.URL.Query(); {
	case query.Has("uploads"):
		fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>")
	case query.Has("partNumber"):
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil || n != r.ContentLength {
			storetest.Refuse(w, http.StatusBadRequest, "IncompleteBody")
			return true
		}
		w.Header().Set("ETag", `"x"`)
	case query.Has("uploadId"):
		fmt.Fprint(w, "<CompleteMultipartUploadResult><Bucket>b</Bucket><Key>k</Key></CompleteMultipartUploadResult>")
	default:
		return false
	}
	return true
}
