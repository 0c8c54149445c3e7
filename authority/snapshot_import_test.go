package authority

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/uuid"

	"berth/snapshot"
)

func TestAnImportedSnapshotWithoutBytesIsNeverAnEmptyTree(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	id := uuid.New()
	workspace := s.imported(WorkspaceInput{Authority: &AuthorityImport{Epoch: 3, SnapshotID: &id}})
	w, fence := s.writer(workspace)
	if fence.Epoch != 4 {
		t.Errorf("reserved at epoch %d, want 4", fence.Epoch)
	}
	_, _, err := s.OpenSnapshot(t.Context(), w.Principal, workspace, id)
	s.wantCode("open", err, ErrSnapshotUnavailable)
	saved, err := s.GetSnapshot(t.Context(), w.Principal, workspace, id)
	if err != nil || saved.State != "unavailable" || saved.Epoch != 3 {
		t.Errorf("the snapshot is %+v, %v", saved, err)
	}
}

func TestAnOperatorBringsTheBytesOfAnImportedSnapshotOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	id := uuid.New()
	workspace := s.imported(WorkspaceInput{Authority: &AuthorityImport{Epoch: 3, SnapshotID: &id}})
	w, _ := s.writer(workspace)
	archive, summary := snapshot.Empty()

	_, err := s.UploadSnapshot(t.Context(), w.Principal, workspace, id, bytes.NewReader(archive))
	s.wantCode("by the writer", err, ErrNotAllowed)
	for name, garbage := range map[string][]byte{
		"nothing": {}, "no archive": []byte(strings.Repeat("x", 1000)), "half an archive": archive[:len(archive)/2],
	} {
		_, err = s.UploadSnapshot(t.Context(), s.operator, workspace, id, bytes.NewReader(garbage))
		s.wantCode(name, err, ErrSnapshotContent)
		_, _, err = s.OpenSnapshot(t.Context(), w.Principal, workspace, id)
		s.wantCode("open after "+name, err, ErrSnapshotUnavailable)
	}
	filled, err := s.UploadSnapshot(t.Context(), s.operator, workspace, id, bytes.NewReader(archive))
	s.wantNoError("by an operator", err)
	if filled.State != "committed" || *filled.SHA256 != summary.SHA256 || *filled.Size != summary.Size || filled.Epoch != 3 {
		t.Errorf("filled as %+v", filled)
	}
	if got := s.restore(t, w, workspace, id); got != "" {
		t.Errorf("the empty archive restores to %q", got)
	}
	_, err = s.UploadSnapshot(t.Context(), s.operator, workspace, id, bytes.NewReader(archive))
	s.wantCode("once more", err, ErrSnapshotNotPending)
}

func TestOfManyOperatorsAtOnceOneFillsASnapshot(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	id := uuid.New()
	workspace := s.imported(WorkspaceInput{Authority: &AuthorityImport{Epoch: 3, SnapshotID: &id}})
	archive, _ := snapshot.Empty()
	filled := 0
	for _, r := range race(t, 8, func(int) (Snapshot, error) {
		return s.UploadSnapshot(t.Context(), s.operator, workspace, id, bytes.NewReader(archive))
	}) {
		if r.err == nil {
			filled++
		} else if _, known := AsRefusal(r.err); !known {
			t.Errorf("one of eight: %v", r.err)
		}
	}
	if filled != 1 {
		t.Errorf("%d filled it, want 1", filled)
	}
}

func TestAnImportedWriterHasATenure(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w := s.worker(s.task())
	workspace := s.imported(WorkspaceInput{Authority: &AuthorityImport{Epoch: 7, WriterRunID: &w.RunID, Dirty: true}})
	s.exec("UPDATE issues SET execution_workspace_id = $2 WHERE id = $1", w.task, workspace)
	again, err := s.reserve(w)
	if err != nil || !again.Replayed || again.Workspace.Authority.Epoch != 7 || !again.Workspace.Authority.Dirty {
		t.Errorf("the imported writer reserves as %+v, %v", again, err)
	}
	fence := Fence{workspace, w.RunID, 7}
	s.save(w, fence, "content", s.snapshotOf(workspace))
	if _, err := s.Release(t.Context(), w.Principal, fence, false); err != nil {
		t.Errorf("the imported writer, who saved everything, releases: %v", err)
	}
}

func TestAnImportIsCheckedAndForOperators(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	other := s.elsewhere()
	taken := uuid.New()
	s.imported(WorkspaceInput{Authority: &AuthorityImport{SnapshotID: &taken}})
	holder, _ := s.writer(s.free())
	for name, c := range map[string]struct {
		in   WorkspaceInput
		want *Refusal
	}{
		"epoch below 0":                   {WorkspaceInput{Authority: &AuthorityImport{Epoch: -1}}, ErrValidation},
		"epoch above 2^53-1":              {WorkspaceInput{Authority: &AuthorityImport{Epoch: maximumEpoch + 1}}, ErrValidation},
		"dirty without a writer":          {WorkspaceInput{Authority: &AuthorityImport{Dirty: true}}, ErrValidation},
		"closed with a writer":            {WorkspaceInput{Status: "archived", Authority: &AuthorityImport{WriterRunID: &holder.RunID}}, ErrValidation},
		"another company's writer":        {WorkspaceInput{Authority: &AuthorityImport{WriterRunID: new(other.worker(other.task()).RunID)}}, ErrRunNotFound},
		"no writer's id":                  {WorkspaceInput{Authority: &AuthorityImport{WriterRunID: &uuid.Nil}}, ErrRunNotFound},
		"a writer that holds another":     {WorkspaceInput{Authority: &AuthorityImport{WriterRunID: &holder.RunID}}, ErrRunHoldsWorkspace},
		"a snapshot that is there":        {WorkspaceInput{Authority: &AuthorityImport{SnapshotID: &taken}}, ErrValidation},
		"a source that cannot be fetched": {WorkspaceInput{Source: []byte(`{"kind": "git"}`)}, ErrSourceUnsupported},
		"another company's task":          {WorkspaceInput{SourceIssueID: new(other.task())}, ErrIssueNotFound},
	} {
		c.in.Name = "Workspace"
		before := s.everything()
		_, err := s.CreateWorkspace(t.Context(), s.operator, s.company, c.in, Once{})
		if refused, known := AsRefusal(err); !known || refused.Code != c.want.Code {
			t.Errorf("%s: %v, want %s", name, err, c.want.Code)
		}
		if s.everything() != before {
			t.Errorf("%s: the refused import left something", name)
		}
	}
}
