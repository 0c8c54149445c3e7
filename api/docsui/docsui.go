// Package docsui serves the documentation page of the API from files inside the binary.
//
// The page is Stoplight Elements and reads /openapi.yaml from the server that served it. Nothing comes from
// another host, so it works in a closed network, and its Content-Security-Policy holds it to that.
//
// The files of Elements lie in assets, in a folder that carries their version; vendor.sh fetches another one.
package docsui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

//go:embed page.html assets
var embedded embed.FS

const (
	// pagePolicy lets the page load from and call its own origin, and nothing else. Elements adds style elements
	// while it renders, hence 'unsafe-inline' for styles; scripts have no such exception.
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
		"font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

	// forever suits the files of Elements: another version of them has another path.
	forever = "public, max-age=31536000, immutable"
	// checked lets a browser keep a copy that it asks about by ETag each time.
	checked = "no-cache"
)

// Handler answers GET and HEAD of /docs, /docs/ and the files below /docs/assets/; anything else below /docs is
// 404. It needs no principal and knows nothing of the API: the page finds the description at /openapi.yaml.
func Handler() http.Handler {
	mux := http.NewServeMux()
	err := fs.WalkDir(embedded, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		f := newFile(name, body)
		for _, pattern := range f.patterns() {
			mux.Handle("GET "+pattern, f)
		}
		return nil
	})
	if err != nil {
		panic(fmt.Sprintf("docsui: the embedded files cannot be read: %v", err)) // the compiler put them there
	}
	return mux
}

// file is one embedded file, as it is sent.
type file struct {
	name         string // its path among the embedded files, without .gz
	body         []byte
	gzipped      bool // body is compressed; only the large files are
	etag         string
	cacheControl string
}

func newFile(name string, body []byte) *file {
	sum := sha256.Sum256(body)
	f := &file{body: body, etag: `"` + hex.EncodeToString(sum[:16]) + `"`, cacheControl: checked}
	f.name, f.gzipped = strings.CutSuffix(name, ".gz")
	if strings.HasPrefix(name, "assets/elements-") {
		f.cacheControl = forever
	}
	return f
}

func (f *file) patterns() []string {
	if f.name == "page.html" {
		return []string{"/docs", "/docs/{$}"}
	}
	return []string{"/docs/" + f.name}
}

func (f *file) contentType() string {
	switch path.Ext(f.name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	default: // licences
		return "text/plain; charset=utf-8"
	}
}

// ServeHTTP sends the file as it lies, or unpacked to a client that refuses gzip.
func (f *file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.contentType())
	h.Set("Cache-Control", f.cacheControl)
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	if !f.gzipped {
		h.Set("ETag", f.etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
		return
	}

	h.Set("Vary", "Accept-Encoding")
	if takesGzip(r.Header) {
		h.Set("ETag", f.etag)
		h.Set("Content-Encoding", "gzip")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
		return
	}
	plain, err := gunzip(f.body)
	if err != nil {
		http.Error(w, "the file cannot be unpacked", http.StatusInternalServerError)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(plain))
}

// takesGzip tells whether the client says that it takes a gzip body. One that says nothing gets the plain bytes:
// it is likelier to be a script that stores what comes than one that looks at Content-Encoding.
func takesGzip(h http.Header) bool {
	for coding := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";q=")
		if strings.EqualFold(name, "gzip") {
			q, err := strconv.ParseFloat(weight, 64)
			return err != nil || q > 0
		}
	}
	return false
}

func gunzip(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
