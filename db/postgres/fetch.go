package postgres

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/ulikunitz/xz"
)

// The programs come from the Maven artifacts that the embedded-postgres
// projects for Java and Go use: a jar for each platform and version, with one
// xz-compressed tar of bin, lib and share in it, and a file of its SHA-256
// beside it.
const (
	publicRepository = "https://repo1.maven.org/maven2"
	fetchMajor       = 17

	// Both bounds are several times what the artifacts measure.
	maxJarSize      = 200 << 20
	maxUnpackedSize = 1 << 30
	fetchTimeout    = 5 * time.Minute
)

// fetchable are the published versions that Berth fetches, by major version.
var fetchable = map[int]string{
	15: "15.13.0",
	16: "16.9.0",
	17: "17.5.0",
	18: "18.3.0",
}

// fetcher downloads Postgres programs into a cache.
type fetcher struct {
	repository string // address of a Maven repository
	cache      string
	client     *http.Client
}

// fetched downloads the programs that the search wants, unless they are in the
// cache, and looks at them.
func (s search) fetched(ctx context.Context) (binaries, error) {
	f := s.fetch
	if f == nil {
		f = &fetcher{
			repository: cmp.Or(os.Getenv("BERTH_POSTGRES_REPOSITORY"), publicRepository),
			cache:      cacheDir(),
			client:     &http.Client{Timeout: fetchTimeout},
		}
	}
	major := cmp.Or(s.major, fetchMajor)
	version, known := fetchable[major]
	if !known {
		return binaries{}, fmt.Errorf("version %d of Postgres is not among the versions that can be fetched", major)
	}
	s.log.Info("fetching Postgres", "version", version, "from", f.repository, "into", f.cache)
	dir, err := f.fetch(ctx, version, platform())
	if err != nil {
		return binaries{}, err
	}
	b, err := s.inspect(ctx, filepath.Join(dir, "bin"))
	if err != nil {
		return binaries{}, err
	}
	return b, s.fits(b)
}

// fetch puts one version into the cache and returns its folder. The folder
// appears under its name when it is complete; of several programs that fetch
// at once the first one's stays.
func (f *fetcher) fetch(ctx context.Context, version, platform string) (string, error) {
	target := filepath.Join(f.cache, version)
	if _, err := os.Stat(filepath.Join(target, "bin", "postgres")); err == nil {
		return target, nil
	}
	if f.cache == "" {
		return "", errors.New("there is no folder to keep Postgres in, since this user has no home: set HOME")
	}
	if err := os.MkdirAll(f.cache, 0o755); err != nil {
		return "", err
	}
	scratch, err := os.MkdirTemp(f.cache, ".fetch-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch) //nolint:errcheck // it is a leftover in a cache

	artifact := "embedded-postgres-binaries-" + platform
	address := fmt.Sprintf("%s/io/zonky/test/postgres/%s/%s/%s-%s.jar",
		strings.TrimRight(f.repository, "/"), artifact, version, artifact, version)
	jar := filepath.Join(scratch, "postgres.jar")
	if err := f.download(ctx, address, jar); err != nil {
		return "", err
	}
	unpacked := filepath.Join(scratch, "unpacked")
	if err := unpackJar(jar, unpacked); err != nil {
		return "", fmt.Errorf("unpack %s: %w", address, err)
	}
	if err := openToAll(unpacked); err != nil {
		return "", err
	}
	if err := os.Rename(unpacked, target); err != nil {
		if _, other := os.Stat(filepath.Join(target, "bin", "postgres")); other == nil {
			return target, nil
		}
		return "", err
	}
	return target, nil
}

// download writes the artifact to path and compares it with the SHA-256 that
// the repository publishes. Without that file nothing is accepted.
func (f *fetcher) download(ctx context.Context, address, path string) error {
	published, err := f.get(ctx, address+".sha256", func(body io.Reader) (string, error) {
		text, err := io.ReadAll(io.LimitReader(body, 1024))
		if err != nil {
			return "", err
		}
		fields := strings.Fields(string(text))
		if len(fields) == 0 || len(fields[0]) != hex.EncodedLen(sha256.Size) {
			return "", errors.New("it holds no SHA-256")
		}
		return strings.ToLower(fields[0]), nil
	})
	if err != nil {
		return err
	}
	received, err := f.get(ctx, address, func(body io.Reader) (string, error) {
		out, err := os.Create(path)
		if err != nil {
			return "", err
		}
		defer out.Close() //nolint:errcheck // the hash and the unpacking show what is missing
		sum := sha256.New()
		n, err := io.Copy(io.MultiWriter(out, sum), io.LimitReader(body, maxJarSize+1))
		if err != nil {
			return "", err
		}
		if n > maxJarSize {
			return "", fmt.Errorf("it is larger than %d MiB", maxJarSize>>20)
		}
		return hex.EncodeToString(sum.Sum(nil)), out.Close()
	})
	if err != nil {
		return err
	}
	if received != published {
		return fmt.Errorf("fetch %s: its SHA-256 is %s and not the published %s", address, received, published)
	}
	return nil
}

func (f *fetcher) get(ctx context.Context, address string, read func(io.Reader) (string, error)) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	response, err := f.client.Do(request)
	if err != nil {
		return "", err // it names the address
	}
	defer response.Body.Close() //nolint:errcheck // read to the end or given up
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("fetch %s: the server answered %s", address, response.Status)
	}
	result, err := read(response.Body)
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", address, err)
	}
	return result, nil
}

