package docsui_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"berth/api/docsui"
)

const script = "/docs/assets/elements-9.0.15/web-components.min.js"

func get(t *testing.T, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	docsui.Handler().ServeHTTP(w, r)
	res := w.Result()
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func body(t *testing.T, from io.Reader) []byte {
	t.Helper()
	b, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestThePageLoadsOnlyFilesThatAreServed(t *testing.T) {
	t.Parallel()
	res := get(t, "/docs")
	if got := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || got != "text/html; charset=utf-8" {
		t.Fatalf("/docs: %s, %s", res.Status, got)
	}
	page := string(body(t, res.Body))

	loaded := regexp.MustCompile(`<(?:script|link)[^>]* (?:src|href)="([^"]+)"`).FindAllStringSubmatch(page, -1)
	scripts := 0
	for _, match := range loaded {
		url := match[1]
		if strings.HasPrefix(url, "data:") {
			continue
		}
		if got := get(t, url).StatusCode; got != http.StatusOK {
			t.Errorf("the page loads %s, which answers %d", url, got)
		}
		if url == script {
			scripts++
		}
	}
	if scripts != 1 {
		t.Errorf("the page does not load %s", script)
	}
	if !strings.Contains(page, `apiDescriptionUrl="/openapi.yaml"`) {
		t.Error("the page does not read /openapi.yaml")
	}
}

func TestThePolicyAllowsNoOtherOrigin(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/docs", "/docs/", script} {
		policy := map[string]string{}
		for directive := range strings.SplitSeq(get(t, path).Header.Get("Content-Security-Policy"), ";") {
			name, sources, _ := strings.Cut(strings.TrimSpace(directive), " ")
			policy[name] = sources
			for source := range strings.FieldsSeq(sources) {
				switch source {
				case "'none'", "'self'", "'unsafe-inline'", "data:":
				default:
					t.Errorf("%s: %s allows %s", path, name, source)
				}
			}
		}
		for name, want := range map[string]string{
			"default-src": "'none'", "script-src": "'self'", "connect-src": "'self'", "frame-ancestors": "'none'",
		} {
			if policy[name] != want {
				t.Errorf("%s: %s is %q, want %q", path, name, policy[name], want)
			}
		}
	}
}

func TestACompressedFileArrivesWholeWhateverTheClientTakes(t *testing.T) {
	t.Parallel()
	packed := get(t, script, "Accept-Encoding", "br, gzip")
	if got := packed.Header.Get("Content-Encoding"); got != "gzip" {
		t.Fatalf("Content-Encoding is %q for a client that takes gzip", got)
	}
	unpacker, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := body(t, unpacker)
	if !bytes.Contains(want, []byte("elements-api")) {
		t.Error("the script does not define the element that the page uses")
	}

	for _, accepts := range []string{"", "identity", "br, gzip;q=0", "gzip; q=0.0"} {
		plain := get(t, script, "Accept-Encoding", accepts)
		if got := plain.Header.Get("Content-Encoding"); got != "" {
			t.Errorf("Accept-Encoding %q: sent as %s", accepts, got)
		}
		if !bytes.Equal(body(t, plain.Body), want) {
			t.Errorf("Accept-Encoding %q: not the same file", accepts)
		}
		if plain.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("Accept-Encoding %q: a shared cache would hand this to everyone", accepts)
		}
	}
}

func TestOnlyFilesWithAVersionInTheirPathAreKeptForever(t *testing.T) {
	t.Parallel()
	for path, immutable := range map[string]bool{
		script: true,
		"/docs/assets/elements-9.0.15/styles.min.css": true,
		"/docs":                 false,
		"/docs/assets/page.css": false,
	} {
		got := strings.Contains(get(t, path).Header.Get("Cache-Control"), "immutable")
		if got != immutable {
			t.Errorf("%s: immutable is %t, want %t", path, got, immutable)
		}
	}
}

func TestAPageThatDidNotChangeIsNotSentAgain(t *testing.T) {
	t.Parallel()
	etag := get(t, "/docs").Header.Get("ETag")
	res := get(t, "/docs", "If-None-Match", etag)
	if res.StatusCode != http.StatusNotModified {
		t.Errorf("asked with ETag %s: %s", etag, res.Status)
	}
}

func TestTheLicencesOfTheVendoredFilesAreServedBesideThem(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"LICENSE", "web-components.min.js.LICENSE.txt"} {
		res := get(t, "/docs/assets/elements-9.0.15/"+name)
		if got := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || got != "text/plain; charset=utf-8" {
			t.Errorf("%s: %s, %s", name, res.Status, got)
		}
	}
}

func TestNothingElseIsServed(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"/docs/assets/", "/docs/assets/elements-9.0.15/", "/docs/assets/nothing.js", "/docs/page.html", script + ".gz",
	} {
		if got := get(t, path).StatusCode; got != http.StatusNotFound {
			t.Errorf("%s answers %d", path, got)
		}
	}
}
