package authority

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// setPrivacy makes a child of a private task private under the same root. Otherwise a task is open
// unless an operator says that it is private: then its root is itself, or the one that is named.
func (d *issueDraft) setPrivacy(ctx context.Context) error {
	in := d.in
	secret := in.PrivacyRootIssueID != nil || in.PrivacyParentIssueID != nil ||
		(in.Visibility != nil && *in.Visibility == visibilityPrivate)
	if secret && d.by.Role != RoleOperator {
		return errPrivacy
	}
	for _, id := range []*uuid.UUID{in.PrivacyRootIssueID, in.PrivacyParentIssueID} {
		if err := d.service.requirePrivacyIssue(ctx, d.tx, d.company, id); err != nil {
			return err
		}
	}
	d.row.Visibility = visibilityOpen
	if in.Visibility != nil && *in.Visibility != "" {
		d.row.Visibility = *in.Visibility
	}
	d.row.PrivacyParentIssueID = in.ParentID
	if in.PrivacyParentIssueID != nil {
		d.row.PrivacyParentIssueID = in.PrivacyParentIssueID
	}
	if d.parent != nil && d.parent.Visibility == visibilityPrivate {
		if in.Visibility != nil && *in.Visibility == visibilityOpen {
			return ErrValidation.At("body.visibility", "the parent is private, and so are its children")
		}
		d.row.Visibility = visibilityPrivate
		d.row.PrivacyRootIssueID = rootOf(d.parent)
		return nil
	}
	d.row.PrivacyRootIssueID = privacyRoot(d.row.Visibility, in.PrivacyRootIssueID, d.row.ID)
	return nil
}

var errPrivacy = ErrNotAllowed.Say("Who reads a private task is for operators to say.")

// rootOf is the task that a private task's privacy hangs on.
func rootOf(private *db.Issue) *uuid.UUID {
	if private.PrivacyRootIssueID != nil {
		return private.PrivacyRootIssueID
	}
	return &private.ID
}

// privacyRoot is the root of a task of that visibility: none of an open one, and itself of a
// private one that names no other.
func privacyRoot(visibility string, named *uuid.UUID, itself uuid.UUID) *uuid.UUID {
	switch {
	case visibility != visibilityPrivate:
		return nil
	case named != nil:
		return named
	default:
		return &itself
	}
}

// requirePrivacyIssue refuses a root or privacy parent that is not a task of the company. Only
// operators name one, and they read all.
func (s *Service) requirePrivacyIssue(ctx context.Context, q db.DBTX, company uuid.UUID, id *uuid.UUID) error {
	if id == nil {
		return nil
	}
	known, err := s.queries.IsIssueInCompany(ctx, q, db.IsIssueInCompanyParams{CompanyID: company, ID: *id})
	return mustExist(known, err, ErrIssueNotFound, "look for an issue")
}

// changePrivacy applies what a change says about privacy. Making a task private leaves the tasks
// below as they are: open children stay open, and the boundary around the workspace protects files
// that they share.
func (c *issueChange) changePrivacy(ctx context.Context) error {
	p := c.patch
	if p.Visibility == nil && !p.PrivacyRootIssueID.Set && !p.PrivacyParentIssueID.Set {
		return nil
	}
	if c.by.Role != RoleOperator {
		return errPrivacy
	}
	for _, id := range []*uuid.UUID{p.PrivacyRootIssueID.Value, p.PrivacyParentIssueID.Value} {
		if err := c.service.requirePrivacyIssue(ctx, c.tx, c.before.CompanyID, id); err != nil {
			return err
		}
	}
	if parent := p.PrivacyParentIssueID.Value; parent != nil && *parent == c.before.ID {
		return ErrValidation.At("body.privacyParentIssueId", "is the task itself")
	}
	if p.Visibility != nil {
		c.after.Visibility = *p.Visibility
	}
	c.after.PrivacyParentIssueID = p.PrivacyParentIssueID.over(c.before.PrivacyParentIssueID)
	c.after.PrivacyRootIssueID = privacyRoot(c.after.Visibility, p.PrivacyRootIssueID.over(c.before.PrivacyRootIssueID), c.before.ID)
	return nil
}

