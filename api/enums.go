package api

import (
	"github.com/danielgtaylor/huma/v2"
)

// The named sets of words. A set is closed towards who writes, and open towards who reads: a later version may answer
// a word that is not here, and a client that does not know a word does not act on it.

const openSet = " The set is open: clients treat a value that they do not know as \"do not act\"."

// enum registers a set of words under its name, and refers to it.
func enum(r huma.Registry, name, doc string, words ...any) *huma.Schema {
	if _, ok := r.Map()[name]; !ok {
		s := &huma.Schema{Type: huma.TypeString, Description: doc + openSet, Enum: words}
		s.PrecomputeMessages()
		r.Map()[name] = s
	}
	return &huma.Schema{Ref: "#/components/schemas/" + name}
}

type (
	// AccessAction is something that an access decision can be about.
	AccessAction string
	// AgentStatus is what an agent does at the moment.
	AgentStatus string
	// CleanupStatus is how far the clean-up of a leased machine got.
	CleanupStatus string
	// CompanyStatus is whether a company works.
	CompanyStatus string
	// EnvironmentDriver is how runs get into an environment.
	EnvironmentDriver string
	// EnvironmentStatus is whether an environment takes runs.
	EnvironmentStatus string
	// HandoverKind is what ended the tenure before.
	HandoverKind string
	// IssueStatus is where a task stands.
	IssueStatus string
	// LeasePolicy is how long a leased machine is kept.
	LeasePolicy string
	// LeaseStatus is where an environment lease stands.
	LeaseStatus string
	// MembershipRole is what a member is in a company.
	MembershipRole string
	// MembershipStatus is whether a membership counts.
	MembershipStatus string
	// PermissionKey is what a grant permits.
	PermissionKey string
	// PrincipalType is what kind of somebody a principal is.
	PrincipalType string
	// ReceiptKind is on what occasion a provider confirmed a stop.
	ReceiptKind string
	// ReceiptState is what a provider confirmed.
	ReceiptState string
	// ResourceType is what kind of thing an access decision is about.
	ResourceType string
	// RunStatus is where a heartbeat run stands.
	RunStatus string
	// RuntimeMode is by which runtime a run is executed.
	RuntimeMode string
	// SelectionKind is a way to choose a task's workspace.
	SelectionKind string
	// SnapshotState is where a snapshot stands.
	SnapshotState string
	// SourceMode is whether tasks share a configured source.
	SourceMode string
	// SourceType is what kind of files a project workspace has.
	SourceType string
	// StopRequestState is where a request to stop stands.
	StopRequestState string
	// TenureEnd is how a tenure ended.
	TenureEnd string
	// TokenRole is what the holder of a token is.
	TokenRole string
	// Visibility is who may read.
	Visibility string
	// WorkspaceMode is how tasks use a workspace.
	WorkspaceMode string
	// WorkspaceProvider is what keeps a workspace's files while a run has them.
	WorkspaceProvider string
	// WorkspaceStatus is where an execution workspace stands.
	WorkspaceStatus string
	// WorkspaceStrategy is how a workspace's directory is made.
	WorkspaceStrategy string
)

// Schema describes the set in the document, as do those that follow.
func (AccessAction) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "AccessAction", "What is to be done.", "company:read", "project:read", "project:write_workspace",
		"issue:read", "issue:mutate", "workspace:read", "workspace:reserve", "workspace:manage")
}

func (AgentStatus) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "AgentStatus", "What an agent does at the moment.",
		"active", "paused", "idle", "running", "error", "pending_approval", "terminated")
}

func (CleanupStatus) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "CleanupStatus", "How far the clean-up of a leased machine got.", "pending", "success", "failed")
}

func (CompanyStatus) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "CompanyStatus", "Whether a company works.", "active", "paused", "archived")
}

func (EnvironmentDriver) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "EnvironmentDriver", "How runs get into an environment.", "local", "ssh", "sandbox", "plugin")
}

func (EnvironmentStatus) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "EnvironmentStatus", "Whether an environment takes runs.", "active", "archived")
}

