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

// Lease is one machine that is held for one run, with the provider's own id for it. Which
// environment, run and machine it speaks of never changes; its status goes forward only.
type Lease struct {
	ID                   uuid.UUID
	CompanyID            uuid.UUID
	EnvironmentID        uuid.UUID
	HeartbeatRunID       *uuid.UUID
	IssueID              *uuid.UUID
	ExecutionWorkspaceID *uuid.UUID // a note: the leases of a writer are found by its run
	Provider             *string
	ProviderLeaseID      *string
	Status               string
	LeasePolicy          string
	CleanupStatus        *string
	FailureReason        *string
	ReleasePending       bool
	ReplacedByRunID      *uuid.UUID
	AcquiredAt           time.Time
	ReleasedAt           *time.Time
	ExpiresAt            *time.Time
	CreatedAt            time.Time
	UpdatedAt            time.Time
	Cleanup              *LeaseCleanup // nil while no sweep began it
}

func leaseOf(row db.EnvironmentLease) Lease {
	return Lease{
		ID: row.ID, CompanyID: row.CompanyID, EnvironmentID: row.EnvironmentID, HeartbeatRunID: row.HeartbeatRunID,
		IssueID: row.IssueID, ExecutionWorkspaceID: row.ExecutionWorkspaceID, Provider: row.Provider,
		ProviderLeaseID: row.ProviderLeaseID, Status: row.Status, LeasePolicy: row.LeasePolicy,
		CleanupStatus: row.CleanupStatus, FailureReason: row.FailureReason, ReleasePending: row.ReleasePending,
		ReplacedByRunID: row.ReplacedByRunID, AcquiredAt: row.AcquiredAt, ReleasedAt: row.ReleasedAt,
		ExpiresAt: row.ExpiresAt, CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt,
	}
}

// The statuses of a lease.
const (
	leaseActive         = "active"
	leaseReleased       = "released"
	leaseExpired        = "expired"
	leaseFailed         = "failed"
	leaseRetained       = "retained"
	leasePendingCleanup = "pending_cleanup"
)

// How far the clean-up of a leased machine got.
const (
	cleanupPending = "pending"
	cleanupSuccess = "success"
	cleanupFailed  = "failed"
)

var (
	leaseStatuses   = []string{leaseActive, leaseReleased, leaseExpired, leaseFailed, leaseRetained, leasePendingCleanup}
	leasePolicies   = []string{"ephemeral", "reuse_by_environment", "reuse_by_execution_workspace", "retain_on_failure"}
	cleanupStatuses = []string{cleanupPending, cleanupSuccess, cleanupFailed}
)

// LeaseInput is what a new lease is made from. Empty strings and nil mean the default.
type LeaseInput struct {
	EnvironmentID        uuid.UUID
	HeartbeatRunID       *uuid.UUID
	IssueID              *uuid.UUID
	ExecutionWorkspaceID *uuid.UUID
	Provider             *string
	ProviderLeaseID      *string
	LeasePolicy          string // "" means ephemeral
	Status               string // "" means active
	CleanupStatus        *string
	FailureReason        *string
	ReleasePending       bool
	ReplacedByRunID      *uuid.UUID
	ReleasedAt           *time.Time
	ExpiresAt            *time.Time
}

func (in LeaseInput) validate() error {
	refused := validation{}
	refused.oneOf("body.leasePolicy", in.LeasePolicy, leasePolicies)
	refused.oneOf("body.status", in.Status, leaseStatuses)
	if in.CleanupStatus != nil {
		refused.text("body.cleanupStatus", *in.CleanupStatus)
		refused.oneOf("body.cleanupStatus", *in.CleanupStatus, cleanupStatuses)
	}
	return refused.err()
}

// CreateLease records a machine that is held for a run. For operators.
func (s *Service) CreateLease(ctx context.Context, by Principal, company uuid.UUID, in LeaseInput, once Once) (Lease, error) {
	if err := in.validate(); err != nil {
		return Lease{}, err
	}
	lease, _, err := createOnce(ctx, s, by, &company, once, func(tx pgx.Tx) (Lease, error) {
		if err := s.requireCompanyAdministration(ctx, tx, by, company); err != nil {
			return Lease{}, err
		}
		if in.HeartbeatRunID != nil {
			if err := s.lockRunOfLease(ctx, tx, company, *in.HeartbeatRunID); err != nil {
				return Lease{}, err
			}
		}
		known, err := s.queries.IsEnvironmentKnown(ctx, tx, in.EnvironmentID)
		if err := mustExist(known, err, ErrEnvironmentNotFound, "look for an environment"); err != nil {
			return Lease{}, err
		}
		links := leaseLinks{issue: in.IssueID, workspace: in.ExecutionWorkspaceID, replacedBy: in.ReplacedByRunID}
		if err := s.requireLeaseLinks(ctx, tx, company, links); err != nil {
			return Lease{}, err
		}
		return s.insertLease(ctx, tx, company, in)
	})
	return lease, err
}

