package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"berth/authority"
)

// bearerScheme is the name under which the document knows how callers show who they are.
const bearerScheme = "bearer"

// maxTokenBytes bounds what is looked at as a token. A run's token is about 500 bytes.
const maxTokenBytes = 8 << 10

// authenticate finds out who calls, for each operation that needs a principal. It comes before anything is read of
// the body, so that a stranger costs nothing.
func (s *server) authenticate(ctx huma.Context, next func(huma.Context)) {
	if len(ctx.Operation().Security) == 0 {
		next(ctx)
		return
	}
	token, ok := bearer(ctx.Header("Authorization"))
	if !ok {
		p := newProblem(http.StatusUnauthorized, authority.ErrUnauthenticated.Code, authority.ErrUnauthenticated.Detail)
		p.header("WWW-Authenticate", `Bearer realm="berth"`)
		s.refuse(ctx, p)
		return
	}
	principal, err := s.rules.Authenticate(ctx.Context(), token)
	if err != nil {
		s.refuse(ctx, err)
		return
	}
	exchangeOf(ctx.Context()).principal = principal
	next(ctx)
}

// refuse answers err from a place before the handler.
func (s *server) refuse(ctx huma.Context, err error) {
	_, w := unwrap(ctx)
	s.problem(ctx.Context(), err).write(w)
}

// bearer takes the token out of an Authorization header.
func bearer(header string) (string, bool) {
	scheme, token, _ := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxTokenBytes {
		return "", false
	}
	return token, true
}

// principalOf is who calls, for a handler of an operation that needs a principal.
func principalOf(ctx context.Context) authority.Principal { return exchangeOf(ctx).principal }
