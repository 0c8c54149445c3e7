package authority

import "testing"

// Reads meet workspaces of which almost everything is missing.
func TestAWorkspaceOfWhichLittleIsKnownIsReadWhole(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	got, err := s.GetWorkspace(t.Context(), s.operator, workspace)
	s.wantNoError("read it", err)
	if got.Authority.WriterRunID != nil || got.Authority.Location != nil || got.ProjectID != nil || got.SourceIssueID != nil {
		t.Errorf("the workspace is %+v", got)
	}
	tenures, err := s.ListTenures(t.Context(), s.operator, workspace, Page{})
	if err != nil || tenures.Items == nil || len(tenures.Items) != 0 {
		t.Errorf("its tenures are %+v, %v", tenures, err)
	}
	snapshots, err := s.ListSnapshots(t.Context(), s.operator, workspace, Page{})
	if err != nil || len(snapshots.Items) != 1 || snapshots.Items[0].Size != nil || snapshots.Items[0].RunID != nil {
		t.Errorf("its snapshots are %+v, %v", snapshots, err)
	}
	all, err := s.ListWorkspaces(t.Context(), s.operator, s.company, WorkspaceFilter{}, Page{})
	if err != nil || len(all.Items) != 1 {
		t.Errorf("the company's workspaces are %+v, %v", all, err)
	}
	if events, err := s.ListEvents(t.Context(), s.operator, workspace, Page{}); err != nil || events.Items == nil {
		t.Errorf("its events are %+v, %v", events, err)
	}
}
