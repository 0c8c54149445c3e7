package authority

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// Token is an opaque bearer token, without its secret: that is shown once, and only its hash is
// kept. LastUsedAt is exact to the minute.
type Token struct {
	ID         uuid.UUID
	Name       string
	Role       Role
	UserID     *uuid.UUID
	CreatedBy  string
	CreatedAt  time.Time
	ExpiresAt  *time.Time
	LastUsedAt *time.Time
	RevokedAt  *time.Time
}

func tokenOf(row db.Token) Token {
	return Token{
		ID: row.ID, Name: row.Name, Role: Role(row.Role), UserID: row.UserID, CreatedBy: row.CreatedBy,
		CreatedAt: row.CreatedAt, ExpiresAt: row.ExpiresAt, LastUsedAt: row.LastUsedAt, RevokedAt: row.RevokedAt,
	}
}

// TokenInput is what a new token is made from. A member's token names its user, whose memberships
// are its rights; an operator's may name one, who is then on record for what is done with it.
type TokenInput struct {
	Name      string
	Role      Role
	UserID    *uuid.UUID
	ExpiresAt *time.Time // nil means never
}

var tokenRoles = []string{string(RoleOperator), string(RoleMember), string(RoleAuditor)}

// The secret of the first operator's token may be given by whoever starts the service.
const (
	shortestSecret = 16
	longestSecret  = 512
)

// ErrOperatorSecret says that a secret cannot be an operator's token; it is for whoever starts the
// service, and no caller of the API meets it.
var ErrOperatorSecret = errors.New("the operator token cannot be used")

// GenerateSecret returns a new secret for a token: 256 random bits, with a prefix by which people
// and scanners know what they found.
func GenerateSecret() string { return generateSecret("berth_") }

func generateSecret(prefix string) string {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails: the program ends instead
	return prefix + base64.RawURLEncoding.EncodeToString(random)
}

// CreateToken makes a token and returns its secret, this once: a replay of the same request gets
// the token and an empty secret. Operators only.
func (s *Service) CreateToken(ctx context.Context, by Principal, in TokenInput, once Once) (token Token, secret string, err error) {
	if err := by.requireOperator(); err != nil {
		return Token{}, "", err
	}
	refused := validation{}
	refused.text("body.name", in.Name)
	refused.text("body.role", string(in.Role))
	refused.oneOf("body.role", string(in.Role), tokenRoles)
	switch {
	case in.Role == RoleMember && in.UserID == nil:
		refused.add("body.userId", "is needed: a member's token speaks for a user")
	case in.UserID != nil && *in.UserID == uuid.Nil:
		refused.add("body.userId", "is the zero id, which no user has")
	}
	if err := refused.err(); err != nil {
		return Token{}, "", err
	}
	secret = GenerateSecret()
	token, replayed, err := createOnce(ctx, s, by, nil, once, func(tx pgx.Tx) (Token, error) {
		row, err := s.queries.CreateToken(ctx, tx, db.CreateTokenParams{
			ID: newID(), Name: in.Name, SecretHash: hashOfSecret(secret), Role: string(in.Role),
			UserID: in.UserID, CreatedBy: by.Actor(), ExpiresAt: in.ExpiresAt,
		})
		row, err = found(row, err, ErrValidation.At("body.expiresAt", "is not in the future"), "insert a token")
		return tokenOf(row), err
	})
	if err != nil || replayed {
		return token, "", err
	}
	return token, secret, nil
}

// ListTokens lists the tokens of the instance, the oldest first. Operators and auditors only.
func (s *Service) ListTokens(ctx context.Context, by Principal, page Page) (List[Token], error) {
	after, err := page.after()
	if err != nil {
		return List[Token]{}, err
	}
	if !by.ReadsAll() {
		return List[Token]{}, ErrNotAllowed
	}
	params := db.ListTokensParams{Rows: page.rows()}
	params.AfterAt, params.AfterID = after.parts()
	rows, err := s.queries.ListTokens(ctx, s.pool, params)
	if err != nil {
		return List[Token]{}, fmt.Errorf("list tokens: %w", err)
	}
	return pageOf(page, rows, tokenOf, func(r db.Token) place { return place{At: r.CreatedAt, ID: r.ID} }), nil
}

// RevokeToken makes a token useless from now on. Revoking it again changes nothing. Operators only.
// It may be the last operator's token: whoever starts the service can bring another.
func (s *Service) RevokeToken(ctx context.Context, by Principal, id uuid.UUID) error {
	if err := by.requireOperator(); err != nil {
		return err
	}
	hit, err := s.queries.RevokeToken(ctx, s.pool, id)
	switch {
	case err != nil:
		return fmt.Errorf("revoke a token: %w", err)
	case hit == 0:
		return ErrTokenNotFound
	default:
		return nil
	}
}

// EnsureOperatorToken makes an operator's token with this secret unless it is there. A secret whose
// token was revoked, has expired or is of another role does not come back to life: the error is
// ErrOperatorSecret, as for one that is too short to be a secret.
func (s *Service) EnsureOperatorToken(ctx context.Context, secret string) error {
	if err := checkOperatorSecret(secret); err != nil {
		return err
	}
	row, err := s.queries.EnsureToken(ctx, s.pool, db.EnsureTokenParams{
		ID: newID(), Name: "operator", SecretHash: hashOfSecret(secret), Role: string(RoleOperator), CreatedBy: "server",
	})
	switch {
	case err != nil:
		return fmt.Errorf("make the operator token: %w", err)
	case row.Role != string(RoleOperator):
		return fmt.Errorf("%w: its secret is that of token %s, whose role is %s: choose another", ErrOperatorSecret, row.ID, row.Role)
	case !row.Usable:
		return fmt.Errorf("%w: token %s with its secret was revoked or has expired: choose another", ErrOperatorSecret, row.ID)
	default:
		return nil
	}
}

func checkOperatorSecret(secret string) error {
	if len(secret) < shortestSecret || len(secret) > longestSecret {
		return fmt.Errorf("%w: it has %d characters, and needs %d to %d", ErrOperatorSecret, len(secret), shortestSecret, longestSecret)
	}
	for _, c := range []byte(secret) {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("%w: it may hold printable ASCII characters only, and no blank", ErrOperatorSecret)
		}
	}
	if looksLikeRunToken(secret) {
		return fmt.Errorf("%w: with two dots it looks like a run's token", ErrOperatorSecret)
	}
	if strings.HasPrefix(secret, recoveryPrefix) {
		return fmt.Errorf("%w: with %s in front it looks like a recovery's token", ErrOperatorSecret, recoveryPrefix)
	}
	return nil
}
