package provider

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

const (
	// answerTime bounds one call. Stopping a machine may take a provider longer: it answers that it began.
	answerTime = 20 * time.Second

	// answerBytes bounds what a provider answers.
	answerBytes = 64 << 10
)

// newHTTPClient is how providers are called: with a time limit, and without following a redirect, which would carry the
// credentials elsewhere.
func newHTTPClient() *http.Client {
	return &http.Client{
		Timeout:       answerTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// exchange makes a call and reads the answer whole, if it is no longer than so many bytes.
func exchange(client *http.Client, request *http.Request, atMost int64) (status int, header http.Header, body []byte, err error) {
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, nil, &Error{Kind: kindOfTransport(err), Cause: err}
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, atMost+1))
	if err != nil {
		return 0, nil, nil, &Error{Kind: kindOfTransport(err), Cause: err}
	}
	if int64(len(body)) > atMost {
		return 0, nil, nil, &Error{Kind: KindMalformed, Cause: fmt.Errorf("the answer is longer than %d bytes", atMost)}
	}
	return response.StatusCode, response.Header, body, nil
}

func kindOfTransport(err error) Kind {
	var network net.Error
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return KindTimeout
	case errors.As(err, &certificate):
		return KindUnauthorized
	default:
		return KindUnreachable
	}
}

// checkURL refuses what a provider must not be called by: plain HTTP, but on this host.
func checkURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return nil, errors.New("is not a URL") // the parser's error would repeat it
	case u.User != nil:
		return nil, errors.New("holds credentials: name an environment variable for them")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("has a query or a fragment")
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
		return u, nil
	case u.Scheme == "http":
		return nil, errors.New("is plain HTTP, which is for this host alone: use https")
	default:
		return nil, errors.New("is neither https nor http")
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// decodeAnswer reads a JSON object; it says nothing of what was in one that does not read.
func decodeAnswer(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return &Error{Kind: KindMalformed, Cause: err}
	}
	return nil
}