func (s *Service) insertLease(ctx context.Context, tx pgx.Tx, company uuid.UUID, in LeaseInput) (Lease, error) {
	if in.LeasePolicy == "" {
		in.LeasePolicy = "ephemeral"
	}
	if in.Status == "" {
		in.Status = leaseActive
	}
	row, err := s.queries.InsertLease(ctx, tx, db.InsertLeaseParams{
		ID: newID(), CompanyID: company, EnvironmentID: in.EnvironmentID, HeartbeatRunID: in.HeartbeatRunID,
		IssueID: in.IssueID, ExecutionWorkspaceID: in.ExecutionWorkspaceID, Provider: in.Provider,
		ProviderLeaseID: in.ProviderLeaseID, Status: in.Status, LeasePolicy: in.LeasePolicy,
		CleanupStatus: in.CleanupStatus, FailureReason: in.FailureReason, ReleasePending: in.ReleasePending,
		ReplacedByRunID: in.ReplacedByRunID, ReleasedAt: in.ReleasedAt, ExpiresAt: in.ExpiresAt,
	})
	if err != nil {
		return Lease{}, fmt.Errorf("insert a lease: %w", err)
	}
	return leaseOf(row), nil
}

// lockRunOfLease takes the locks that come before a lease's own: the workspace that the run holds,
// then the run. A handover over the run reads its leases under the same two, so it either knows
// this write or comes before it.
func (s *Service) lockRunOfLease(ctx context.Context, tx pgx.Tx, company, run uuid.UUID) error {
	held := db.LockWorkspaceOfLeaseRunParams{CompanyID: company, RunID: run}
	if _, err := s.queries.LockWorkspaceOfLeaseRun(ctx, tx, held); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("lock the workspace of a run: %w", err)
	}
	locked, err := s.queries.LockRunForLease(ctx, tx, db.LockRunForLeaseParams{CompanyID: company, RunID: run})
	_, err = found(locked, err, ErrRunNotFound, "lock the run of a lease")
	return err
}

// lockLease takes all locks of a lease's write, and returns the lease as it is then.
func (s *Service) lockLease(ctx context.Context, tx pgx.Tx, id uuid.UUID) (db.EnvironmentLease, error) {
	row, err := s.queries.GetLease(ctx, tx, id)
	if row, err = found(row, err, ErrLeaseNotFound, "read a lease"); err != nil {
		return row, err
	}
	if row.HeartbeatRunID != nil { // which never changes, so that it may be read before the lock
		if err := s.lockRunOfLease(ctx, tx, row.CompanyID, *row.HeartbeatRunID); err != nil {
			return row, err
		}
	}
	if row, err = s.queries.LockLease(ctx, tx, id); err != nil {
		return row, fmt.Errorf("lock a lease: %w", err)
	}
	return row, nil
}

// leaseLinks are the rows of the company that a lease names.
type leaseLinks struct {
	issue      *uuid.UUID
	workspace  *uuid.UUID
	replacedBy *uuid.UUID
}

// requireLeaseLinks refuses what does not exist in the company.
func (s *Service) requireLeaseLinks(ctx context.Context, q db.DBTX, company uuid.UUID, links leaseLinks) error {
	if links.issue != nil {
		known, err := s.queries.IsIssueInCompany(ctx, q, db.IsIssueInCompanyParams{CompanyID: company, ID: *links.issue})
		if err := mustExist(known, err, ErrIssueNotFound, "look for an issue"); err != nil {
			return err
		}
	}
	if links.workspace != nil {
		known, err := s.queries.IsWorkspaceInCompany(ctx, q, db.IsWorkspaceInCompanyParams{CompanyID: company, ID: *links.workspace})
		if err := mustExist(known, err, ErrWorkspaceNotFound, "look for a workspace"); err != nil {
			return err
		}
	}
	return s.requireRuns(ctx, q, company, links.replacedBy)
}

// GetLease returns a lease. For operators and auditors.
func (s *Service) GetLease(ctx context.Context, by Principal, id uuid.UUID) (Lease, error) {
	if !by.ReadsAll() {
		return Lease{}, ErrLeaseNotFound
	}
	row, err := s.queries.GetLease(ctx, s.pool, id)
	if row, err = found(row, err, ErrLeaseNotFound, "read a lease"); err != nil {
		return Lease{}, err
	}
	lease := []Lease{leaseOf(row)}
	err = s.addCleanups(ctx, s.pool, lease)
	return lease[0], err
}

// LeaseFilter narrows a list of leases to those that have every value that is given.
type LeaseFilter struct {
	HeartbeatRunID *uuid.UUID
	Status         *string
}