// PrincipalRef names a user or an agent.
type PrincipalRef struct {
	Type string // "user" or "agent"
	ID   uuid.UUID
}

var principalTypes = []string{"user", "agent"}

// AccessGrant lets a principal read a private task, and the private tasks below it.
type AccessGrant struct {
	CompanyID     uuid.UUID
	IssueID       uuid.UUID
	PrincipalType string
	PrincipalID   uuid.UUID
	CreatedAt     time.Time
}

func accessGrantOf(row db.IssueAccessGrant) AccessGrant {
	return AccessGrant{
		CompanyID: row.CompanyID, IssueID: row.IssueID,
		PrincipalType: row.PrincipalType, PrincipalID: row.PrincipalID, CreatedAt: row.CreatedAt,
	}
}

// ListAccessGrants lists who may read a private task beside those that the task names itself.
func (s *Service) ListAccessGrants(ctx context.Context, by Principal, issue uuid.UUID, page Page) (List[AccessGrant], error) {
	after, err := page.after()
	if err != nil {
		return List[AccessGrant]{}, err
	}
	row, err := s.readableIssue(ctx, s.pool, by, issue)
	if err != nil {
		return List[AccessGrant]{}, err
	}
	params := db.ListIssueAccessGrantsParams{
		CompanyID: row.CompanyID, IssueID: row.ID, Rows: page.rows(),
	}
	params.AfterAt, params.AfterID = after.parts()
	rows, err := s.queries.ListIssueAccessGrants(ctx, s.pool, params)
	if err != nil {
		return List[AccessGrant]{}, fmt.Errorf("list access grants: %w", err)
	}
	return pageOf(page, rows, accessGrantOf, func(r db.IssueAccessGrant) place {
		return place{At: r.CreatedAt, ID: r.PrincipalID}
	}), nil
}

// AddAccessGrant lets a principal read a private task. For operators; granting twice answers the
// first grant.
func (s *Service) AddAccessGrant(ctx context.Context, by Principal, issue uuid.UUID, to PrincipalRef) (AccessGrant, error) {
	var grant AccessGrant
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		row, err := s.issueForGrants(ctx, tx, by, issue, to)
		if err != nil {
			return err
		}
		if err := s.requirePrincipal(ctx, tx, row.CompanyID, to); err != nil {
			return err
		}
		adding := db.AddIssueAccessGrantParams{CompanyID: row.CompanyID, IssueID: row.ID, PrincipalType: to.Type, PrincipalID: to.ID}
		if _, err := s.queries.AddIssueAccessGrant(ctx, tx, adding); err != nil {
			return fmt.Errorf("add an access grant: %w", err)
		}
		added, err := s.queries.GetIssueAccessGrant(ctx, tx, db.GetIssueAccessGrantParams(adding))
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrUnavailable.Say("The grant was taken back while it was given; the call is safe to repeat.")
		}
		if err != nil {
			return fmt.Errorf("read an access grant: %w", err)
		}
		grant = accessGrantOf(added)
		return nil
	})
	return grant, err
}

// RemoveAccessGrant takes a grant back. For operators; one that is not there is no mistake.
func (s *Service) RemoveAccessGrant(ctx context.Context, by Principal, issue uuid.UUID, from PrincipalRef) error {
	return s.inTx(ctx, func(tx pgx.Tx) error {
		row, err := s.issueForGrants(ctx, tx, by, issue, from)
		if err != nil {
			return err
		}
		_, err = s.queries.RemoveIssueAccessGrant(ctx, tx, db.RemoveIssueAccessGrantParams{
			CompanyID: row.CompanyID, IssueID: row.ID, PrincipalType: from.Type, PrincipalID: from.ID,
		})
		if err != nil {
			return fmt.Errorf("remove an access grant: %w", err)
		}
		return nil
	})
}

func (s *Service) issueForGrants(ctx context.Context, tx pgx.Tx, by Principal, issue uuid.UUID, ref PrincipalRef) (db.Issue, error) {
	if err := ref.validate(); err != nil {
		return db.Issue{}, err
	}
	row, err := s.readableIssue(ctx, tx, by, issue)
	if err != nil {
		return db.Issue{}, err
	}
	if by.Role != RoleOperator {
		return db.Issue{}, errPrivacy
	}
	return row, nil
}
