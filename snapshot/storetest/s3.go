// Package storetest runs an S3 server in the test's own process, behind a wire that can be cut.
package storetest

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// Bucket is the one that each server has.
const Bucket = "snapshots"

// Keys that every server takes, and it takes no others.
const (
	AccessKeyID     = "storetest-key"
	SecretAccessKey = "storetest-secret"
)

// S3 is a server with one empty bucket, in memory.
type S3 struct {
	// Wire is what clients are connected by.
	Wire *Wire
}

// Option changes how a server answers.
type Option func(*options)

type options struct {
	around []func(http.Handler) http.Handler
	clock  gofakes3.TimeSource
}

// Around lets something stand between the clients and the server: to change a request, or to answer it.
func Around(middleware func(http.Handler) http.Handler) Option {
	return func(o *options) { o.around = append(o.around, middleware) }
}

// Behind sets the server's clock back.
func Behind(by time.Duration) Option {
	return func(o *options) { o.clock = behind{gofakes3.DefaultTimeSource(), by} }
}

type behind struct {
	gofakes3.TimeSource
	by time.Duration
}

func (b behind) Now() time.Time { return b.TimeSource.Now().Add(-b.by) }

// NewS3 starts a server, which ends with the test.
func NewS3(tb testing.TB, given ...Option) *S3 {
	tb.Helper()
	o := options{clock: gofakes3.DefaultTimeSource()}
	for _, option := range given {
		option(&o)
	}
	backend := s3mem.New(s3mem.WithTimeSource(o.clock))
	if err := backend.CreateBucket(Bucket); err != nil {
		tb.Fatal(err)
	}
	handler := gofakes3.New(backend, gofakes3.WithTimeSource(o.clock), gofakes3.WithTimeSkewLimit(0)).Server()
	handler = known(handler)
	for _, middleware := range o.around {
		handler = middleware(handler)
	}
	server := httptest.NewServer(handler)
	tb.Cleanup(server.Close)
	return &S3{Wire: newWire(tb, strings.TrimPrefix(server.URL, "http://"))}
}

// known refuses requests that are not signed with the key.
func known(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential="+AccessKeyID+"/") {
			Refuse(w, http.StatusForbidden, "InvalidAccessKeyId")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Refuse answers as an S3 server does that refuses with the code.
func Refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = w.Write([]byte("<Error><Code>" + code + "</Code><Message>refused by the test</Message></Error>"))
}

// URL names the store below the prefix, as BERTH_SNAPSHOT_URL does.
func (s *S3) URL(prefix string) string {
	parameters := url.Values{"endpoint": {"http://" + s.Wire.Address()}, "region": {"test-1"}, "pathStyle": {"true"}}
	return "s3://" + Bucket + "/" + prefix + "?" + parameters.Encode()
}

// Environment has the keys, as assignments.
func Environment() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + SecretAccessKey}
}

// Getenv looks up nothing but the keys.
func Getenv(name string) string {
	for _, assignment := range Environment() {
		if value, found := strings.CutPrefix(assignment, name+"="); found {
			return value
		}
	}
	return ""
}
