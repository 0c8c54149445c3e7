package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"berth/authority"
)

// Snapshot is a complete saved state of a workspace's files. It never changes once it is committed.
type Snapshot struct {
	ID               uuid.UUID     `json:"id" format:"uuid"`
	CompanyID        uuid.UUID     `json:"companyId" format:"uuid"`
	WorkspaceID      uuid.UUID     `json:"workspaceId" format:"uuid"`
	Epoch            int64         `json:"epoch" minimum:"0" maximum:"9007199254740991" doc:"At which it was made."`
	RunID            *uuid.UUID    `json:"runId" format:"uuid" nullable:"true" doc:"By which it was made."`
	ParentSnapshotID *uuid.UUID    `json:"parentSnapshotId" format:"uuid" nullable:"true" doc:"The saved state that it follows."`
	State            SnapshotState `json:"state"`
	Size             *int64        `json:"size" nullable:"true" minimum:"0" maximum:"9007199254740991" doc:"Bytes of the archive. Null as long as nobody knows, as the next two."`
	FileCount        *int64        `json:"fileCount" nullable:"true" minimum:"0" maximum:"9007199254740991"`
	SHA256           *string       `json:"sha256" nullable:"true" maxLength:"64" pattern:"^[0-9a-f]{64}$" doc:"Of the archive."`
	Name             *string       `json:"name" nullable:"true" maxLength:"200"`
	CreatedBy        string        `json:"createdBy" maxLength:"200"`
	CreatedAt        Time          `json:"createdAt"`
	CommittedAt      *Time         `json:"committedAt" nullable:"true"`
}

func snapshotOf(s authority.Snapshot) Snapshot {
	return Snapshot{
		ID: s.ID, CompanyID: s.CompanyID, WorkspaceID: s.WorkspaceID, Epoch: s.Epoch, RunID: s.RunID,
		ParentSnapshotID: s.ParentSnapshotID, State: SnapshotState(s.State), Size: s.Size, FileCount: s.FileCount,
		SHA256: s.SHA256, Name: s.Name, CreatedBy: s.CreatedBy, CreatedAt: Time(s.CreatedAt),
		CommittedAt: timeOf(s.CommittedAt),
	}
}

// SnapshotCreate announces a save.
type SnapshotCreate struct {
	Claim
	SHA256           string    `json:"sha256" maxLength:"64" pattern:"^[0-9a-f]{64}$" doc:"Of the archive."`
	Size             int64     `json:"size" minimum:"0" maximum:"9007199254740991" doc:"Bytes of the archive."`
	FileCount        int64     `json:"fileCount" minimum:"0" maximum:"9007199254740991"`
	ParentSnapshotID uuid.UUID `json:"parentSnapshotId" format:"uuid" doc:"The saved state that the files began as: authority.snapshotId."`
	RiskAcceptance
}

// SnapshotCommit makes a snapshot the saved state.
type SnapshotCommit struct {
	Claim
	RiskAcceptance
}

// RiskAcceptance is part of what an operator says who saves in the name of an ended writer.
type RiskAcceptance struct {
	AcceptRisk bool `json:"acceptRisk,omitempty" doc:"For an operator that saves in the name of an ended writer: go on without proof that it stopped. The history keeps that."`
}

// lateRecoveryDoc is what a recovery token is told that comes too late to read.
const lateRecoveryDoc = "409 tenure_ended for a recovery token whose tenure is over."

// recoveryDoc says who else saves.
const recoveryDoc = "In the name of a writer that ended, by a recovery token or by an operator: 409 recovery_needs_stop, with details {runId, runStatus, missingProof}, when it is not proven stopped. "

// SnapshotPath names a snapshot of a workspace.
type SnapshotPath struct {
	WorkspacePath
	SnapshotID uuid.UUID `path:"snapshotId" format:"uuid"`
}

const (
	snapshotsPath = "/api/execution-workspaces/{workspaceId}/snapshots"
	snapshotPath  = snapshotsPath + "/{snapshotId}"
)

