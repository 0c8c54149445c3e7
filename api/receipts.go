package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// TerminationReceipt is a provider's confirmation that one leased machine stopped.
type TerminationReceipt struct {
	ID              uuid.UUID    `json:"id" format:"uuid"`
	CompanyID       uuid.UUID    `json:"companyId" format:"uuid"`
	LeaseID         uuid.UUID    `json:"leaseId" format:"uuid"`
	RunID           uuid.UUID    `json:"runId" format:"uuid"`
	Provider        string       `json:"provider" maxLength:"100"`
	ProviderLeaseID string       `json:"providerLeaseId" maxLength:"500"`
	State           ReceiptState `json:"state"`
	Kind            ReceiptKind  `json:"kind"`
	RecordedBy      string       `json:"recordedBy" maxLength:"200"`
	ConfirmedAt     Time         `json:"confirmedAt"`
}

func receiptOf(r authority.Receipt) TerminationReceipt {
	return TerminationReceipt{
		ID: r.ID, CompanyID: r.CompanyID, LeaseID: r.LeaseID, RunID: r.RunID, Provider: r.Provider,
		ProviderLeaseID: r.ProviderLeaseID, State: ReceiptState(r.State), Kind: ReceiptKind(r.Kind),
		RecordedBy: r.RecordedBy, ConfirmedAt: Time(r.ConfirmedAt),
	}
}

// ReceiptCreate records what a provider confirmed.
type ReceiptCreate struct {
	ProviderLeaseID string      `json:"providerLeaseId" minLength:"1" maxLength:"500" doc:"The machine that the provider spoke of."`
	State           string      `json:"state" maxLength:"100" doc:"What the provider said of it. Only stopped and destroyed are proof."`
	Kind            ReceiptKind `json:"kind"`
	RunID           *uuid.UUID  `json:"runId,omitempty" format:"uuid" doc:"If given, the lease must be this run's."`
}

// RecordedReceipt is a receipt, and the lease that it moved on.
type RecordedReceipt struct {
	Receipt TerminationReceipt `json:"receipt"`
	Lease   EnvironmentLease   `json:"lease"`
}

func (s *server) receipts() {
	register(s, endpoint{
		id: "recordTerminationReceipt", method: http.MethodPost, tag: "leases", status: http.StatusCreated,
		path: "/api/environment-leases/{leaseId}/termination-receipts", summary: "Record that a leased machine stopped",
		doc: "For operators. Moves the lease: termination to released or expired with its clean-up done, retained to retained, recovery_cleanup to pending_cleanup. " +
			"422 receipt_rejected names in details.reason why this is no proof: lease_without_run, provider_local, provider_lease_mismatch, lease_run_mismatch or state_not_final.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		LeasePath
		Body ReceiptCreate
	},
	) (*Answer[RecordedReceipt], error) {
		receipt, lease, err := s.rules.RecordReceipt(ctx, by, in.LeaseID, authority.ReceiptInput{
			ProviderLeaseID: in.Body.ProviderLeaseID, State: in.Body.State, Kind: string(in.Body.Kind), RunID: in.Body.RunID,
		})
		return answer(receipt, err, func(r authority.Receipt) RecordedReceipt {
			return RecordedReceipt{Receipt: receiptOf(r), Lease: leaseOf(lease)}
		})
	})
}
