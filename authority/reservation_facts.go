package authority

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"berth/db"
)

// reservationFacts is all that a decision about a reservation rests on.
type reservationFacts struct {
	company uuid.UUID
	by      Principal
	asked   ReserveInput
	once    Once
	// silentAfter is how long a writer may not be heard of before it counts as silent.
	silentAfter time.Duration

	found  db.GetReservationFactsRow
	leases []LeaseProof // the machines of the workspace's writer
}

// LeaseProof says of one machine of a run whether it is proven stopped. Missing is empty when it
// is, and else the reason why not; Kind and ReceiptID tell of the proof.
type LeaseProof struct {
	LeaseID   uuid.UUID
	Provider  string
	Kind      string
	ReceiptID string
	Missing   string
}

// reservationReads are the facts on their way.
type reservationReads struct {
	asking reservationFacts
	found  *[]db.GetReservationFactsRow
	leases *[]db.ListLeaseProofsOfWriterRow
}

// queueReservationLocks queues the locks that make the facts last until the act. The workspace's is
// waited for only patiently: without it the facts are good for a refusal, and for nothing else.
func queueReservationLocks(p *db.Pipeline, asking reservationFacts, patiently bool) (workspace *[]struct{ ID uuid.UUID }) {
	company, in := asking.company, asking.asked
	db.LockIssueForReservationStatement.Rows(p, db.LockIssueForReservationParams{CompanyID: company, IssueID: in.IssueID})
	bound := db.LockBoundWorkspaceForReservationParams{CompanyID: company, IssueID: in.IssueID}
	if patiently {
		workspace = db.LockBoundWorkspaceStatement.Rows(p, bound)
	} else {
		workspace = db.TryLockBoundWorkspaceStatement.Rows(p, db.TryLockBoundWorkspaceForReservationParams(bound))
	}
	db.LockRunsForReservationStatement.Rows(p, db.LockRunsForReservationParams{
		CompanyID: company, RunID: in.RunID, IssueID: in.IssueID,
	})
	return workspace
}

// queueReservationReads queues the facts. They come in statements of their own after the locks: in
// one that waited for a lock they would be as old as its snapshot.
func queueReservationReads(p *db.Pipeline, asking reservationFacts) reservationReads {
	return reservationReads{
		asking: asking,
		found:  db.ReservationFactsStatement.Rows(p, asking.params()),
		leases: db.LeaseProofsOfWriterStatement.Rows(p, db.ListLeaseProofsOfWriterParams{
			CompanyID: asking.company, IssueID: asking.asked.IssueID,
		}),
	}
}

func (f reservationFacts) params() db.GetReservationFactsParams {
	readerType, readerID := f.by.reader()
	in := f.asked
	params := db.GetReservationFactsParams{
		CompanyID: f.company, IssueID: in.IssueID, RunID: in.RunID,
		ReaderType: readerType, ReaderID: readerID,
		AgentID: in.AgentID, EnvironmentID: in.EnvironmentID,
		ProjectID: in.ProjectID, ProjectWorkspaceID: in.ProjectWorkspaceID,
		AskedWorkspaceID: in.ExistingWorkspaceID, Source: in.Source,
		SilentAfterSeconds: f.silentAfter.Seconds(),
	}
	if f.once.Key != "" {
		actor := f.by.Actor()
		params.Principal, params.ReservationKey = &actor, &f.once.Key
	}
	return params
}

// answered puts together what the reads found, once their pipeline ran.
func (r reservationReads) answered() reservationFacts {
	f := r.asking
	f.found = (*r.found)[0]
	for _, p := range *r.leases {
		f.leases = append(f.leases, leaseProofOf(p.LeaseID, p.Provider, p.ReceiptID, p.ProofKind, p.Missing))
	}
	return f
}

func leaseProofOf(lease uuid.UUID, provider *string, receipt, kind, missing string) LeaseProof {
	p := LeaseProof{LeaseID: lease, ReceiptID: receipt, Kind: kind, Missing: missing}
	if provider != nil {
		p.Provider = *provider
	}
	return p
}

// companyOfIssue finds the company that a call about a task happens in: the caller's own, or for an
// operator the task's.
func (s *Service) companyOfIssue(ctx context.Context, by Principal, issue uuid.UUID) (uuid.UUID, error) {
	if by.Role == RoleRun {
		return by.CompanyID, nil
	}
	row, err := s.readableIssue(ctx, s.pool, by, issue)
	if err != nil {
		return uuid.Nil, err
	}
	return row.CompanyID, nil
}

// provenStopped reports whether a run with these machines is proven stopped: it has at least one,
// and each has proof. No machine is no proof.
func provenStopped(leases []LeaseProof) bool {
	for _, l := range leases {
		if l.Missing != "" {
			return false
		}
	}
	return len(leases) > 0
}

// missingProof lists the machines without proof; it is never nil.
func missingProof(leases []LeaseProof) []MissingProof {
	missing := []MissingProof{}
	for _, l := range leases {
		if l.Missing != "" {
			missing = append(missing, MissingProof{LeaseID: l.LeaseID, Provider: l.Provider, Reason: l.Missing})
		}
	}
	return missing
}

// proofDocument is what a tenure keeps of the proof on which it was ended.
func proofDocument(leases []LeaseProof) json.RawMessage {
	type receipt struct {
		LeaseID   uuid.UUID `json:"leaseId"`
		Kind      string    `json:"kind"`
		ReceiptID string    `json:"receiptId"`
	}
	receipts := []receipt{}
	for _, l := range leases {
		if l.Missing == "" {
			receipts = append(receipts, receipt{LeaseID: l.LeaseID, Kind: l.Kind, ReceiptID: l.ReceiptID})
		}
	}
	document, _ := json.Marshal(receipts) // strings and UUIDs always marshal
	return document
}
