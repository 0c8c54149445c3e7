package authority

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"berth/db/dbtest"
)

func TestARunTokenIsItsRunForADay(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	run := Run{ID: uuid.New(), CompanyID: uuid.New(), AgentID: uuid.New()}
	before := time.Now().Truncate(time.Second)
	token, expiresAt, err := d.signRunToken(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	by := must(d.Authenticate(t.Context(), token))(t)
	if by.TokenIssuedAt.Before(before) || by.TokenIssuedAt.After(time.Now()) {
		t.Errorf("it was issued at %v, not now", by.TokenIssuedAt)
	}
	want := Principal{
		Role: RoleRun, CompanyID: run.CompanyID, AgentID: run.AgentID, RunID: run.ID,
		TokenIssuedAt: by.TokenIssuedAt, TokenExpiresAt: by.TokenIssuedAt.Add(24 * time.Hour),
	}
	if by != want || !expiresAt.Equal(want.TokenExpiresAt) {
		t.Errorf("the token is %+v until %v, want %+v", by, expiresAt, want)
	}
}

func TestARunTokenCostsNoRoundTripOnceItsKeyIsAtHand(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	token, _, err := d.signRunToken(t.Context(), Run{ID: uuid.New(), CompanyID: uuid.New(), AgentID: uuid.New()})
	if err != nil {
		t.Fatal(err)
	}
	without := d.server()
	must(without.Authenticate(t.Context(), token))(t)
	d.database.Pool.Close()
	must(without.Authenticate(t.Context(), token))(t)
}

func TestADatabaseOutOfReachIsNoBadToken(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	token, _, err := d.signRunToken(t.Context(), Run{ID: uuid.New(), CompanyID: uuid.New(), AgentID: uuid.New()})
	if err != nil {
		t.Fatal(err)
	}
	cold := d.server()
	d.database.Pool.Close()
	for what, bearer := range map[string]string{"run token": token, "secret": GenerateSecret()} {
		if _, err := cold.Authenticate(t.Context(), bearer); err == nil || errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: %v, want an error of the database", what, err)
		}
	}
}

// forgery is a run token that somebody else put together.
type forgery struct {
	method jwt.SigningMethod
	key    any
	kid    any
	claims jwt.MapClaims
}

