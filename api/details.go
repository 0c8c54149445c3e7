package api

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"berth/authority"
)

// The details of refusals, as the API writes them. A problem's schema says of them only that they are an object: they
// are described with the operations that give them.

type writerPending struct {
	State        string         `json:"state"`
	Holder       *holder        `json:"holder"`
	Stop         *stopPending   `json:"stopRequested"`
	MissingProof []missingProof `json:"missingProof"`
	Position     *int64         `json:"position"`
	RetryAfterMs int64          `json:"retryAfterMs"`
}

type holder struct {
	RunID         uuid.UUID  `json:"runId"`
	IssueID       *uuid.UUID `json:"issueId"`
	Epoch         int64      `json:"epoch"`
	Since         Time       `json:"since"`
	RunStatus     string     `json:"runStatus"`
	LastRenewedAt *Time      `json:"lastRenewedAt"`
}

type stopPending struct {
	Reason   string `json:"reason"`
	Deadline Time   `json:"deadline"`
	State    string `json:"state"`
}

type missingProof struct {
	LeaseID  uuid.UUID `json:"leaseId"`
	Provider string    `json:"provider"`
	Reason   string    `json:"reason"`
}

type tenureEnding struct {
	EndedAt Time    `json:"endedAt"`
	How     string  `json:"how"`
	By      string  `json:"by"`
	Reason  *string `json:"reason"`
}

type takeoverProof struct {
	MissingProof []missingProof `json:"missingProof"`
}

type recoveryProof struct {
	RunID        uuid.UUID      `json:"runId"`
	RunStatus    string         `json:"runStatus"`
	MissingProof []missingProof `json:"missingProof"`
}

type receiptRejection struct {
	Reason string `json:"reason"`
}

// detailsOf converts the details of a refusal, or of an explanation.
func detailsOf(details any) (Object, error) {
	var out any
	switch d := details.(type) {
	case nil:
		return nil, nil
	case authority.WriterPending:
		out = writerPending{
			State: d.State, Holder: holderOf(d.Holder), Stop: stopPendingOf(d.Stop), MissingProof: missingProofOf(d.MissingProof),
			Position: d.Position, RetryAfterMs: int64(d.RetryAfter / time.Millisecond),
		}
	case authority.TenureEnding:
		out = tenureEnding{EndedAt: Time(d.EndedAt), How: d.How, By: d.By, Reason: d.Reason}
	case authority.TakeoverProof:
		out = takeoverProof{MissingProof: missingProofOf(d.MissingProof)}
	case authority.RecoveryProof:
		out = recoveryProof{RunID: d.RunID, RunStatus: d.RunStatus, MissingProof: missingProofOf(d.MissingProof)}
	case authority.ReceiptRejection:
		out = receiptRejection{Reason: d.Reason}
	default:
		return nil, fmt.Errorf("the details of a refusal are a %T, which the API has no form for", details)
	}
	return json.Marshal(out)
}

func holderOf(h *authority.Holder) *holder {
	if h == nil {
		return nil
	}
	return &holder{
		RunID: h.RunID, IssueID: h.IssueID, Epoch: h.Epoch, Since: Time(h.Since), RunStatus: h.RunStatus,
		LastRenewedAt: timeOf(h.LastRenewedAt),
	}
}

func stopPendingOf(p *authority.StopPending) *stopPending {
	if p == nil {
		return nil
	}
	return &stopPending{Reason: p.Reason, Deadline: Time(p.Deadline), State: p.State}
}

func missingProofOf(missing []authority.MissingProof) []missingProof {
	out := make([]missingProof, 0, len(missing))
	for _, m := range missing {
		out = append(out, missingProof{LeaseID: m.LeaseID, Provider: m.Provider, Reason: m.Reason})
	}
	return out
}