func (HandoverKind) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "HandoverKind", "What ended the tenure before: proof that its run stopped, or an operator.", "proof", "takeover")
}

func (IssueStatus) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "IssueStatus", "Where a task stands.",
		"backlog", "todo", "in_progress", "in_review", "blocked", "done", "cancelled")
}

func (LeasePolicy) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "LeasePolicy", "How long a leased machine is kept.",
		"ephemeral", "reuse_by_environment", "reuse_by_execution_workspace", "retain_on_failure")
}

func (LeaseStatus) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "LeaseStatus", "Where an environment lease stands. It never becomes active again.",
		"active", "released", "expired", "failed", "retained", "pending_cleanup")
}

func (MembershipRole) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "MembershipRole", "What a member is in a company. A viewer only reads.",
		"owner", "admin", "operator", "viewer", "member")
}

func (MembershipStatus) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "MembershipStatus", "Whether a membership counts: an active one does.",
		"pending", "active", "suspended", "archived")
}

func (PermissionKey) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "PermissionKey", "What a grant permits: all assignments, or those in its scope.",
		"tasks:assign", "tasks:assign_scope")
}

func (PrincipalType) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "PrincipalType", "What kind of somebody a principal is.", "user", "agent")
}

func (ReceiptKind) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "ReceiptKind", "On what occasion the provider confirmed the stop.",
		"termination", "retained", "recovery_cleanup")
}

func (ReceiptState) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "ReceiptState", "What the provider confirmed.", "stopped", "destroyed")
}

func (ResourceType) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "ResourceType", "What kind of thing is asked about.", "company", "project", "issue", "workspace")
}

func (RunStatus) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "RunStatus", "Where a heartbeat run stands. The last five are final.", "queued", "scheduled_retry",
		"running", "succeeded", "interrupted", "failed", "cancelled", "timed_out")
}

func (RuntimeMode) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "RuntimeMode", "By which runtime a run is executed.", "legacy", "native")
}

func (SelectionKind) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "SelectionKind", "A way to choose a task's workspace.", "task_directory", "existing", "configured_source")
}

func (SnapshotState) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "SnapshotState", "Where a snapshot stands. Only a committed one can be restored.",
		"pending", "committed", "abandoned", "unavailable")
}

func (SourceMode) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "SourceMode", "Whether the tasks of a configured source share one workspace.", "shared", "managed_isolated")
}

func (SourceType) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "SourceType", "What kind of files a project workspace has.",
		"local_path", "git_repo", "remote_managed", "non_git_path", "empty")
}

func (StopRequestState) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "StopRequestState", "Where a request to stop stands. It waits for its deadline; the providers are asked; people have to look, while they are asked on. Or it is settled: by proof, by the tenure's end, by a newer request.",
		"requested", "enforcing", "alert", "enforced", "over", "superseded")
}

func (TenureEnd) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "TenureEnd", "How a tenure ended.", "release", "finish", "handover", "takeover")
}

func (TokenRole) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "TokenRole", "What the holder of a token is: an operator does everything, a member what its user may, an auditor only reads.",
		"operator", "member", "auditor")
}

func (Visibility) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "Visibility", "Who may read: the company, or the few that it names.", "open", "private")
}

func (WorkspaceMode) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "WorkspaceMode", "How tasks use a workspace.",
		"isolated_workspace", "operator_branch", "shared_workspace", "adapter_managed", "cloud_sandbox")
}

func (WorkspaceProvider) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "WorkspaceProvider", "What keeps a workspace's files while a run has them.",
		"local_fs", "git_worktree", "adapter_managed", "cloud_sandbox")
}

func (WorkspaceStatus) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "WorkspaceStatus", "Where an execution workspace stands. The last two are closed: nobody reserves it.",
		"active", "idle", "in_review", "archived", "cleanup_failed")
}

func (WorkspaceStrategy) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "WorkspaceStrategy", "How a workspace's directory is made.",
		"project_primary", "git_worktree", "adapter_managed", "cloud_sandbox", "task_directory")
}
