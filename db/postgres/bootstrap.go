package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	schema "berth/sql"
)

// launchPrepared starts the server and brings its roles and its database to
// where Berth needs them. All of it may have been done by an earlier start.
func (s *Server) launchPrepared(ctx context.Context) (*process, error) {
	p, err := s.launch(ctx)
	if err != nil {
		return nil, err
	}
	err = s.bootstrap(ctx)
	if errors.Is(err, errPasswords) {
		// The file with the passwords was lost or replaced. Whoever may start
		// the server may set the superuser's password without knowing it.
		s.log.Warn("the superuser's password is not the one on file; setting it", "dir", s.dir)
		p.stop()
		if err := s.resetSuperuser(ctx); err != nil {
			return nil, err
		}
		if p, err = s.launch(ctx); err != nil {
			return nil, err
		}
		err = s.bootstrap(ctx)
	}
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("private Postgres: prepare roles and database: %w", err)
	}
	return p, nil
}

// bootstrap makes the roles, sets their passwords to those on file, and makes
// the database.
func (s *Server) bootstrap(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL(Superuser, "postgres"))
	if err != nil {
		const invalidPassword = "28P01"
		var refusal *pgconn.PgError
		if errors.As(err, &refusal) && refusal.Code == invalidPassword {
			return errPasswords
		}
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // every statement was answered
	if err := PrepareRoles(ctx, conn, s.passwords[Owner], s.passwords[Service]); err != nil {
		return err
	}
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", Database).Scan(&exists)
	if err != nil || exists {
		return err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf("CREATE DATABASE %s OWNER %s", Database, Owner))
	return err
}

// PrepareRoles makes the roles of Berth on a server and sets the passwords of
// the two that log in. conn is a superuser's. It may be run any number of
// times, but not twice at once: the caller sees to that.
func PrepareRoles(ctx context.Context, conn *pgx.Conn, ownerPassword, servicePassword string) error {
	// Without arguments the text goes as one simple query, so in one transaction.
	if _, err := conn.Exec(ctx, schema.Roles); err != nil {
		return fmt.Errorf("make the roles: %w", err)
	}
	for role, password := range map[string]string{Owner: ownerPassword, Service: servicePassword} {
		statement := fmt.Sprintf("ALTER ROLE %s LOGIN PASSWORD %s", role, quoteLiteral(password))
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("set the password of the role %s: %w", role, err)
		}
	}
	return nil
}

// resetSuperuser sets the superuser's password to the one on file, in
// Postgres's single-user mode: no server runs then and nobody can connect.
func (s *Server) resetSuperuser(ctx context.Context) error {
	statement := fmt.Sprintf("ALTER ROLE %s LOGIN PASSWORD %s\n", Superuser, quoteLiteral(s.passwords[Superuser]))
	out, err := s.runToEnd(ctx, statement, "postgres", "--single", "-D", s.data(),
		"-c", "password_encryption=scram-sha-256", "-c", "log_min_error_statement=panic", "postgres")
	if err != nil {
		return fmt.Errorf("private Postgres: set the superuser's password: %w\n%s", err, lastLines(out))
	}
	return nil
}

func quoteLiteral(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
