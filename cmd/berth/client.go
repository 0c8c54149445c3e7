package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	client "berth/clients/go"
)

// defaultURL is where the service is unless somebody says otherwise.
const defaultURL = "http://127.0.0.1:8080"

// connectionFlags say which service a command speaks to, and as whom.
type connectionFlags struct {
	URL   string `name:"url" default:"http://127.0.0.1:8080" placeholder:"URL" group:"connection" help:"Where the service is; ${default} unless given."`
	Token string `placeholder:"SECRET" group:"connection" help:"The bearer token. Without it: the operator token in the service's data directory, for a service on this machine."`

	DataDir string `placeholder:"DIR" group:"connection" help:"That data directory; where berth serve looks for it unless given."`
}

// bearer is the token that was given, or else the operator token on file. That
// one is not sent to other machines: it is the key to this one's service.
func (c connectionFlags) bearer(host string) (string, error) {
	if c.Token != "" {
		return c.Token, nil
	}
	const wayOut = "give a token in BERTH_TOKEN, or the service's data directory in BERTH_DATA_DIR"
	if host != "localhost" && !net.ParseIP(host).IsLoopback() && c.DataDir == "" {
		return "", fmt.Errorf("no token for %s: %s", c.URL, wayOut)
	}
	var tried []string
	for _, dir := range c.dataDirs() {
		path := filepath.Join(dir, operatorTokenFile)
		secret, err := os.ReadFile(path)
		if err == nil {
			return string(bytes.TrimSpace(secret)), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("operator token: %w: %s", err, wayOut)
		}
		tried = append(tried, path)
	}
	return "", fmt.Errorf("no token, since there is no %s: %s", strings.Join(tried, " and no "), wayOut)
}

// dataDirs are the places where berth serve may have its data.
func (c connectionFlags) dataDirs() []string {
	if c.DataDir != "" {
		return []string{c.DataDir}
	}
	dirs := []string{defaultDataDir}
	// Anybody may make a directory of that name there; only our own counts.
	if info, err := os.Lstat(fallbackDataDir()); err == nil && isOwnDir(info) {
		dirs = append(dirs, fallbackDataDir())
	}
	return dirs
}

// endpoint is where the service is, and the token for it.
func (c connectionFlags) endpoint() (address, token string, err error) {
	where, err := url.Parse(c.URL)
	if err != nil || where.Scheme != "http" && where.Scheme != "https" || where.Host == "" {
		return "", "", usageError{fmt.Errorf("--url %q has to look like %s", c.URL, defaultURL)}
	}
	token, err = c.bearer(where.Hostname())
	return c.URL, token, err
}

// connect returns a client that sends the token with each request.
func (c connectionFlags) connect() (*client.Client, error) {
	address, token, err := c.endpoint()
	if err != nil {
		return nil, err
	}
	return client.NewClient(address,
		client.WithHTTPClient(&http.Client{Transport: transport()}),
		client.WithRequestEditorFn(func(_ context.Context, request *http.Request) error {
			request.Header.Set("Authorization", "Bearer "+token)
			return nil
		}))
}

// transport gives up on a service that does not answer, but never on one that is
// sending.
func transport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	t.ResponseHeaderTimeout = time.Minute
	return t
}

// answer is what the service said to a request: an object, and the JSON that it
// came as.
type answer[T any] struct {
	value T
	json  json.RawMessage
}

// maxAnswer is far more than any answer that is not a snapshot's content.
const maxAnswer = 64 << 20

// read takes what a method of the client returned. Whatever is not the object is
// an error: an apiError when the service refused.
func read[T any](response *http.Response, err error) (answer[T], error) {
	var a answer[T]
	if err != nil {
		return a, unreachable(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return a, fmt.Errorf("read the answer of %s: %w", response.Request.URL.Host, err)
	}
	if response.StatusCode >= 300 {
		return a, refusalOf(response, body)
	}
	if response.StatusCode == http.StatusNoContent {
		return a, nil
	}
	if err := json.Unmarshal(body, &a.value); err != nil {
		return a, fmt.Errorf("%s answered something that is not Berth's: %w; is BERTH_URL right?", response.Request.URL, err)
	}
	a.json = body
	return a, nil
}

func unreachable(err error) error {
	var dial *net.OpError
	var request *url.Error
	if errors.As(err, &dial) && dial.Op == "dial" && errors.As(err, &request) {
		where, _ := url.Parse(request.URL)
		return &nextStepError{
			error: fmt.Errorf("nothing answers at %s://%s (%w)", where.Scheme, where.Host, dial.Err),
			next:  "start the service with berth serve, or say where it is in BERTH_URL",
		}
	}
	return err
}

func refusalOf(response *http.Response, body []byte) error {
	var problem client.Problem
	if err := json.Unmarshal(body, &problem); err != nil || problem.Code == "" {
		return fmt.Errorf("%s answered %s, and not as Berth does: is BERTH_URL right?", response.Request.URL, response.Status)
	}
	return &apiError{Problem: problem}
}

// programName is how a person calls this program again: by its name, or by go
// run, whose binary is gone afterwards.
func programName() string {
	if strings.Contains(filepath.ToSlash(os.Args[0]), "/go-build") {
		return "go run ./cmd/berth"
	}
	return os.Args[0]
}