func (f forgery) token(t *testing.T) string {
	t.Helper()
	unsigned := jwt.NewWithClaims(f.method, f.claims)
	if f.kid != nil {
		unsigned.Header["kid"] = f.kid
	}
	token, err := unsigned.SignedString(f.key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestForgedAndExpiredRunTokensAreNobodys(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	key := must(d.signingKey(t.Context()))(t)
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	claims := func(change func(c jwt.MapClaims)) jwt.MapClaims {
		c := jwt.MapClaims{
			"companyId": uuid.NewString(), "agentId": uuid.NewString(), "runId": uuid.NewString(),
			"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
		}
		change(c)
		return c
	}
	same := func(jwt.MapClaims) {}
	good := forgery{jwt.SigningMethodEdDSA, key.private, key.id.String(), claims(same)}
	if _, err := d.Authenticate(t.Context(), good.token(t)); err != nil {
		t.Fatalf("the token that the forgeries differ from: %v", err)
	}
	for what, f := range map[string]forgery{
		"no signature":          {jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, key.id.String(), claims(same)},
		"the public key's HMAC": {jwt.SigningMethodHS256, []byte(key.private.Public().(ed25519.PublicKey)), key.id.String(), claims(same)},
		"another key, our kid":  {jwt.SigningMethodEdDSA, stranger, key.id.String(), claims(same)},
		"another kid":           {jwt.SigningMethodEdDSA, key.private, uuid.NewString(), claims(same)},
		"a kid that is no id":   {jwt.SigningMethodEdDSA, key.private, "../../key", claims(same)},
		"a kid that is no text": {jwt.SigningMethodEdDSA, key.private, 7, claims(same)},
		"no kid":                {jwt.SigningMethodEdDSA, key.private, nil, claims(same)},
		"expired": {jwt.SigningMethodEdDSA, key.private, key.id.String(), claims(func(c jwt.MapClaims) {
			c["exp"] = time.Now().Add(-time.Second).Unix()
		})},
		"no expiry": {jwt.SigningMethodEdDSA, key.private, key.id.String(), claims(func(c jwt.MapClaims) { delete(c, "exp") })},
		"no issue":  {jwt.SigningMethodEdDSA, key.private, key.id.String(), claims(func(c jwt.MapClaims) { delete(c, "iat") })},
		"no run":    {jwt.SigningMethodEdDSA, key.private, key.id.String(), claims(func(c jwt.MapClaims) { delete(c, "runId") })},
		"no agent":  {jwt.SigningMethodEdDSA, key.private, key.id.String(), claims(func(c jwt.MapClaims) { c["agentId"] = uuid.Nil })},
		"a company that is no id": {jwt.SigningMethodEdDSA, key.private, key.id.String(), claims(func(c jwt.MapClaims) {
			c["companyId"] = "acme"
		})},
	} {
		_, err := d.Authenticate(t.Context(), f.token(t))
		wantRefusal(t, what, err, ErrUnauthenticated)
	}
}

func TestARunTokenWhoseClaimsWereChangedIsNobodys(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	token, _, err := d.signRunToken(t.Context(), Run{ID: uuid.New(), CompanyID: uuid.New(), AgentID: uuid.New()})
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(raw, &claims); err != nil {
		t.Fatal(err)
	}
	claims["runId"] = uuid.NewString()
	if raw, err = json.Marshal(claims); err != nil {
		t.Fatal(err)
	}
	parts[1] = base64.RawURLEncoding.EncodeToString(raw)
	_, err = d.Authenticate(t.Context(), strings.Join(parts, "."))
	wantRefusal(t, "another run's id", err, ErrUnauthenticated)
}

func TestServersThatSignAtOnceMakeOneKeyAndVerifyEachOther(t *testing.T) {
	t.Parallel()
	dbtest.DirectOnly(t, "all eight hold a session of the server's at one moment")
	d := newDirectory(t)
	servers := make([]*Service, 8)
	tokens := make([]string, len(servers))
	signing := make([]func() error, len(servers))
	for i := range servers {
		servers[i] = d.server()
		signing[i] = func() (err error) {
			tokens[i], _, err = servers[i].signRunToken(t.Context(),
				Run{ID: uuid.New(), CompanyID: uuid.New(), AgentID: uuid.New()})
			return err
		}
	}
	if err := errors.Join(d.atTheSameMoment("signing_keys", signing...)...); err != nil {
		t.Fatal(err)
	}
	for i, server := range servers {
		must(server.Authenticate(t.Context(), tokens[(i+1)%len(tokens)]))(t)
	}
	var keys int
	if err := d.database.Pool.QueryRow(t.Context(), "SELECT count(*) FROM signing_keys").Scan(&keys); err != nil {
		t.Fatal(err)
	}
	if keys != 1 {
		t.Errorf("%d keys were made, want 1", keys)
	}
}

func TestANewerKeySignsTheOlderVerifiesAndARetiredOneDoesNeither(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	run := Run{ID: uuid.New(), CompanyID: uuid.New(), AgentID: uuid.New()}
	older, _, err := d.signRunToken(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	newerKey := uuid.New()
	d.asOwner("INSERT INTO signing_keys (id, algorithm, private_key) VALUES ($1, 'EdDSA', $2)",
		newerKey, make([]byte, ed25519.SeedSize))

	next := d.server()
	newer, _, err := next.signRunToken(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	if signed := must(next.signingKey(t.Context()))(t); signed.id != newerKey {
		t.Errorf("key %s signs, want the newer one", signed.id)
	}
	must(next.Authenticate(t.Context(), older))(t)
	// The first server has not read the newer key yet, and finds it when a token names it.
	must(d.Authenticate(t.Context(), newer))(t)

	d.asOwner("UPDATE signing_keys SET retired_at = clock_timestamp() WHERE id = $1", newerKey)
	_, err = d.server().Authenticate(t.Context(), newer)
	wantRefusal(t, "a token of a retired key", err, ErrUnauthenticated)
	d.keys.mu.Lock()
	d.keys.readAt = d.keys.readAt.Add(-keyringLife) // a minute later
	d.keys.mu.Unlock()
	_, err = d.Authenticate(t.Context(), newer)
	wantRefusal(t, "a token of a retired key, where the key was at hand", err, ErrUnauthenticated)
	must(d.Authenticate(t.Context(), older))(t)
}

func TestARunTokenIsHalfSpentAfterHalfADay(t *testing.T) {
	t.Parallel()
	issued := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for after, want := range map[time.Duration]bool{
		-time.Hour: false, 0: false, 12*time.Hour - time.Second: false, 12 * time.Hour: true, 30 * time.Hour: true,
	} {
		if got := runTokenHalfSpent(issued, issued.Add(after)); got != want {
			t.Errorf("half spent after %v: %v", after, got)
		}
	}
}
