package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// Token lets a person or a program call the API. Its secret is kept as a hash only.
type Token struct {
	ID         uuid.UUID  `json:"id" format:"uuid"`
	Name       string     `json:"name" maxLength:"200"`
	Role       TokenRole  `json:"role"`
	UserID     *uuid.UUID `json:"userId" format:"uuid" nullable:"true" doc:"As whom its holder acts."`
	CreatedBy  string     `json:"createdBy" maxLength:"200"`
	CreatedAt  Time       `json:"createdAt"`
	ExpiresAt  *Time      `json:"expiresAt" nullable:"true"`
	LastUsedAt *Time      `json:"lastUsedAt" nullable:"true" doc:"Not exact: it is written down once in a while."`
	RevokedAt  *Time      `json:"revokedAt" nullable:"true"`
}

func tokenOf(t authority.Token) Token {
	return Token{
		ID: t.ID, Name: t.Name, Role: TokenRole(t.Role), UserID: t.UserID, CreatedBy: t.CreatedBy,
		CreatedAt: Time(t.CreatedAt), ExpiresAt: timeOf(t.ExpiresAt), LastUsedAt: timeOf(t.LastUsedAt),
		RevokedAt: timeOf(t.RevokedAt),
	}
}

// TokenCreate makes a token.
type TokenCreate struct {
	Name      string     `json:"name" minLength:"1" maxLength:"200" doc:"So that people know it again."`
	Role      TokenRole  `json:"role"`
	UserID    *uuid.UUID `json:"userId,omitempty" format:"uuid" doc:"As whom its holder acts. A member's token needs it."`
	ExpiresAt *Time      `json:"expiresAt,omitempty" doc:"From when it is refused. Never, if absent."`
}

// CreatedToken is a new token with its secret.
type CreatedToken struct {
	Token  Token   `json:"token"`
	Secret *string `json:"secret" nullable:"true" maxLength:"200" doc:"The bearer token. It is shown this once: null when an Idempotency-Key is used again."`
}

// TokenPath names a token.
type TokenPath struct {
	TokenID uuid.UUID `path:"tokenId" format:"uuid"`
}

func (s *server) tokens() {
	register(s, endpoint{
		id: "listTokens", method: http.MethodGet, path: "/api/tokens", tag: "tokens",
		summary: "List the tokens", doc: "For operators. Secrets are not among what is listed.",
	}, func(ctx context.Context, by authority.Principal, in *struct{ PageQuery }) (*Answer[List[Token]], error) {
		list, err := s.rules.ListTokens(ctx, by, in.page())
		return listOf(list, err, tokenOf)
	})
	register(s, endpoint{
		id: "createToken", method: http.MethodPost, path: "/api/tokens", tag: "tokens", status: http.StatusCreated,
		summary: "Create a token", doc: "For operators. The answer is the only one with the secret in it.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		IdempotencyKey
		Body TokenCreate
	},
	) (*Answer[CreatedToken], error) {
		token, secret, err := s.rules.CreateToken(ctx, by, authority.TokenInput{
			Name: in.Body.Name, Role: authority.Role(in.Body.Role), UserID: in.Body.UserID, ExpiresAt: in.Body.ExpiresAt.pointer(),
		}, in.once(ctx))
		return answer(token, err, func(t authority.Token) CreatedToken {
			return CreatedToken{Token: tokenOf(t), Secret: text(secret)}
		})
	})
	register(s, endpoint{
		id: "revokeToken", method: http.MethodDelete, path: "/api/tokens/{tokenId}", tag: "tokens",
		summary: "Revoke a token", doc: "For operators. From the answer on it is refused; revoking it again changes nothing.",
	}, func(ctx context.Context, by authority.Principal, in *struct{ TokenPath }) (*Nothing, error) {
		if err := s.rules.RevokeToken(ctx, by, in.TokenID); err != nil {
			return nil, err
		}
		return &Nothing{}, nil
	})
}
