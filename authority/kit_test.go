package authority

import (
	"sync"
	"testing"

	"github.com/google/uuid"
)

// kit is a directory with a company, an agent of it and an environment: what the tests of tasks and
// of everything that a run does begin with. Its makers go the way that callers go; they end the
// test when they are refused.
type kit struct {
	*directory
	home        uuid.UUID // the company
	worker      uuid.UUID // its agent
	environment uuid.UUID
}

func newKit(t *testing.T) *kit {
	t.Helper()
	k := &kit{directory: newDirectory(t)}
	k.home = k.company()
	k.worker = k.agent(k.home)
	k.environment = must(k.CreateEnvironment(t.Context(), k.operator, EnvironmentInput{Name: "Environment", Driver: "sandbox"}, Once{}))(t).ID
	return k
}

// isolate lets tasks name their workspaces when they are created.
func (k *kit) isolate() {
	k.t.Helper()
	on := true
	must(k.UpdateSettings(k.t.Context(), k.operator, SettingsPatch{EnableIsolatedWorkspaces: &on}))(k.t)
}

// issue makes a task; its title is of no matter.
func (k *kit) issue(in IssueInput) Issue {
	k.t.Helper()
	in.Title = "Task"
	return must(k.CreateIssue(k.t.Context(), k.operator, k.home, in, Once{}))(k.t)
}

// change changes a task as an operator.
func (k *kit) change(issue uuid.UUID, patch IssuePatch) Issue {
	k.t.Helper()
	return must(k.UpdateIssue(k.t.Context(), k.operator, issue, patch))(k.t)
}

// workspace makes a free one at epoch 0.
func (k *kit) workspace(in WorkspaceInput) Workspace {
	k.t.Helper()
	in.Name = "Workspace"
	return must(k.CreateWorkspace(k.t.Context(), k.operator, k.home, in, Once{}))(k.t)
}

// bound makes a task that is bound to a workspace.
func (k *kit) bound(workspace uuid.UUID) Issue {
	k.t.Helper()
	return k.change(k.issue(IssueInput{}).ID, IssuePatch{ExecutionWorkspaceID: To(workspace)})
}

// private makes a task that only its own people read.
func (k *kit) private(in IssueInput) Issue {
	k.t.Helper()
	secret := visibilityPrivate
	in.Visibility = &secret
	return k.issue(in)
}

// run makes a running run of the worker for a task.
func (k *kit) run(issue uuid.UUID) Run {
	k.t.Helper()
	return k.runOf(k.worker, &issue)
}

// runOf makes a running run of an agent, for a task or for none.
func (k *kit) runOf(agent uuid.UUID, issue *uuid.UUID) Run {
	k.t.Helper()
	run, _, err := k.CreateRun(k.t.Context(), k.operator, k.home, RunInput{AgentID: agent, IssueID: issue}, Once{})
	if err != nil {
		k.t.Fatal(err)
	}
	return run
}

// finish ends a run as an operator does.
func (k *kit) finish(run Run) {
	k.t.Helper()
	must(k.FinishRun(k.t.Context(), k.operator, run.ID, FinishInput{Status: "succeeded"}))(k.t)
}

// runPrincipal is whom a run's token speaks for.
func runPrincipal(run Run) Principal {
	return Principal{Role: RoleRun, CompanyID: run.CompanyID, AgentID: run.AgentID, RunID: run.ID}
}

// source makes a configured source of a project.
func (k *kit) source(project uuid.UUID, in ProjectWorkspaceInput) uuid.UUID {
	k.t.Helper()
	in.Name = "Source"
	if in.SourceType == "" {
		in.SourceType = "empty"
	}
	return must(k.AddProjectWorkspace(k.t.Context(), k.operator, project, in, Once{}))(k.t).ID
}

// reserved makes the run the writer of its task's workspace.
func (k *kit) reserved(run Run) Workspace {
	k.t.Helper()
	return must(k.Reserve(k.t.Context(), runPrincipal(run), ReserveInput{IssueID: *run.BoundIssueID, RunID: run.ID}, Once{}))(k.t).Workspace
}

// ptr is a pointer to a value that has no name.
func ptr[T any](value T) *T { return &value }

// together starts the functions together and returns what each returned.
func together(do ...func() error) []error {
	errs := make([]error, len(do))
	start := make(chan struct{})
	var all sync.WaitGroup
	for i, f := range do {
		all.Go(func() {
			<-start
			errs[i] = f()
		})
	}
	close(start)
	all.Wait()
	return errs
}
