package authority

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"berth/snapshot"
)

// empty is a workspace of which nothing was saved yet, with its bytes in the store.
func (s *scene) empty() uuid.UUID {
	s.t.Helper()
	return s.imported(WorkspaceInput{})
}

// ends are the ways in which a writer leaves a workspace that is saved.
func (s *scene) ends() []func(worker, Fence) {
	return []func(worker, Fence){
		func(w worker, f Fence) {
			_, err := s.Release(s.t.Context(), w.Principal, f, false)
			s.wantNoError("release", err)
		},
		func(w worker, f Fence) { // what came after the save is given up
			s.dirty(w, f)
			_, err := s.Release(s.t.Context(), w.Principal, f, true)
			s.wantNoError("release with discard", err)
		},
		func(w worker, _ Fence) {
			_, err := s.finish(w.Principal, w, FinishInput{Status: "succeeded"})
			s.wantNoError("finish", err)
		},
		func(w worker, _ Fence) { // a handover follows
			s.stop(w)
			s.end(w, "timed_out")
		},
		func(w worker, f Fence) {
			s.dirty(w, f)
			_, err := s.Takeover(s.t.Context(), s.operator, f.WorkspaceID, acceptingRisk)
			s.wantNoError("take over", err)
		},
	}
}

func TestWhatIsSavedIsWhatTheNextWriterGetsHoweverTheLastOneLeft(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.empty()
	tree := t.TempDir()
	for round := range 2 * len(s.ends()) {
		w, fence := s.writer(workspace)
		parent := s.snapshotOf(workspace)
		got := s.restore(t, w, workspace, parent)
		if want := strings.Repeat("x", round); got != want {
			t.Errorf("round %d began from %q, want %q", round, got, want)
		}
		s.dirty(w, fence)
		if err := os.WriteFile(filepath.Join(tree, "file"), []byte(got+"x"), 0o600); err != nil {
			t.Fatal(err)
		}
		id := s.saveTree(t, w, fence, tree, parent)
		now, err := s.GetWorkspace(t.Context(), w.Principal, workspace)
		s.wantNoError("read the workspace", err)
		if now.Authority.Dirty || *now.Authority.SnapshotID != id || now.Authority.Epoch != fence.Epoch {
			t.Errorf("after the save the authority is %+v", now.Authority)
		}
		s.ends()[round%len(s.ends())](w, fence)
	}
	all, err := s.ListSnapshots(t.Context(), s.operator, workspace, Page{})
	s.wantNoError("list", err)
	if len(all.Items) != 1+2*len(s.ends()) || *all.Items[0].ParentSnapshotID != all.Items[1].ID {
		t.Errorf("the snapshots are %+v", all.Items)
	}
	s.wantSoundHistory()
}

// saveTree saves a directory in all its steps, as a client does.
func (s *scene) saveTree(t *testing.T, w worker, f Fence, tree string, parent uuid.UUID) uuid.UUID {
	t.Helper()
	archive, err := os.Create(filepath.Join(t.TempDir(), "archive"))
	s.wantNoError("make room", err)
	defer archive.Close()
	summary, err := snapshot.Pack(t.Context(), tree, archive, snapshot.PackOptions{})
	s.wantNoError("pack", err)
	_, err = archive.Seek(0, io.SeekStart)
	s.wantNoError("rewind", err)
	announced, err := s.CreateSnapshot(t.Context(), w.Principal, f, SnapshotInput{
		SHA256: summary.SHA256, Size: summary.Size, FileCount: summary.FileCount, ParentSnapshotID: &parent,
	})
	s.wantNoError("begin", err)
	_, err = s.UploadSnapshot(t.Context(), w.Principal, f.WorkspaceID, announced.ID, archive)
	s.wantNoError("upload", err)
	saved, err := s.CommitSnapshot(t.Context(), w.Principal, f, announced.ID)
	s.wantNoError("commit", err)
	if saved.State != "committed" || saved.CommittedAt == nil || saved.Epoch != f.Epoch || *saved.RunID != w.RunID {
		t.Errorf("committed as %+v", saved)
	}
	return saved.ID
}

