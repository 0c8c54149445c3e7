package provider

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The headers of the webhook protocol. docs/providers.md describes it.
const (
	TimestampHeader = "Berth-Timestamp" // seconds since 1970
	NonceHeader     = "Berth-Nonce"     // new for each request
	SignatureHeader = "Berth-Signature" // "v1=" and the HMAC-SHA256 in hex
)

// Webhook is a provider of somebody else's behind three HTTP calls. Requests and answers are signed with a shared secret:
// an answer that is not, from a proxy, a captive portal or an old recording, proves nothing.
type Webhook struct {
	base   *url.URL
	secret []byte
	client *http.Client
	now    func() time.Time
	nonce  func() string
}

var _ Provider = (*Webhook)(nil)

func newWebhook(base *url.URL, secret string, client *http.Client) *Webhook {
	return &Webhook{
		base: base, secret: []byte(secret), client: client, now: time.Now,
		nonce: rand.Text, // 128 bits: an answer to another request does not fit
	}
}

// State implements Provider.
func (w *Webhook) State(ctx context.Context, id string) (Answer, error) {
	return w.call(ctx, "state", id)
}

// Stop implements Provider.
func (w *Webhook) Stop(ctx context.Context, id string) (Answer, error) {
	return w.call(ctx, "stop", id)
}

// Destroy implements Provider.
func (w *Webhook) Destroy(ctx context.Context, id string) (Answer, error) {
	return w.call(ctx, "destroy", id)
}

// WebhookRequest is the body of a call.
type WebhookRequest struct {
	ID string `json:"id"`
}

// WebhookAnswer is the body of an answer with status 200. Word is the provider's own, for people.
type WebhookAnswer struct {
	ID    string `json:"id"`
	State State  `json:"state"`
	Word  string `json:"word,omitempty"`
}

// WebhookError is the body of every other answer. Code not_found, with status 404, says that the provider knows no
// machine of that id; all others are failures that pass.
type WebhookError struct {
	Code string `json:"error"`
}

func (w *Webhook) call(ctx context.Context, verb, id string) (Answer, error) {
	body, err := json.Marshal(WebhookRequest{ID: id})
	if err != nil {
		return Answer{}, &Error{Kind: KindMisconfigured, Cause: err}
	}
	target := w.base.JoinPath(verb)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return Answer{}, &Error{Kind: KindMisconfigured, Cause: err}
	}
	stamp, nonce := strconv.FormatInt(w.now().Unix(), 10), w.nonce()
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(TimestampHeader, stamp)
	request.Header.Set(NonceHeader, nonce)
	request.Header.Set(SignatureHeader, SignWebhookRequest(w.secret, target.EscapedPath(), stamp, nonce, body))
	status, header, answer, err := exchange(w.client, request, answerBytes)
	if err != nil {
		return Answer{}, err
	}
	if !hmac.Equal([]byte(header.Get(SignatureHeader)), []byte(SignWebhookAnswer(w.secret, status, nonce, answer))) {
		return Answer{}, &Error{Kind: KindMalformed, Cause: errors.New("the answer is not signed, or not with this secret")}
	}
	return readWebhookAnswer(status, answer)
}

func readWebhookAnswer(status int, body []byte) (Answer, error) {
	if status != http.StatusOK {
		var refused WebhookError
		kind := KindRefused
		switch {
		case status == http.StatusUnauthorized || status == http.StatusForbidden:
			kind = KindUnauthorized
		case status == http.StatusNotFound && json.Unmarshal(body, &refused) == nil && refused.Code == "not_found":
			kind = KindNotFound
		}
		return Answer{}, &Error{Kind: kind, Cause: fmt.Errorf("the provider answered with status %d", status)}
	}
	var said WebhookAnswer
	if err := decodeAnswer(body, &said); err != nil {
		return Answer{}, err
	}
	answer := Answer{ID: said.ID, State: StateUnknown, Word: said.Word}
	switch said.State {
	case StateRunning, StateStopped, StateDestroyed:
		answer.State = said.State
	}
	if answer.Word == "" {
		answer.Word = string(said.State)
	}
	return answer, nil
}

// SignWebhookRequest is the signature of a request: over the version, the method, the path, the time, the nonce and the
// hash of the body, a line each.
func SignWebhookRequest(secret []byte, path, timestamp, nonce string, body []byte) string {
	return signLines(secret, "v1", http.MethodPost, path, timestamp, nonce, hexSHA256(body))
}

// SignWebhookAnswer is the signature of an answer: over the version, its status, the nonce of the request that it
// answers and the hash of the body, a line each.
func SignWebhookAnswer(secret []byte, status int, nonce string, body []byte) string {
	return signLines(secret, "v1", strconv.Itoa(status), nonce, hexSHA256(body))
}

func signLines(secret []byte, lines ...string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(strings.Join(lines, "\n")))
	return "v1=" + hex.EncodeToString(mac.Sum(nil))
}

func hexSHA256(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
