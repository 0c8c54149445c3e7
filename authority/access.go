package authority

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// What a caller may read is asked here, by one statement each, and the answer to "no" is always
// that there is no such thing: nothing tells a hidden row from an unknown one.
//
// A run reads its company while it is running. Once it ended its token reads nothing by these
// functions; what remains of it (its own run, tenure and snapshots) is found by the run's id. A recovery
// reads nothing by them either: see recoveredWorkspace.

// requireCompanyRead refuses with ErrCompanyNotFound whoever is not of the company: a run of
// another one, a run that ended, a user without an active membership. Operators and auditors only
// need the company to exist.
func (s *Service) requireCompanyRead(ctx context.Context, q db.DBTX, by Principal, company uuid.UUID) error {
	if by.Role == RoleRun && by.CompanyID != company {
		return ErrCompanyNotFound
	}
	kind, id := by.reader()
	reads, err := s.queries.ReadsCompany(ctx, q, db.ReadsCompanyParams{
		CompanyID: company, PrincipalType: kind, Principal: id, RunID: by.readerRun(),
	})
	if err != nil {
		return fmt.Errorf("look up who reads the company: %w", err)
	}
	if !reads {
		return ErrCompanyNotFound
	}
	return nil
}

// requireCompanyWrite is requireCompanyRead, and then refuses with ErrNotAllowed whoever only
// reads there: auditors, viewers, and runs. A verb that a run may use decides that by itself and
// does not come here with one.
//
// An archived company takes no writes of members either; operators still administer it, so that
// nothing in it is stuck. What a run does with its tenure does not pass here, and goes on.
func (s *Service) requireCompanyWrite(ctx context.Context, q db.DBTX, by Principal, company uuid.UUID) error {
	if err := s.requireCompanyRead(ctx, q, by, company); err != nil {
		return err
	}
	switch by.Role {
	case RoleOperator:
		return nil
	case RoleMember:
	default:
		return ErrNotAllowed
	}
	at, err := s.standing(ctx, q, by, company)
	if err != nil {
		return err
	}
	if rule := at.mayNotWrite(); rule != nil {
		return ErrNotAllowed.Say("%s", rule.explanation)
	}
	return nil
}

// requireCompanyAdministration is requireCompanyRead, and then refuses all but operators.
func (s *Service) requireCompanyAdministration(ctx context.Context, q db.DBTX, by Principal, company uuid.UUID) error {
	if err := s.requireCompanyRead(ctx, q, by, company); err != nil {
		return err
	}
	return by.requireOperator()
}

// requireReader refuses a recovery, and a run that is not running, with ErrNotAllowed. It guards what belongs to no
// company: environments and settings, which every other principal may read.
func (s *Service) requireReader(ctx context.Context, q db.DBTX, by Principal) error {
	if by.Role == RoleRecovery {
		return errRecoveryOnly
	}
	if by.Role != RoleRun {
		return nil
	}
	err := s.requireCompanyRead(ctx, q, by, by.CompanyID)
	if errors.Is(err, ErrCompanyNotFound) {
		return ErrNotAllowed.Say("The run is not running: its token reads only what was its own.")
	}
	return err
}

// readableProject returns the project, or ErrProjectNotFound when it is unknown, of a company that
// the caller is not in, or private to others.
func (s *Service) readableProject(ctx context.Context, q db.DBTX, by Principal, id uuid.UUID) (db.Project, error) {
	kind, reader := by.reader()
	row, err := s.queries.GetReadableProject(ctx, q, db.GetReadableProjectParams{
		ID: id, PrincipalType: kind, Principal: reader, RunID: by.readerRun(),
	})
	return found(row, err, ErrProjectNotFound, "read the project")
}

// readableIssue returns the task, or ErrIssueNotFound when it is unknown, of a company that the
// caller is not in, or private to others.
func (s *Service) readableIssue(ctx context.Context, q db.DBTX, by Principal, id uuid.UUID) (db.Issue, error) {
	kind, reader := by.reader()
	row, err := s.queries.GetReadableIssue(ctx, q, db.GetReadableIssueParams{
		ID: id, PrincipalType: kind, Principal: reader, RunID: by.readerRun(),
	})
	return found(row, err, ErrIssueNotFound, "read the task")
}

// readableWorkspace returns the workspace, or ErrWorkspaceNotFound when it is unknown, of a company
// that the caller is not in, or when its project or any task behind it is private to others.
func (s *Service) readableWorkspace(ctx context.Context, q db.DBTX, by Principal, id uuid.UUID) (db.ExecutionWorkspace, error) {
	kind, reader := by.reader()
	row, err := s.queries.GetReadableWorkspace(ctx, q, db.GetReadableWorkspaceParams{
		ID: id, PrincipalType: kind, Principal: reader, RunID: by.readerRun(),
	})
	return found(row, err, ErrWorkspaceNotFound, "read the workspace")
}

// found passes on what a statement for one row answered; no row is the refusal missing.
func found[Row any](row Row, err error, missing *Refusal, doing string) (Row, error) {
	switch {
	case err == nil:
		return row, nil
	case errors.Is(err, pgx.ErrNoRows):
		return row, missing
	default:
		return row, fmt.Errorf("%s: %w", doing, err)
	}
}