// unpackJar unpacks the one tar.xz in a jar into dir.
func unpackJar(jar, dir string) error {
	archive, err := zip.OpenReader(jar)
	if err != nil {
		return err
	}
	defer archive.Close() //nolint:errcheck // opened for reading
	for _, file := range archive.File {
		if !strings.HasSuffix(file.Name, ".txz") {
			continue
		}
		content, err := file.Open()
		if err != nil {
			return err
		}
		defer content.Close() //nolint:errcheck // opened for reading
		plain, err := xz.NewReader(content)
		if err != nil {
			return fmt.Errorf("%s: %w", file.Name, err)
		}
		if err := unpackTar(io.LimitReader(plain, maxUnpackedSize), dir); err != nil {
			return fmt.Errorf("%s: %w", file.Name, err)
		}
		return nil
	}
	return errors.New("there is no .txz in it")
}

// unpackTar unpacks into dir. os.Root keeps every entry inside it, whatever
// the names and links in the archive say.
func unpackTar(r io.Reader, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is buffered in it
	entries := tar.NewReader(r)
	for {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpackEntry(root, entry, entries); err != nil {
			return fmt.Errorf("entry %q: %w", entry.Name, err)
		}
	}
}

func unpackEntry(root *os.Root, entry *tar.Header, content io.Reader) error {
	name := filepath.Clean(entry.Name)
	if name == "." {
		return nil
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch entry.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		return root.Symlink(entry.Linkname, name)
	case tar.TypeReg:
		mode := os.FileMode(0o644)
		if entry.FileInfo().Mode()&0o100 != 0 {
			mode = 0o755
		}
		out, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		if _, err := io.Copy(out, content); err != nil {
			_ = out.Close()
			return err
		}
		return out.Close()
	}
	return fmt.Errorf("neither a file, a folder nor a link")
}

// openToAll lets everybody read the programs, whatever the umask was: root's
// server runs as another user.
func openToAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		switch {
		case info.IsDir() || info.Mode().IsRegular() && info.Mode()&0o100 != 0:
			return os.Chmod(path, 0o755)
		case info.Mode().IsRegular():
			return os.Chmod(path, 0o644)
		}
		return nil
	})
}

// platform is the artifact's name for this machine.
func platform() string {
	arch := runtime.GOARCH
	switch arch {
	case "arm64":
		arch = "arm64v8"
	case "arm":
		arch = "arm32v7"
	case "386":
		arch = "i386"
	}
	if _, err := os.Stat("/etc/alpine-release"); err == nil && runtime.GOOS == "linux" {
		arch += "-alpine"
	}
	return runtime.GOOS + "-" + arch
}

// cacheDir is where fetched programs are kept, "" when this user has no folder
// of its own. Root's has to be open to the user that root's server runs as,
// which the folders below /root are not.
func cacheDir() string {
	if os.Geteuid() == 0 {
		return "/var/cache/berth/postgres"
	}
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "berth", "postgres")
	}
	// No HOME in the environment: ask the user database.
	if u, err := user.Current(); err == nil && u.HomeDir != "" {
		return filepath.Join(u.HomeDir, ".cache", "berth", "postgres")
	}
	// Not a shared folder such as /tmp: others could put their programs there.
	return ""
}
