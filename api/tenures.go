package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// Tenure is the interval in which one run was the writer, at one epoch.
type Tenure struct {
	ID          uuid.UUID         `json:"id" format:"uuid"`
	CompanyID   uuid.UUID         `json:"companyId" format:"uuid"`
	WorkspaceID uuid.UUID         `json:"workspaceId" format:"uuid"`
	Epoch       int64             `json:"epoch" minimum:"0" maximum:"9007199254740991"`
	RunID       uuid.UUID         `json:"runId" format:"uuid"`
	IssueID     *uuid.UUID        `json:"issueId" format:"uuid" nullable:"true"`
	StartedAt   Time              `json:"startedAt"`
	StartedBy   string            `json:"startedBy" maxLength:"200" doc:"run:<id> or token:<id>."`
	Handover    OrNull[Handover]  `json:"handover" doc:"Whom the run followed, if the tenure before did not end by itself."`
	EndedAt     *Time             `json:"endedAt" nullable:"true" doc:"Null while it lasts."`
	EndedHow    OrNull[TenureEnd] `json:"endedHow"`
	EndedBy     *string           `json:"endedBy" nullable:"true" maxLength:"200"`
	EndedReason *string           `json:"endedReason" nullable:"true" maxLength:"2000"`
	UnsavedWork bool              `json:"unsavedWork" doc:"It ended with work that was never saved."`
	Unproven    bool              `json:"unproven" doc:"It was ended without proof that the run stopped."`
	Proof       []ProvenStop      `json:"proof" doc:"The receipts on which it was ended."`
}

// ProvenStop names the receipt that proved one machine stopped.
type ProvenStop struct {
	LeaseID   uuid.UUID   `json:"leaseId" format:"uuid"`
	ReceiptID uuid.UUID   `json:"receiptId" format:"uuid"`
	Kind      ReceiptKind `json:"kind"`
}

func tenureOf(t authority.Tenure) Tenure {
	out := Tenure{
		ID: t.ID, CompanyID: t.CompanyID, WorkspaceID: t.WorkspaceID, Epoch: t.Epoch, RunID: t.RunID, IssueID: t.IssueID,
		StartedAt: Time(t.StartedAt), StartedBy: t.StartedBy, EndedAt: timeOf(t.EndedAt),
		EndedHow: orNull(t.EndedHow, func(how string) TenureEnd { return TenureEnd(how) }),
		EndedBy:  t.EndedBy, EndedReason: t.EndedReason, UnsavedWork: t.UnsavedWork, Unproven: t.Unproven,
		Proof: []ProvenStop{},
	}
	// Both documents were written by the service itself; of one that it cannot read the rest of the history is
	// still worth showing.
	var handover *Handover
	if json.Unmarshal(t.Handover, &handover) == nil {
		out.Handover = OrNull[Handover]{Value: handover}
	}
	var proof []ProvenStop
	if json.Unmarshal(t.Proof, &proof) == nil {
		out.Proof = append(out.Proof, proof...)
	}
	return out
}

// Claim is what a writer shows with each of its calls.
type Claim struct {
	RunID uuid.UUID `json:"runId" format:"uuid"`
	Epoch int64     `json:"epoch" minimum:"0" maximum:"9007199254740991" doc:"As the reservation answered it."`
}

func (c Claim) fence(workspace uuid.UUID) authority.Fence {
	return authority.Fence{WorkspaceID: workspace, RunID: c.RunID, Epoch: c.Epoch}
}

// Renewal answers a writer that says it is there.
type Renewal struct {
	LastRenewedAt  Time               `json:"lastRenewedAt"`
	StopRequested  OrNull[StopNotice] `json:"stopRequested" doc:"If the run should end by itself."`
	Token          *string            `json:"token" nullable:"true" maxLength:"4096" doc:"A fresh token of the run, once the old one's life is half over."`
	TokenExpiresAt *Time              `json:"tokenExpiresAt" nullable:"true"`
}

