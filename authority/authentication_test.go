package authority

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

func (d *directory) token(in TokenInput) (Token, string) {
	d.t.Helper()
	in.Name = "token"
	token, secret, err := d.CreateToken(d.t.Context(), d.operator, in, Once{})
	if err != nil {
		d.t.Fatal(err)
	}
	return token, secret
}

func TestASecretIsItsTokensRoleAndUser(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	user := uuid.New()
	for _, in := range []TokenInput{
		{Role: RoleOperator}, {Role: RoleOperator, UserID: &user}, {Role: RoleMember, UserID: &user}, {Role: RoleAuditor},
	} {
		token, secret := d.token(in)
		by := must(d.Authenticate(t.Context(), secret))(t)
		want := Principal{Role: in.Role, TokenID: token.ID}
		if in.UserID != nil {
			want.UserID = user
		}
		if by != want {
			t.Errorf("the secret of %+v is %+v, want %+v", in, by, want)
		}
	}
}

func TestSecretsThatAreUnknownRevokedOrExpiredAreNobodys(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	revoked, revokedSecret := d.token(TokenInput{Role: RoleOperator})
	if err := d.RevokeToken(t.Context(), d.operator, revoked.ID); err != nil {
		t.Fatal(err)
	}
	soon := time.Now().Add(time.Hour)
	expired, expiredSecret := d.token(TokenInput{Role: RoleOperator, ExpiresAt: &soon})
	if _, err := d.Authenticate(t.Context(), expiredSecret); err != nil {
		t.Errorf("before its expiry: %v", err)
	}
	d.asOwner("UPDATE tokens SET expires_at = clock_timestamp() - interval '1 millisecond' WHERE id = $1", expired.ID)
	for what, bearer := range map[string]string{
		"nothing": "", "unknown": GenerateSecret(), "revoked": revokedSecret, "expired": expiredSecret,
		"a hash": string(hashOfSecret(revokedSecret)), "endless": strings.Repeat("a", 1<<20), "dots": "..", "no JWT": "a.b.c",
	} {
		_, err := d.Authenticate(t.Context(), bearer)
		wantRefusal(t, what, err, ErrUnauthenticated)
	}
}

func TestAnExpiryIsInTheFutureOfTheDatabase(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	past := time.Now().Add(-time.Second)
	_, _, err := d.CreateToken(t.Context(), d.operator, TokenInput{Name: "T", Role: RoleAuditor, ExpiresAt: &past}, Once{})
	wantField(t, "an expiry that is over", err, "body.expiresAt")
}

func TestATokensInputIsChecked(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	_, _, err := d.CreateToken(t.Context(), d.operator, TokenInput{Name: " ", Role: "run"}, Once{})
	wantField(t, "no name and no role", err, "body.name", "body.role")
	_, _, err = d.CreateToken(t.Context(), d.operator, TokenInput{Name: "T", Role: RoleMember}, Once{})
	wantField(t, "a member without a user", err, "body.userId")
	_, _, err = d.CreateToken(t.Context(), d.operator, TokenInput{Name: "T", Role: RoleMember, UserID: &uuid.Nil}, Once{})
	wantField(t, "a member with the zero user", err, "body.userId")
}

