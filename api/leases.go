package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// EnvironmentLease is one machine held for one run.
type EnvironmentLease struct {
	ID                   uuid.UUID             `json:"id" format:"uuid"`
	CompanyID            uuid.UUID             `json:"companyId" format:"uuid"`
	EnvironmentID        uuid.UUID             `json:"environmentId" format:"uuid"`
	HeartbeatRunID       *uuid.UUID            `json:"heartbeatRunId" format:"uuid" nullable:"true"`
	IssueID              *uuid.UUID            `json:"issueId" format:"uuid" nullable:"true"`
	ExecutionWorkspaceID *uuid.UUID            `json:"executionWorkspaceId" format:"uuid" nullable:"true" doc:"A note: the leases of a writer are found by its run."`
	Provider             *string               `json:"provider" nullable:"true" maxLength:"100"`
	ProviderLeaseID      *string               `json:"providerLeaseId" nullable:"true" maxLength:"500" doc:"The provider's id for the machine."`
	Status               LeaseStatus           `json:"status"`
	LeasePolicy          LeasePolicy           `json:"leasePolicy"`
	CleanupStatus        OrNull[CleanupStatus] `json:"cleanupStatus"`
	FailureReason        *string               `json:"failureReason" nullable:"true" maxLength:"1000"`
	ReleasePending       bool                  `json:"releasePending"`
	ReplacedByRunID      *uuid.UUID            `json:"replacedByRunId" format:"uuid" nullable:"true"`
	AcquiredAt           Time                  `json:"acquiredAt"`
	ReleasedAt           *Time                 `json:"releasedAt" nullable:"true"`
	ExpiresAt            *Time                 `json:"expiresAt" nullable:"true"`
	CreatedAt            Time                  `json:"createdAt"`
	UpdatedAt            Time                  `json:"updatedAt"`
	Cleanup              OrNull[LeaseCleanup]  `json:"cleanup" doc:"How far the clean-up of the machine got. Null while nobody began it."`
}

func leaseOf(l authority.Lease) EnvironmentLease {
	return EnvironmentLease{
		ID: l.ID, CompanyID: l.CompanyID, EnvironmentID: l.EnvironmentID, HeartbeatRunID: l.HeartbeatRunID,
		IssueID: l.IssueID, ExecutionWorkspaceID: l.ExecutionWorkspaceID, Provider: l.Provider,
		ProviderLeaseID: l.ProviderLeaseID, Status: LeaseStatus(l.Status), LeasePolicy: LeasePolicy(l.LeasePolicy),
		CleanupStatus: orNull(l.CleanupStatus, func(c string) CleanupStatus { return CleanupStatus(c) }),
		FailureReason: l.FailureReason, ReleasePending: l.ReleasePending, ReplacedByRunID: l.ReplacedByRunID,
		AcquiredAt: Time(l.AcquiredAt), ReleasedAt: timeOf(l.ReleasedAt), ExpiresAt: timeOf(l.ExpiresAt),
		CreatedAt: Time(l.CreatedAt), UpdatedAt: Time(l.UpdatedAt), Cleanup: orNull(l.Cleanup, leaseCleanupOf),
	}
}

// LeaseCreate records a machine.
type LeaseCreate struct {
	EnvironmentID        uuid.UUID      `json:"environmentId" format:"uuid"`
	HeartbeatRunID       *uuid.UUID     `json:"heartbeatRunId,omitempty" format:"uuid" doc:"For which run. A lease without one proves nothing about any."`
	IssueID              *uuid.UUID     `json:"issueId,omitempty" format:"uuid"`
	ExecutionWorkspaceID *uuid.UUID     `json:"executionWorkspaceId,omitempty" format:"uuid"`
	Provider             *string        `json:"provider,omitempty" maxLength:"100"`
	ProviderLeaseID      *string        `json:"providerLeaseId,omitempty" maxLength:"500" doc:"The provider's id for the machine."`
	LeasePolicy          LeasePolicy    `json:"leasePolicy,omitempty" default:"ephemeral"`
	Status               LeaseStatus    `json:"status,omitempty" default:"active"`
	CleanupStatus        *CleanupStatus `json:"cleanupStatus,omitempty"`
	FailureReason        *string        `json:"failureReason,omitempty" maxLength:"1000"`
	ReleasePending       bool           `json:"releasePending,omitempty"`
	ReplacedByRunID      *uuid.UUID     `json:"replacedByRunId,omitempty" format:"uuid"`
	ReleasedAt           *Time          `json:"releasedAt,omitempty"`
	ExpiresAt            *Time          `json:"expiresAt,omitempty"`
}

