package postgres

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"
)

var quiet = slog.New(slog.DiscardHandler)

// here are the programs that this machine has.
func here(t *testing.T) binaries {
	t.Helper()
	b, err := findBinaries(t.Context(), search{account: self(t), log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func self(t *testing.T) account {
	t.Helper()
	a, err := accountFor("/does-not-exist")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// openDir is a folder that any user may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "berth-binaries-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// fakeBinaries is a folder with programs that only tell a version.
func fakeBinaries(t *testing.T, version string) string {
	t.Helper()
	dir := openDir(t)
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + " (some build)'\n"
	for _, program := range []string{"postgres", "initdb"} {
		if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func noFetch(t *testing.T) *fetcher {
	t.Helper()
	gone := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(gone.Close)
	return &fetcher{repository: gone.URL, cache: t.TempDir(), client: gone.Client()}
}

func TestTheClustersMajorVersionDecidesWhichProgramsAreTaken(t *testing.T) {
	t.Parallel()
	clientOnly := openDir(t) // what pg_config names when only the client library is there
	old, middle, newest := fakeBinaries(t, "14.2"), fakeBinaries(t, "16.9"), fakeBinaries(t, "18beta1")
	s := search{account: self(t), log: quiet, places: []string{clientOnly, "/does-not-exist", old, newest, middle}, fetch: noFetch(t)}
	for major, want := range map[int]string{0: newest, 16: middle, 18: newest} {
		s.major = major
		b, err := findBinaries(t.Context(), s)
		if err != nil || b.dir != want {
			t.Errorf("for a cluster of %d: got %s, %v, want %s", major, b.dir, err, want)
		}
	}
	s.major = 13
	if _, err := findBinaries(t.Context(), s); !errors.As(err, new(*VersionError)) {
		t.Errorf("for a cluster of 13: got %v, want a VersionError", err)
	}
	s.major, s.places = 0, []string{old}
	if _, err := findBinaries(t.Context(), s); err == nil || !strings.Contains(err.Error(), "15 or newer") {
		t.Errorf("for programs that are too old: got %v", err)
	}
}

func TestANamedFolderIsTakenOrRefusedButNeverReplaced(t *testing.T) {
	t.Parallel()
	good := fakeBinaries(t, "17.5")
	s := search{account: self(t), log: quiet, places: []string{good}, fetch: noFetch(t)}
	s.explicit = openDir(t)
	if _, err := findBinaries(t.Context(), s); err == nil || !strings.Contains(err.Error(), s.explicit) {
		t.Errorf("got %v, want the empty folder refused by name", err)
	}
	s.explicit, s.places = good, nil
	if b, err := findBinaries(t.Context(), s); err != nil || b.dir != good || b.version != "17.5" {
		t.Errorf("got %+v, %v", b, err)
	}
}

func TestWithoutProgramsTheErrorHasTheCommandsThatInstallThem(t *testing.T) {
	t.Parallel()
	s := search{account: self(t), log: quiet, places: []string{}, fetch: noFetch(t)}
	_, err := findBinaries(t.Context(), s)
	if err == nil {
		t.Fatal("found programs in no place")
	}
	for _, want := range []string{"404", "install postgresql", "npm install --prefix", "BERTH_POSTGRES_BINDIR"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not mention %q", err, want)
		}
	}
}

func TestNewerVersionsAreTriedFirst(t *testing.T) {
	t.Parallel()
	got := newestFirst([]string{"/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/17/bin"})
	want := []string{"/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/9.6/bin"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// repository is a stand-in for the public one. Its artifact starts the programs
// of this machine, so that what was fetched really runs.
type repository struct {
	*httptest.Server
	jar, sum []byte
	requests []string
}

func newRepository(t *testing.T, entries []tar.Header, contents map[string]string) *repository {
	t.Helper()
	var packed bytes.Buffer
	compressor, err := xz.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewWriter(compressor)
	for _, entry := range entries {
		entry.Size = int64(len(contents[entry.Name]))
		if err := archive.WriteHeader(&entry); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(archive, contents[entry.Name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), compressor.Close()); err != nil {
		t.Fatal(err)
	}
	var jar bytes.Buffer
	zipped := zip.NewWriter(&jar)
	for name, content := range map[string][]byte{"META-INF/MANIFEST.MF": nil, "postgres-linux-x86_64.txz": packed.Bytes()} {
		file, err := zipped.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(jar.Bytes())
	r := &repository{jar: jar.Bytes(), sum: []byte(hex.EncodeToString(sum[:]))}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.requests = append(r.requests, request.URL.Path)
		switch {
		case strings.HasSuffix(request.URL.Path, ".jar"):
			_, _ = w.Write(r.jar)
		case r.sum != nil && strings.HasSuffix(request.URL.Path, ".jar.sha256"):
			_, _ = w.Write(r.sum)
		default:
			http.NotFound(w, request)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *repository) fetcher(cache string) *fetcher {
	return &fetcher{repository: r.URL, cache: cache, client: r.Client()}
}

// programs is an artifact as the public ones are laid out.
func programs(t *testing.T) *repository {
	t.Helper()
	real := here(t).dir
	contents := map[string]string{}
	entries := []tar.Header{{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755}}
	for _, program := range []string{"postgres", "initdb"} {
		name := "bin/" + program
		contents[name] = fmt.Sprintf("#!/bin/sh\nexec '%s/%s' \"$@\"\n", real, program)
		entries = append(entries, tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755})
	}
	contents["lib/libpq.so.5.17"] = "library"
	entries = append(entries,
		tar.Header{Name: "lib/libpq.so.5.17", Typeflag: tar.TypeReg, Mode: 0o644},
		tar.Header{Name: "lib/libpq.so.5", Typeflag: tar.TypeSymlink, Linkname: "libpq.so.5.17"})
	return newRepository(t, entries, contents)
}

func TestProgramsAreFetchedOnceAndRun(t *testing.T) {
	t.Parallel()
	repo := programs(t)
	dir := openDir(t)
	s := search{account: self(t), log: quiet, places: []string{}, major: here(t).major, fetch: repo.fetcher(filepath.Join(dir, "cache"))}
	b, err := findBinaries(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	artifact := "/io/zonky/test/postgres/embedded-postgres-binaries-" + platform() + "/" + fetchable[s.major]
	if !strings.HasPrefix(repo.requests[0], artifact) {
		t.Errorf("asked for %s, want something in %s", repo.requests[0], artifact)
	}
	if library, err := os.ReadFile(filepath.Join(b.dir, "..", "lib", "libpq.so.5")); err != nil || string(library) != "library" {
		t.Errorf("links are not unpacked: %q %v", library, err)
	}
	server, err := Start(t.Context(), Config{Dir: filepath.Join(dir, "pg"), BinDir: b.dir, Ephemeral: true, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
	asked := len(repo.requests)
	if again, err := findBinaries(t.Context(), s); err != nil || again != b || len(repo.requests) != asked {
		t.Errorf("the second search: %+v, %v, %d requests", again, err, len(repo.requests)-asked)
	}
}

func TestWhatIsNotWhatWasPublishedIsNotUnpacked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*repository){
		"a changed artifact":   func(r *repository) { r.jar = append(bytes.Clone(r.jar), 0) },
		"another sum":          func(r *repository) { r.sum = []byte(strings.Repeat("0", 64)) },
		"no sum at all":        func(r *repository) { r.sum = nil },
		"a page in its place":  func(r *repository) { r.sum = []byte("<html>please log in</html>") },
		"a sum of other bytes": func(r *repository) { r.jar = []byte("not a jar") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := programs(t)
			change(repo)
			cache := filepath.Join(t.TempDir(), "cache")
			if dir, err := repo.fetcher(cache).fetch(t.Context(), "15.13.0", platform()); err == nil {
				t.Fatalf("took it into %s", dir)
			}
			if left, err := os.ReadDir(cache); err != nil || len(left) > 0 {
				t.Errorf("left %v in the cache, %v", left, err)
			}
		})
	}
}

func TestAnArchiveCannotWriteOutsideItsFolder(t *testing.T) {
	t.Parallel()
	for name, entries := range map[string][]tar.Header{
		"by dots":   {{Name: "../outside", Typeflag: tar.TypeReg, Mode: 0o644}},
		"by a link": {{Name: "lib", Typeflag: tar.TypeSymlink, Linkname: "../.."}, {Name: "lib/outside", Typeflag: tar.TypeReg, Mode: 0o644}},
		"by root":   {{Name: "/outside", Typeflag: tar.TypeReg, Mode: 0o644}},
		"a device":  {{Name: "outside", Typeflag: tar.TypeChar}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := newRepository(t, entries, nil)
			base := t.TempDir()
			if dir, err := repo.fetcher(filepath.Join(base, "cache")).fetch(t.Context(), "15.13.0", platform()); err == nil {
				t.Errorf("unpacked it into %s", dir)
			}
			found, err := filepath.Glob(filepath.Join(base, "*", "outside"))
			if err != nil || len(found) > 0 {
				t.Errorf("wrote %q, %v", found, err)
			}
		})
	}
}

func TestAFetchThatIsGivenUpLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		cancel()
		<-r.Context().Done()
	}))
	defer slow.Close()
	cache := filepath.Join(t.TempDir(), "cache")
	f := &fetcher{repository: slow.URL, cache: cache, client: slow.Client()}
	if _, err := f.fetch(ctx, "15.13.0", platform()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(cache); err != nil || len(left) > 0 {
		t.Errorf("left %v in the cache, %v", left, err)
	}
}
