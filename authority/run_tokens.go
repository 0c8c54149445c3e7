package authority

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// A run token is a JWT that says which run its holder is. It is authentic until it expires, by the
// clock of the server that checks it: an expiry bounds how long a stolen token is of use, and it
// decides nothing about a tenure, which is the database's to say.

// runTokenLife is how long a run token is authentic. A renewal hands out a new one in the second
// half, so a run may go on for as long as it renews.
const runTokenLife = 24 * time.Hour

// keyringLife is how long keys are used before they are read again, and so how long a server may go
// on to honour a key that was retired.
const keyringLife = time.Minute

// runClaims is what a run token says.
type runClaims struct {
	CompanyID uuid.UUID `json:"companyId"`
	AgentID   uuid.UUID `json:"agentId"`
	RunID     uuid.UUID `json:"runId"`
	jwt.RegisteredClaims
}

// Validate refuses claims that name nobody; the parser calls it.
func (c runClaims) Validate() error {
	if c.CompanyID == uuid.Nil || c.AgentID == uuid.Nil || c.RunID == uuid.Nil || c.IssuedAt == nil {
		return errors.New("a run token names its company, agent and run, and when it was issued")
	}
	return nil
}

// signRunToken returns a token for the run, and until when it is authentic.
func (s *Service) signRunToken(ctx context.Context, run Run) (token string, expiresAt time.Time, err error) {
	key, err := s.signingKey(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	now := time.Now().UTC().Truncate(time.Second) // the claims hold whole seconds
	expiresAt = now.Add(runTokenLife)
	unsigned := jwt.NewWithClaims(jwt.SigningMethodEdDSA, runClaims{
		CompanyID: run.CompanyID, AgentID: run.AgentID, RunID: run.ID,
		RegisteredClaims: jwt.RegisteredClaims{IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(expiresAt)},
	})
	unsigned.Header["kid"] = key.id.String()
	token, err = unsigned.SignedString(key.private)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign a run token: %w", err)
	}
	return token, expiresAt, nil
}

// runTokenHalfSpent reports whether a token is in the second half of its life.
func runTokenHalfSpent(issuedAt, now time.Time) bool {
	return !now.Before(issuedAt.Add(runTokenLife / 2))
}

// authenticateRun returns the run that the token was signed for, or ErrUnauthenticated. It asks the
// database for nothing while the token's key is at hand.
func (s *Service) authenticateRun(ctx context.Context, token string) (Principal, error) {
	var claims runClaims
	var fault error // of the database, which must not look like a bad token
	_, err := jwt.ParseWithClaims(token, &claims, func(t *jwt.Token) (any, error) {
		kid, _ := t.Header["kid"].(string)
		id, err := uuid.Parse(kid)
		if err != nil {
			return nil, errors.New("the token names no key")
		}
		key, err := s.verificationKey(ctx, id)
		if err != nil {
			fault = err
		}
		return key, err
	}, jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithExpirationRequired(), jwt.WithStrictDecoding())
	switch {
	case fault != nil && !errors.Is(fault, ErrUnauthenticated):
		return Principal{}, fault
	case err != nil:
		return Principal{}, ErrUnauthenticated
	}
	return Principal{
		Role: RoleRun, CompanyID: claims.CompanyID, AgentID: claims.AgentID, RunID: claims.RunID,
		TokenIssuedAt: claims.IssuedAt.UTC(), TokenExpiresAt: claims.ExpiresAt.UTC(),
	}, nil
}

// keyring is what a server knows of the signing keys. The zero keyring knows none.
type keyring struct {
	mu     sync.Mutex
	readAt time.Time
	newest *signingKey
	byID   map[uuid.UUID]ed25519.PublicKey
}

// signingKey signs run tokens; tokens name it by id.
type signingKey struct {
	id      uuid.UUID
	private ed25519.PrivateKey
}

// get returns the newest key, and the public key with the id, as far as they were read lately.
func (k *keyring) get(id uuid.UUID) (newest *signingKey, public ed25519.PublicKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.readAt) > keyringLife {
		return nil, nil
	}
	return k.newest, k.byID[id]
}

// fill replaces the keys by rows, newest first.
func (k *keyring) fill(rows []db.ListSigningKeysRow) {
	var newest *signingKey
	byID := make(map[uuid.UUID]ed25519.PublicKey, len(rows))
	for _, row := range rows {
		if len(row.PrivateKey) != ed25519.SeedSize {
			continue // of a newer server, perhaps: it signs and verifies nothing here
		}
		private := ed25519.NewKeyFromSeed(row.PrivateKey)
		if newest == nil {
			newest = &signingKey{id: row.ID, private: private}
		}
		byID[row.ID], _ = private.Public().(ed25519.PublicKey)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.readAt, k.newest, k.byID = time.Now(), newest, byID
}

// verificationKey returns the public key with the id. One that is not at hand is looked for in the
// database, where another server may have just put it; ErrUnauthenticated: it is not there either.
func (s *Service) verificationKey(ctx context.Context, id uuid.UUID) (ed25519.PublicKey, error) {
	if _, public := s.keys.get(id); public != nil {
		return public, nil
	}
	if err := s.readKeys(ctx, s.pool); err != nil {
		return nil, err
	}
	if _, public := s.keys.get(id); public != nil {
		return public, nil
	}
	return nil, ErrUnauthenticated
}

// signingKey returns the newest key. The first one ever is made here; servers that need it at once
// wait for each other and use the one that was made.
func (s *Service) signingKey(ctx context.Context) (*signingKey, error) {
	if newest, _ := s.keys.get(uuid.Nil); newest != nil {
		return newest, nil
	}
	if err := s.readKeys(ctx, s.pool); err != nil {
		return nil, err
	}
	if newest, _ := s.keys.get(uuid.Nil); newest != nil {
		return newest, nil
	}
	if err := s.makeFirstKey(ctx); err != nil {
		return nil, err
	}
	if err := s.readKeys(ctx, s.pool); err != nil {
		return nil, err
	}
	newest, _ := s.keys.get(uuid.Nil)
	if newest == nil {
		return nil, errors.New("no signing key in the database is one that this server can use")
	}
	return newest, nil
}

func (s *Service) readKeys(ctx context.Context, q db.DBTX) error {
	rows, err := s.queries.ListSigningKeys(ctx, q)
	if err != nil {
		return fmt.Errorf("read the signing keys: %w", err)
	}
	s.keys.fill(rows)
	return nil
}

func (s *Service) makeFirstKey(ctx context.Context) error {
	return s.inTx(ctx, func(tx pgx.Tx) error {
		if err := s.queries.LockSigningKeys(ctx, tx); err != nil {
			return fmt.Errorf("lock the signing keys: %w", err)
		}
		rows, err := s.queries.ListSigningKeys(ctx, tx)
		if err != nil || len(rows) > 0 {
			return err
		}
		seed := make([]byte, ed25519.SeedSize)
		_, _ = rand.Read(seed) // never fails: the program ends instead
		if err := s.queries.CreateSigningKey(ctx, tx, db.CreateSigningKeyParams{ID: newID(), PrivateKey: seed}); err != nil {
			return fmt.Errorf("make a signing key: %w", err)
		}
		return nil
	})
}