func (c LeaseCreate) input() authority.LeaseInput {
	return authority.LeaseInput{
		EnvironmentID: c.EnvironmentID, HeartbeatRunID: c.HeartbeatRunID, IssueID: c.IssueID,
		ExecutionWorkspaceID: c.ExecutionWorkspaceID, Provider: c.Provider, ProviderLeaseID: c.ProviderLeaseID,
		LeasePolicy: string(c.LeasePolicy), Status: string(c.Status), CleanupStatus: textOf(c.CleanupStatus),
		FailureReason: c.FailureReason, ReleasePending: c.ReleasePending, ReplacedByRunID: c.ReplacedByRunID,
		ReleasedAt: c.ReleasedAt.pointer(), ExpiresAt: c.ExpiresAt.pointer(),
	}
}

// LeaseUpdate changes what it names. null clears what can be empty.
type LeaseUpdate struct {
	Status               *LeaseStatus          `json:"status,omitempty"`
	CleanupStatus        Change[CleanupStatus] `json:"cleanupStatus,omitzero"`
	FailureReason        Change[string]        `json:"failureReason,omitzero" maxLength:"1000"`
	ReleasePending       *bool                 `json:"releasePending,omitempty"`
	ReplacedByRunID      Change[uuid.UUID]     `json:"replacedByRunId,omitzero" format:"uuid"`
	ReleasedAt           Change[Time]          `json:"releasedAt,omitzero"`
	ExpiresAt            Change[Time]          `json:"expiresAt,omitzero"`
	IssueID              Change[uuid.UUID]     `json:"issueId,omitzero" format:"uuid"`
	ExecutionWorkspaceID Change[uuid.UUID]     `json:"executionWorkspaceId,omitzero" format:"uuid"`
}

func (u LeaseUpdate) patch() authority.LeasePatch {
	return authority.LeasePatch{
		Status:        textOf(u.Status),
		CleanupStatus: change(u.CleanupStatus, func(c CleanupStatus) string { return string(c) }),
		FailureReason: change(u.FailureReason, same), ReleasePending: u.ReleasePending,
		ReplacedByRunID: change(u.ReplacedByRunID, same), ReleasedAt: change(u.ReleasedAt, instant),
		ExpiresAt: change(u.ExpiresAt, instant), IssueID: change(u.IssueID, same),
		ExecutionWorkspaceID: change(u.ExecutionWorkspaceID, same),
	}
}

// LeasePath names a lease.
type LeasePath struct {
	LeaseID uuid.UUID `path:"leaseId" format:"uuid"`
}

// LeaseFilter narrows a list of leases.
type LeaseFilter struct {
	HeartbeatRunID QueryID     `query:"heartbeatRunId"`
	Status         LeaseStatus `query:"status"`
}

func (s *server) leases() {
	const ofCompany, one = "/api/companies/{companyId}/environment-leases", "/api/environment-leases/{leaseId}"
	register(s, endpoint{
		id: "listEnvironmentLeases", method: http.MethodGet, path: ofCompany, tag: "leases",
		summary: "List a company's leases",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		LeaseFilter
		PageQuery
	},
	) (*Answer[List[EnvironmentLease]], error) {
		filter := authority.LeaseFilter{HeartbeatRunID: in.HeartbeatRunID.pointer(), Status: text(in.Status)}
		list, err := s.rules.ListLeases(ctx, by, in.CompanyID, filter, in.page())
		return listOf(list, err, leaseOf)
	})
	register(s, endpoint{
		id: "createEnvironmentLease", method: http.MethodPost, path: ofCompany, tag: "leases", status: http.StatusCreated,
		summary: "Record a machine that is held for a run", doc: "For operators.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		IdempotencyKey
		Body LeaseCreate
	},
	) (*Answer[EnvironmentLease], error) {
		lease, err := s.rules.CreateLease(ctx, by, in.CompanyID, in.Body.input(), in.once(ctx))
		return answer(lease, err, leaseOf)
	})
	register(s, endpoint{
		id: "getEnvironmentLease", method: http.MethodGet, path: one, tag: "leases",
		summary: "Read a lease",
	}, func(ctx context.Context, by authority.Principal, in *struct{ LeasePath }) (*Answer[EnvironmentLease], error) {
		lease, err := s.rules.GetLease(ctx, by, in.LeaseID)
		return answer(lease, err, leaseOf)
	})
	register(s, endpoint{
		id: "updateEnvironmentLease", method: http.MethodPatch, path: one, tag: "leases",
		summary: "Move a lease on",
		doc:     "For operators. A lease goes forward only: what left active never returns to it. Its environment, run, provider and the provider's id never change.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		LeasePath
		Body LeaseUpdate
	},
	) (*Answer[EnvironmentLease], error) {
		lease, err := s.rules.UpdateLease(ctx, by, in.LeaseID, in.Body.patch())
		return answer(lease, err, leaseOf)
	})
}