// ListLeases lists the leases of a company, the oldest first. For operators and auditors.
func (s *Service) ListLeases(ctx context.Context, by Principal, company uuid.UUID, filter LeaseFilter, page Page) (List[Lease], error) {
	after, err := page.after()
	if err != nil {
		return List[Lease]{}, err
	}
	if err := s.requireCompanyRead(ctx, s.pool, by, company); err != nil {
		return List[Lease]{}, err
	}
	if !by.ReadsAll() {
		return List[Lease]{}, ErrNotAllowed
	}
	params := db.ListLeasesParams{
		CompanyID: company, HeartbeatRunID: filter.HeartbeatRunID, Status: filter.Status,
		Rows: page.rows(),
	}
	params.AfterAt, params.AfterID = after.parts()
	rows, err := s.queries.ListLeases(ctx, s.pool, params)
	if err != nil {
		return List[Lease]{}, fmt.Errorf("list leases: %w", err)
	}
	list := pageOf(page, rows, leaseOf, func(r db.EnvironmentLease) place { return place{At: r.CreatedAt, ID: r.ID} })
	return list, s.addCleanups(ctx, s.pool, list.Items)
}

// LeasePatch changes a lease. What is nil, or not set, stays.
type LeasePatch struct {
	Status               *string
	CleanupStatus        Optional[string]
	FailureReason        Optional[string]
	ReleasePending       *bool
	ReplacedByRunID      Optional[uuid.UUID]
	ReleasedAt           Optional[time.Time]
	ExpiresAt            Optional[time.Time]
	IssueID              Optional[uuid.UUID]
	ExecutionWorkspaceID Optional[uuid.UUID]
}

func (p LeasePatch) validate() error {
	refused := validation{}
	if p.Status != nil {
		refused.text("body.status", *p.Status)
		refused.oneOf("body.status", *p.Status, leaseStatuses)
	}
	if p.CleanupStatus.Value != nil {
		refused.text("body.cleanupStatus", *p.CleanupStatus.Value)
		refused.oneOf("body.cleanupStatus", *p.CleanupStatus.Value, cleanupStatuses)
	}
	return refused.err()
}

// UpdateLease changes a lease. For operators. It is never proof that a machine stopped: only a
// receipt is. A lease that left active never returns (ErrLeaseForward), nor does one whose machine
// is known to be cleaned away move on.
func (s *Service) UpdateLease(ctx context.Context, by Principal, id uuid.UUID, patch LeasePatch) (Lease, error) {
	if err := requireLeaseOperator(by); err != nil {
		return Lease{}, err
	}
	if err := patch.validate(); err != nil {
		return Lease{}, err
	}
	var changed Lease
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		before, err := s.lockLease(ctx, tx, id)
		if err != nil {
			return err
		}
		links := leaseLinks{
			issue: patch.IssueID.Value, workspace: patch.ExecutionWorkspaceID.Value, replacedBy: patch.ReplacedByRunID.Value,
		}
		if err := s.requireLeaseLinks(ctx, tx, before.CompanyID, links); err != nil {
			return err
		}
		row, err := s.queries.WriteLease(ctx, tx, patch.over(before))
		if err != nil {
			return fmt.Errorf("write a lease: %w", err)
		}
		lease := []Lease{leaseOf(row)}
		err = s.addCleanups(ctx, tx, lease)
		changed = lease[0]
		return err
	})
	return changed, err
}

func (p LeasePatch) over(before db.EnvironmentLease) db.WriteLeaseParams {
	after := db.WriteLeaseParams{
		ID: before.ID, CompanyID: before.CompanyID, FromStatus: before.Status, Status: before.Status,
		ReleasePending: before.ReleasePending,
		IssueID:        p.IssueID.over(before.IssueID), ExecutionWorkspaceID: p.ExecutionWorkspaceID.over(before.ExecutionWorkspaceID),
		CleanupStatus: p.CleanupStatus.over(before.CleanupStatus), FailureReason: p.FailureReason.over(before.FailureReason),
		ReplacedByRunID: p.ReplacedByRunID.over(before.ReplacedByRunID),
		ReleasedAt:      p.ReleasedAt.over(before.ReleasedAt), ExpiresAt: p.ExpiresAt.over(before.ExpiresAt),
	}
	if p.Status != nil {
		after.Status = *p.Status
	}
	if p.ReleasePending != nil {
		after.ReleasePending = *p.ReleasePending
	}
	return after
}

// requireLeaseOperator hides leases from those who do not read them, and refuses to those who only
// read them.
func requireLeaseOperator(by Principal) error {
	if !by.ReadsAll() {
		return ErrLeaseNotFound
	}
	return by.requireOperator()
}