func TestASecretIsShownOnceAndStoredNowhere(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	in := TokenInput{Name: "T", Role: RoleAuditor}
	first, secret, err := d.CreateToken(t.Context(), d.operator, in, once("key", "a"))
	if err != nil || secret == "" {
		t.Fatalf("the first answer has the secret %q, error %v", secret, err)
	}
	again, none, err := d.CreateToken(t.Context(), d.operator, in, once("key", "a"))
	if err != nil || none != "" || again.ID != first.ID {
		t.Errorf("the replay is token %s with the secret %q, error %v; want %s without one", again.ID, none, err, first.ID)
	}
	if _, err := d.Authenticate(t.Context(), secret); err != nil {
		t.Errorf("the first answer's secret: %v", err)
	}
	var kept int
	if err := d.database.Pool.QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM tokens t WHERE to_jsonb(t)::text LIKE '%' || $1 || '%')
		     + (SELECT count(*) FROM idempotency_keys k WHERE to_jsonb(k)::text LIKE '%' || $1 || '%')`,
		strings.TrimPrefix(secret, "berth_")).Scan(&kept); err != nil {
		t.Fatal(err)
	}
	if kept != 0 {
		t.Errorf("the secret is in %d rows", kept)
	}
}

func TestTheUseOfATokenIsNotedOnceAMinute(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	token, secret := d.token(TokenInput{Role: RoleOperator})
	lastUsed := func() *time.Time {
		for _, each := range must(d.ListTokens(t.Context(), d.operator, Page{}))(t).Items {
			if each.ID == token.ID {
				return each.LastUsedAt
			}
		}
		t.Fatal("the token is not listed")
		return nil
	}
	if at := lastUsed(); at != nil {
		t.Errorf("before its use it was used at %v", at)
	}
	must(d.Authenticate(t.Context(), secret))(t)
	first := lastUsed()
	if first == nil {
		t.Fatal("the first use was not noted")
	}
	must(d.Authenticate(t.Context(), secret))(t)
	if second := lastUsed(); !second.Equal(*first) {
		t.Errorf("a second use was noted at %v, so soon after %v", second, first)
	}
	d.asOwner("UPDATE tokens SET last_used_at = last_used_at - interval '61 seconds' WHERE id = $1", token.ID)
	must(d.Authenticate(t.Context(), secret))(t)
	if later := lastUsed(); later.Before(*first) {
		t.Errorf("a minute later the last use is still noted as %v", later)
	}
}

func TestTheOperatorsSecretMakesOneTokenHoweverOftenItComes(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	secret := GenerateSecret()
	before := len(must(d.ListTokens(t.Context(), d.operator, Page{}))(t).Items)
	var servers sync.WaitGroup
	failures := make([]error, 8)
	for i := range failures {
		servers.Go(func() { failures[i] = d.server().EnsureOperatorToken(t.Context(), secret) })
	}
	servers.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	if after := len(must(d.ListTokens(t.Context(), d.operator, Page{}))(t).Items); after != before+1 {
		t.Errorf("%d tokens were made, want 1", after-before)
	}
	if by := must(d.Authenticate(t.Context(), secret))(t); by.Role != RoleOperator {
		t.Errorf("the operator's secret is of role %s", by.Role)
	}
}

func TestAnOperatorsSecretThatWasRevokedStaysSo(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	token, secret := d.token(TokenInput{Role: RoleOperator})
	if err := d.RevokeToken(t.Context(), d.operator, token.ID); err != nil {
		t.Fatal(err)
	}
	_, auditors := d.token(TokenInput{Role: RoleAuditor})
	for what, bad := range map[string]string{
		"revoked": secret, "an auditor's": auditors, "short": "0123456789abcde", "blank": "0123456789 abcdef0123",
		"not ASCII": "0123456789abcdéf", "like a run token": "0123456789.abcdef.0123",
	} {
		if err := d.EnsureOperatorToken(t.Context(), bad); !errors.Is(err, ErrOperatorSecret) {
			t.Errorf("a secret that is %s: %v, want ErrOperatorSecret", what, err)
		}
	}
	_, err := d.Authenticate(t.Context(), secret)
	wantRefusal(t, "the revoked secret", err, ErrUnauthenticated)
}

func TestSecretsAreLongRandomAndRecognisable(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		secret := GenerateSecret()
		if seen[secret] || !strings.HasPrefix(secret, "berth_") || len(secret) != len("berth_")+43 || looksLikeRunToken(secret) {
			t.Fatalf("%q is no new secret of 256 bits", secret)
		}
		seen[secret] = true
	}
}

func TestTokensAreListedForOperatorsAndAuditorsOnly(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	for _, c := range []struct {
		who  string
		by   Principal
		want *Refusal
	}{
		{"operator", d.operator, nil},
		{"auditor", Principal{Role: RoleAuditor, TokenID: uuid.New()}, nil},
		{"member", d.user(company, "owner", "active"), ErrNotAllowed},
		{"run", d.run(company, d.agent(company), nil, "running"), ErrNotAllowed},
	} {
		_, err := d.ListTokens(t.Context(), c.by, Page{})
		wantRefusal(t, c.who, err, c.want)
	}
}