func (s *server) snapshots() {
	register(s, endpoint{
		id: "listSnapshots", method: http.MethodGet, path: snapshotsPath, tag: "snapshots",
		summary: "List a workspace's snapshots", doc: "Newest first. " + lateRecoveryDoc, refuses: []int{http.StatusConflict},
	}, func(ctx context.Context, by authority.Principal, in *struct {
		WorkspacePath
		PageQuery
	},
	) (*Answer[List[Snapshot]], error) {
		list, err := s.rules.ListSnapshots(ctx, by, in.WorkspaceID, in.page())
		return listOf(list, err, snapshotOf)
	})
	register(s, endpoint{
		id: "createSnapshot", method: http.MethodPost, path: snapshotsPath, tag: "snapshots", status: http.StatusCreated,
		summary: "Begin a save",
		doc:     "Then upload the content, then commit. Only the commit changes what is saved. 409 snapshot_superseded when the parent is not the saved state. " + recoveryDoc + fenceDoc,
	}, func(ctx context.Context, by authority.Principal, in *struct {
		WorkspacePath
		Body SnapshotCreate
	},
	) (*Answer[Snapshot], error) {
		snapshot, err := s.rules.CreateSnapshot(ctx, by.AcceptingRisk(in.Body.AcceptRisk), in.Body.fence(in.WorkspaceID), authority.SnapshotInput{
			SHA256: in.Body.SHA256, Size: in.Body.Size, FileCount: in.Body.FileCount, ParentSnapshotID: &in.Body.ParentSnapshotID,
		})
		return answer(snapshot, err, snapshotOf)
	})
	register(s, endpoint{
		id: "commitSnapshot", method: http.MethodPost, path: snapshotPath + "/commit", tag: "snapshots",
		summary: "Make a snapshot the saved state",
		doc:     "One that is committed answers its result again, at any time, and changes nothing. 409 snapshot_incomplete when its content is not there, 409 snapshot_superseded when its parent is no longer the saved state. " + recoveryDoc + fenceDoc,
	}, func(ctx context.Context, by authority.Principal, in *struct {
		SnapshotPath
		Body SnapshotCommit
	},
	) (*Answer[Snapshot], error) {
		snapshot, err := s.rules.CommitSnapshot(ctx, by.AcceptingRisk(in.Body.AcceptRisk), in.Body.fence(in.WorkspaceID), in.SnapshotID)
		return answer(snapshot, err, snapshotOf)
	})
	register(s, endpoint{
		id: "getSnapshot", method: http.MethodGet, path: snapshotPath, tag: "snapshots",
		summary: "Read what is known of a snapshot", doc: lateRecoveryDoc, refuses: []int{http.StatusConflict},
	}, func(ctx context.Context, by authority.Principal, in *struct{ SnapshotPath }) (*Answer[Snapshot], error) {
		snapshot, err := s.rules.GetSnapshot(ctx, by, in.WorkspaceID, in.SnapshotID)
		return answer(snapshot, err, snapshotOf)
	})
	s.snapshotUses()
	s.snapshotContent()
}

// SnapshotUpdate names a snapshot.
type SnapshotUpdate struct {
	Name *string `json:"name" nullable:"true" minLength:"1" maxLength:"200" doc:"Null takes the name away."`
}

// snapshotUses are what can be done with a saved state later.
func (s *server) snapshotUses() {
	register(s, endpoint{
		id: "updateSnapshot", method: http.MethodPatch, path: snapshotPath, tag: "snapshots",
		summary: "Name a snapshot", refuses: []int{http.StatusConflict},
		doc: "A named snapshot is kept for as long as it has the name. 409 snapshot_name_taken when another of the workspace has it.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		SnapshotPath
		Body SnapshotUpdate
	},
	) (*Answer[Snapshot], error) {
		snapshot, err := s.rules.NameSnapshot(ctx, by, in.WorkspaceID, in.SnapshotID, in.Body.Name)
		return answer(snapshot, err, snapshotOf)
	})
	register(s, endpoint{
		id: "rollBackWorkspace", method: http.MethodPost, path: snapshotPath + "/rollback", tag: "snapshots", status: http.StatusCreated,
		summary: "Make an older snapshot the saved state again",
		doc:     "As a new snapshot with the same content, which follows the one that is current. The writer restores it before it writes on. 409 workspace_dirty when there is unsaved work, 409 snapshot_unavailable when the content is gone. " + fenceDoc,
	}, func(ctx context.Context, by authority.Principal, in *struct {
		SnapshotPath
		Body Claim
	},
	) (*Answer[Snapshot], error) {
		snapshot, err := s.rules.RollBack(ctx, by, in.Body.fence(in.WorkspaceID), in.SnapshotID)
		return answer(snapshot, err, snapshotOf)
	})
}

func (s *server) snapshotContent() {
	register(s, endpoint{
		id: "uploadSnapshotContent", method: http.MethodPut, path: snapshotPath + "/content", tag: "snapshots",
		summary: "Upload a snapshot's archive",
		doc: "While the snapshot is pending, by the run that began it. The archive may have any size; it must have the announced size and sha256, else 422 snapshot_content_mismatch and nothing is kept. " +
			"A client that sends Expect: 100-continue hears of a refusal before it sends the archive.",
		describe: func(op *huma.Operation) {
			op.RequestBody = &huma.RequestBody{
				Required: true, Description: "tar, compressed with zstd, with Berth's manifest.", Content: archive(),
			}
		},
	}, func(ctx context.Context, by authority.Principal, in *ContentUpload) (*Answer[Snapshot], error) {
		in.content.patience = s.patience
		snapshot, err := s.rules.UploadSnapshot(ctx, by, in.WorkspaceID, in.SnapshotID, in.content)
		return answer(snapshot, in.content.blame(err), snapshotOf)
	})
	register(s, endpoint{
		id: "downloadSnapshotContent", method: http.MethodGet, path: snapshotPath + "/content", tag: "snapshots",
		summary: "Download a committed snapshot's archive",
		doc:     "409 snapshot_unavailable when it was never uploaded here. " + lateRecoveryDoc,
		refuses: []int{http.StatusConflict},
		describe: func(op *huma.Operation) {
			op.Responses = map[string]*huma.Response{"200": {
				Description: "tar, compressed with zstd, with Berth's manifest.", Content: archive(),
				Headers: map[string]*huma.Header{
					"ETag": {Description: "The archive's sha256, in quotes.", Schema: &huma.Schema{Type: huma.TypeString}},
				},
			}}
		},
	}, func(ctx context.Context, by authority.Principal, in *struct{ SnapshotPath }) (*huma.StreamResponse, error) {
		content, snapshot, err := s.rules.OpenSnapshot(ctx, by, in.WorkspaceID, in.SnapshotID)
		if err != nil {
			return nil, err
		}
		return s.download(content, snapshot), nil
	})
}

func archive() map[string]*huma.MediaType {
	return map[string]*huma.MediaType{
		"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}
}