// restore unpacks a snapshot and returns what its file holds, "" for none.
func (s *scene) restore(t *testing.T, w worker, workspace, id uuid.UUID) string {
	t.Helper()
	content, saved, err := s.OpenSnapshot(t.Context(), w.Principal, workspace, id)
	s.wantNoError("open", err)
	defer content.Close()
	archive := filepath.Join(t.TempDir(), "archive")
	file, err := os.Create(archive)
	s.wantNoError("make room", err)
	_, err = io.Copy(file, content)
	s.wantNoError("receive", errors.Join(err, file.Close()))
	tree := filepath.Join(t.TempDir(), "tree")
	_, err = snapshot.Restore(t.Context(), archive, tree, snapshot.Digest{Size: *saved.Size, SHA256: *saved.SHA256}, snapshot.Limits{})
	s.wantNoError("restore", err)
	text, err := os.ReadFile(filepath.Join(tree, "file"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

func TestChangesAfterASaveBeganStayUnsaved(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	s.dirty(w, fence)
	first := s.begin(w, fence, "one", s.snapshotOf(workspace))
	s.upload(w, fence, first, "one")
	s.dirty(w, fence) // the writer goes on before the save is done
	_, err := s.CommitSnapshot(t.Context(), w.Principal, fence, first)
	s.wantNoError("commit", err)
	_, err = s.Release(t.Context(), w.Principal, fence, false)
	s.wantCode("release what changed since", err, ErrWorkspaceDirty)
	s.save(w, fence, "two", first)
	_, err = s.Release(t.Context(), w.Principal, fence, false)
	s.wantNoError("release what is saved", err)
}

func TestACommittedSnapshotAnswersItsResultAgainAndForEver(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	first := s.save(w, fence, "one", s.snapshotOf(workspace))
	second := s.save(w, fence, "two", first)
	again := func(when string) {
		t.Helper()
		before := s.everything()
		got, err := s.CommitSnapshot(t.Context(), w.Principal, fence, first)
		if err != nil || got.State != "committed" || got.ID != first {
			t.Errorf("%s the first save answers %+v, %v", when, got, err)
		}
		if s.everything() != before {
			t.Errorf("%s the repeated commit changed something", when)
		}
	}
	again("after a second save")
	_, err := s.Release(t.Context(), w.Principal, fence, false)
	s.wantNoError("release", err)
	again("after the release")
	s.end(w, "succeeded")
	again("after the run")
	s.writer(workspace)
	again("under the next writer")
	if current := s.snapshotOf(workspace); current != second {
		t.Errorf("the workspace names %s, want the last save %s", current, second)
	}
}

func TestOfTwoSavesBegunOnOneParentTheSecondIsSuperseded(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	parent := s.snapshotOf(workspace)
	one, two := s.begin(w, fence, "one", parent), s.begin(w, fence, "two", parent)
	s.upload(w, fence, one, "one")
	s.upload(w, fence, two, "two")
	_, err := s.CommitSnapshot(t.Context(), w.Principal, fence, two)
	s.wantNoError("commit one of them", err)
	_, err = s.CommitSnapshot(t.Context(), w.Principal, fence, one)
	s.wantCode("commit the other", err, ErrSnapshotSuperseded)
	_, err = s.CreateSnapshot(t.Context(), w.Principal, fence, SnapshotInput{SHA256: hexDigest("x"), Size: 1, ParentSnapshotID: &parent})
	s.wantCode("begin another on the old parent", err, ErrSnapshotSuperseded)
	_, err = s.CreateSnapshot(t.Context(), w.Principal, fence, SnapshotInput{SHA256: hexDigest("x"), Size: 1})
	s.wantCode("begin one on no parent", err, ErrSnapshotSuperseded)
	if current := s.snapshotOf(workspace); current != two {
		t.Errorf("the workspace names %s, want %s", current, two)
	}
}

func TestOtherBytesThanAnnouncedLeaveNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	id := s.begin(w, fence, "content", s.snapshotOf(workspace))
	for _, wrong := range []string{"", "Content", "conten", "content and more"} {
		_, err := s.UploadSnapshot(t.Context(), w.Principal, workspace, id, strings.NewReader(wrong))
		s.wantCode("upload "+wrong, err, ErrSnapshotContent)
		_, err = s.CommitSnapshot(t.Context(), w.Principal, fence, id)
		s.wantCode("commit after it", err, ErrSnapshotIncomplete)
		_, _, err = s.OpenSnapshot(t.Context(), w.Principal, workspace, id)
		s.wantCode("open after it", err, ErrSnapshotUnavailable)
	}
	if _, err := s.store.Stat(t.Context(), snapshot.Key(s.company, workspace, fence.Epoch, id)); !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("the store holds something: %v", err)
	}
	s.upload(w, fence, id, "content")
	_, err := s.CommitSnapshot(t.Context(), w.Principal, fence, id)
	s.wantNoError("commit the right bytes", err)
}

func TestALateSaveIsRefusedAndLeavesTheSavedState(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, uploaded := range []bool{true, false} {
		workspace := s.free()
		parent := s.snapshotOf(workspace)
		w, fence := s.writer(workspace)
		id := s.begin(w, fence, "late", parent)
		if uploaded {
			s.upload(w, fence, id, "late")
		}
		_, err := s.Takeover(t.Context(), s.operator, workspace, acceptingRisk)
		s.wantNoError("take over", err)
		next, nextFence := s.writer(workspace)
		before := s.everything()
		_, err = s.UploadSnapshot(t.Context(), w.Principal, workspace, id, strings.NewReader("late"))
		s.wantCode("upload late", err, ErrTenureEnded)
		_, err = s.CommitSnapshot(t.Context(), w.Principal, fence, id)
		told, _ := s.wantCode("commit late", err, ErrTenureEnded).(TenureEnding)
		if told.How != "takeover" || s.everything() != before {
			t.Errorf("the late save is told %+v", told)
		}
		if current := s.snapshotOf(workspace); current != parent {
			t.Errorf("the workspace names %s, want %s as before", current, parent)
		}
		_, err = s.CommitSnapshot(t.Context(), next.Principal, nextFence, id)
		s.wantCode("commit what another run began", err, ErrStaleEpoch)
		s.save(next, nextFence, "the next one's", parent)
	}
}

func TestOnlyTheRunThatBeganASaveUploadsAndCommitsIt(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	id := s.begin(w, fence, "content", s.snapshotOf(workspace))
	other := s.worker(w.task)
	for _, by := range []Principal{other.Principal, s.operator} {
		_, err := s.UploadSnapshot(t.Context(), by, workspace, id, strings.NewReader("content"))
		s.wantCode("upload by "+string(by.Role), err, ErrRunIdentity)
		_, err = s.CommitSnapshot(t.Context(), by, fence, id)
		s.wantCode("commit by "+string(by.Role), err, ErrRunIdentity)
	}
	stranger := s.elsewhere()
	theirs := stranger.worker(stranger.task())
	_, err := s.UploadSnapshot(t.Context(), theirs.Principal, workspace, id, strings.NewReader("content"))
	s.wantCode("upload from another company", err, ErrWorkspaceNotFound)
	s.upload(w, fence, id, "content")
	_, err = s.CommitSnapshot(t.Context(), w.Principal, fence, id)
	s.wantNoError("commit", err)
	_, err = s.UploadSnapshot(t.Context(), w.Principal, workspace, id, strings.NewReader("content"))
	s.wantCode("upload once more", err, ErrSnapshotNotPending)
}

func TestASaveIsAnnouncedAsAnArchiveCanBe(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.free()
	w, fence := s.writer(workspace)
	parent := s.snapshotOf(workspace)
	for name, in := range map[string]SnapshotInput{
		"negative size":      {SHA256: hexDigest("x"), Size: -1},
		"negative count":     {SHA256: hexDigest("x"), FileCount: -1},
		"no hash":            {},
		"a hash in capitals": {SHA256: strings.ToUpper(hexDigest("x"))},
	} {
		in.ParentSnapshotID = &parent
		_, err := s.CreateSnapshot(t.Context(), w.Principal, fence, in)
		s.wantCode(name, err, ErrValidation)
	}
}