// StopNotice asks a writer to end by itself.
type StopNotice struct {
	Reason   string `json:"reason" maxLength:"2000"`
	Deadline Time   `json:"deadline" doc:"By when. Afterwards the providers of its machines are asked to stop them."`
}

func renewalOf(r authority.Renewal) Renewal {
	return Renewal{
		LastRenewedAt: Time(r.LastRenewedAt),
		StopRequested: orNull(r.StopRequested, func(s authority.StopNotice) StopNotice {
			return StopNotice{Reason: s.Reason, Deadline: Time(s.Deadline)}
		}),
		Token: r.Token, TokenExpiresAt: timeOf(r.TokenExpiresAt),
	}
}

// LocationReport says where the writer's files are.
type LocationReport struct {
	Claim
	Location *Object `json:"location" nullable:"true" doc:"Any object. Null: nowhere."`
}

// ReleaseRequest ends a tenure.
type ReleaseRequest struct {
	Claim
	Discard bool `json:"discard,omitempty" doc:"Give unsaved work up. The history keeps that there was some."`
}

const fenceDoc = "Only by the writer's own token: 403 run_identity_mismatch. 409 tenure_ended, with details {endedAt, how, by, reason}, when the run no longer holds that epoch; 409 stale_epoch for any other."

func (s *server) tenures() {
	const path = "/api/execution-workspaces/{workspaceId}"
	register(s, endpoint{
		id: "renewTenure", method: http.MethodPost, path: path + "/renew", tag: "tenures",
		summary: "Say that the writer is there", doc: fenceDoc,
	}, func(ctx context.Context, by authority.Principal, in *struct {
		WorkspacePath
		Body Claim
	},
	) (*Answer[Renewal], error) {
		renewal, err := s.rules.Renew(ctx, by, in.Body.fence(in.WorkspaceID))
		return answer(renewal, err, renewalOf)
	})
	register(s, endpoint{
		id: "markDirty", method: http.MethodPost, path: path + "/dirty", tag: "tenures",
		summary: "Say that the files may from now on differ from what is saved",
		doc:     "Before they do, and again before writing on after they were read for a save. " + fenceDoc,
	}, func(ctx context.Context, by authority.Principal, in *struct {
		WorkspacePath
		Body Claim
	},
	) (*Answer[ExecutionWorkspace], error) {
		workspace, err := s.rules.MarkDirty(ctx, by, in.Body.fence(in.WorkspaceID))
		return answer(workspace, err, workspaceOf)
	})
	register(s, endpoint{
		id: "setLocation", method: http.MethodPost, path: path + "/location", tag: "tenures",
		summary: "Say where the writer's files are", doc: fenceDoc,
	}, func(ctx context.Context, by authority.Principal, in *struct {
		WorkspacePath
		Body LocationReport
	},
	) (*Answer[ExecutionWorkspace], error) {
		workspace, err := s.rules.SetLocation(ctx, by, in.Body.fence(in.WorkspaceID), in.Body.Location.raw())
		return answer(workspace, err, workspaceOf)
	})
	register(s, endpoint{
		id: "releaseWorkspace", method: http.MethodPost, path: path + "/release", tag: "tenures",
		summary: "End the tenure", doc: "409 workspace_dirty when there is unsaved work, unless discard is true. " + fenceDoc,
	}, func(ctx context.Context, by authority.Principal, in *struct {
		WorkspacePath
		Body ReleaseRequest
	},
	) (*Answer[ExecutionWorkspace], error) {
		workspace, err := s.rules.Release(ctx, by, in.Body.fence(in.WorkspaceID), in.Body.Discard)
		return answer(workspace, err, workspaceOf)
	})
	register(s, endpoint{
		id: "listTenures", method: http.MethodGet, path: path + "/tenures", tag: "history",
		summary: "List who wrote a workspace, and when", doc: "Newest first.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		WorkspacePath
		PageQuery
	},
	) (*Answer[List[Tenure]], error) {
		list, err := s.rules.ListTenures(ctx, by, in.WorkspaceID, in.page())
		return listOf(list, err, tenureOf)
	})
}
