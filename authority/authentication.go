package authority

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// longestBearer is more than any token that Berth hands out has in bytes.
const longestBearer = 4096

// Authenticate returns who a bearer token is: an opaque one is looked up by its hash, a run's is
// verified with a key at hand. ErrUnauthenticated: it is unknown, forged, revoked or expired; which
// of these is not said.
func (s *Service) Authenticate(ctx context.Context, bearer string) (Principal, error) {
	switch {
	case bearer == "" || len(bearer) > longestBearer:
		return Principal{}, ErrUnauthenticated
	case looksLikeRunToken(bearer):
		return s.authenticateRun(ctx, bearer)
	case strings.HasPrefix(bearer, recoveryPrefix):
		return s.authenticateRecovery(ctx, bearer)
	default:
		return s.authenticateSecret(ctx, bearer)
	}
}

// looksLikeRunToken tells the three parts of a JWT from an opaque secret, which has no such form.
func looksLikeRunToken(bearer string) bool { return strings.Count(bearer, ".") == 2 }

func (s *Service) authenticateSecret(ctx context.Context, secret string) (Principal, error) {
	row, err := s.queries.GetUsableTokenByHash(ctx, s.pool, hashOfSecret(secret))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Principal{}, ErrUnauthenticated
	case err != nil:
		return Principal{}, fmt.Errorf("look up a token: %w", err)
	}
	if row.NoteUse {
		// A note for people: that it cannot be written is no reason to refuse a call that reads.
		if _, err := s.queries.NoteTokenUse(ctx, s.pool, row.ID); err != nil {
			s.log.WarnContext(ctx, "the use of a token was not noted", "token", row.ID, "error", err)
		}
	}
	by := Principal{Role: Role(row.Role), TokenID: row.ID}
	if row.UserID != nil {
		by.UserID = *row.UserID
	}
	return by, nil
}

// hashOfSecret is what is stored of a secret. The secrets that Berth makes have 256 random bits, so
// a plain hash gives nothing away and needs no salt.
func hashOfSecret(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}
