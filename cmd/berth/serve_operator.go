package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"berth/authority"
)

// ensureOperator makes sure that somebody can operate the service, and says how.
//
// The secret on file is on disk before the database knows its hash, so a crash
// in between leaves a file that the next start completes.
func (c serveCommand) ensureOperator(ctx context.Context, rules *authority.Service, base *database, log *slog.Logger) (string, error) {
	if c.OperatorToken != "" {
		return "Operator token: the one that was given (BERTH_OPERATOR_TOKEN).", rules.EnsureOperatorToken(ctx, c.OperatorToken)
	}
	path := filepath.Join(base.dataDir, operatorTokenFile)
	secret, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if base.private == nil {
			known, err := hasTokens(ctx, rules)
			if err != nil || known {
				return "Operator token: none made, since this database has tokens already; --operator-token adds one.", err
			}
		}
		secret = []byte(authority.GenerateSecret() + "\n")
		if err := writeSecret(path, secret); err != nil {
			return "", err
		}
	case err != nil:
		return "", fmt.Errorf("operator token: %w", err)
	}
	err = rules.EnsureOperatorToken(ctx, string(bytes.TrimSpace(secret)))
	if errors.Is(err, authority.ErrOperatorSecret) {
		// Somebody revoked it on purpose, so it must not come back by a restart.
		log.Warn("the operator token on file is of no use; to get another, remove the file and start again", "file", path, "reason", err)
		return "Operator token: the one in " + path + " is not valid any more.", nil
	}
	return "Operator token: in " + path, err
}

// hasTokens reports whether anybody was ever given a token: then this is not the
// first start on that database.
func hasTokens(ctx context.Context, rules *authority.Service) (bool, error) {
	tokens, err := rules.ListTokens(ctx, authority.Principal{Role: authority.RoleOperator}, authority.Page{Limit: 1})
	if err != nil {
		return false, err
	}
	return len(tokens.Items) > 0, nil
}

// writeSecret puts content into a new file that only this user can read: whole,
// and on disk, or not at all.
func writeSecret(path string, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("operator token: %w", err)
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return fmt.Errorf("operator token: %w", err)
	}
	return nil
}
