package runner

import (
	"github.com/google/uuid"

	client "berth/clients/go"
)

// The refusals that a run acts on. Any other is final, too.
const (
	codeWriterPending      = "remote_workspace_writer_pending"
	codeTenureEnded        = "tenure_ended"
	codeNotAllowed         = "not_allowed"
	codeWorkspaceDirty     = "workspace_dirty"
	codeRunFinal           = "run_final"
	codeRecoveryNeedsStop  = "recovery_needs_stop"
	codeSnapshotSuperseded = "snapshot_superseded"
	codeContentMismatch    = "snapshot_content_mismatch"
	codeMalformedBody      = "malformed_body" // an upload that was cut off
)

// session is one call of Run.
type session struct {
	Options
	dir    *Dir
	caller *service // as who called Run; only to begin with
	own    *service // as the run

	run       client.HeartbeatRun
	workspace client.ExecutionWorkspace
	tenure    *tenure  // nil until the workspace is reserved
	machine   *machine // nil unless the run's processes are registered

	stopTenure func()    // ends the renewals; nil as the tenure
	tokens     tokenFile // from the run's creation on
	keepToken  bool      // for a save by hand

	// parent is the snapshot that the directory's files come from, and that the
	// next save follows.
	parent client.Snapshot
	// dirty: the service was told that the files may differ from what is saved.
	// From here on the only way out is a save.
	dirty bool
	// orphaned: the run is dead, and its work is saved in its name.
	orphaned bool

	result Result
}

// claim is what a writer shows with each call.
func (s *session) claim() client.Claim {
	return client.Claim{RunID: s.run.ID, Epoch: s.workspace.Authority.Epoch}
}

// marker is the note for the directory.
func (s *session) marker(of uuid.UUID, unsaved bool, fingerprint string) Marker {
	return Marker{
		WorkspaceID: s.workspace.ID, SnapshotID: &of, Epoch: s.workspace.Authority.Epoch, RunID: s.run.ID,
		Unsaved: unsaved, Fingerprint: fingerprint,
	}
}
