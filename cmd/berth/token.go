package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"time"

	client "berth/clients/go"
)

type tokenCommand struct {
	Create tokenCreateCommand `cmd:"" help:"Make a token, and print its secret, this once."`
	List   tokenListCommand   `cmd:"" help:"List the tokens, without their secrets."`
	Revoke tokenRevokeCommand `cmd:"" help:"Make a token useless from now on."`
}

type tokenCreateCommand struct {
	outputFlag
	connectionFlags
	Name    string        `arg:"" help:"What it is for, so that people know it again."`
	Role    string        `required:"" placeholder:"ROLE" help:"operator (everything), member (what its user may) or auditor (reads only)."`
	User    string        `placeholder:"ID" help:"As whom its holder acts, by id. A member's token needs it."`
	Expires time.Duration `placeholder:"DURATION" help:"How long it is valid, such as 720h. For ever, unless given."`
}

// Run prints the secret and nothing else, so that a script can keep it.
func (c tokenCreateCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	body := client.TokenCreate{Name: c.Name, Role: client.TokenRole(c.Role)}
	if body.UserID, err = filterID(ctx, c.User, parseID("--user")); err != nil {
		return err
	}
	if c.Expires != 0 {
		at := time.Now().Add(c.Expires)
		body.ExpiresAt = &at
	}
	token, err := read[client.CreatedToken](s.CreateToken(ctx, nil, body))
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(stdout, token.json)
	}
	if token.value.Secret == nil {
		return errors.New("the service made the token and did not tell its secret")
	}
	fmt.Fprintf(os.Stderr, "berth: token %s; its secret is shown this once\n", token.value.Token.ID)
	fmt.Fprintln(stdout, *token.value.Secret)
	return nil
}

func (s *session) tokens(ctx context.Context) iter.Seq2[item[client.Token], error] {
	return pages[client.Token](func(limit *int64, cursor *string) (*http.Response, error) {
		return s.ListTokens(ctx, &client.ListTokensParams{Limit: limit, Cursor: cursor})
	})
}

type tokenListCommand struct {
	listFlags
	connectionFlags
}

func (c tokenListCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	return show(stdout, c.listFlags, s.tokens(ctx), columns[client.Token]{
		[]string{"ID", "NAME", "ROLE", "LAST USED", "EXPIRES", "REVOKED"},
		func(t client.Token) []string {
			return []string{
				t.ID.String(), printable(t.Name), string(t.Role), shortTimeOrNone(t.LastUsedAt),
				shortTimeOrNone(t.ExpiresAt), shortTimeOrNone(t.RevokedAt),
			}
		},
	})
}

type tokenRevokeCommand struct {
	connectionFlags
	Revoked string `arg:"" name:"token" placeholder:"TOKEN" help:"The token, by id or name. Not its secret."`
}

func (c tokenRevokeCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	id, err := parseID("")(ctx, c.Revoked)
	if err != nil {
		id, err = find("token", c.Revoked, s.tokens(ctx), func(t client.Token) named { return named{t.ID, []string{t.Name}} })
	}
	if err != nil {
		return err
	}
	if _, err := read[json.RawMessage](s.RevokeToken(ctx, id)); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "token %s is revoked\n", id)
	return nil
}
