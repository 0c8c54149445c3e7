package authority

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"berth/snapshot"
)

// savedTimes saves n contents in turn and returns their snapshots, oldest first, each made an hour after the one before.
func (s *scene) savedTimes(w worker, f Fence, n int) []uuid.UUID {
	s.t.Helper()
	var ids []uuid.UUID
	for i := range n {
		ids = append(ids, s.save(w, f, strings.Repeat("x", i+1), s.snapshotOf(f.WorkspaceID)))
	}
	return ids
}

// claimed lets the store belong to the database, as a server does at its start.
func (s *scene) claimed() {
	s.t.Helper()
	s.wantNoError("claim the store", s.ClaimStore(s.t.Context()))
}

// content is what a snapshot's bytes are, or "" when they are not here.
func (s *scene) content(workspace, id uuid.UUID) string {
	s.t.Helper()
	content, _, err := s.OpenSnapshot(s.t.Context(), s.operator, workspace, id)
	if errors.Is(err, ErrSnapshotUnavailable) {
		return ""
	}
	s.wantNoError("open a snapshot", err)
	defer content.Close()
	text, err := io.ReadAll(content)
	s.wantNoError("read a snapshot", err)
	return string(text)
}

// objects counts the objects of the store.
func (s *scene) objects() (n int) {
	s.t.Helper()
	s.wantNoError("walk", s.store.Walk(s.t.Context(), func(snapshot.Object) error { n++; return nil }))
	return n
}

func TestTheCurrentTheNewestAndTheNamedSnapshotsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.claimed()
	s.keepSnapshots = 3
	workspace := s.empty()
	w, f := s.writer(workspace)
	ids := s.savedTimes(w, f, 8)
	name := "before the rewrite"
	_, err := s.NameSnapshot(t.Context(), s.operator, workspace, ids[1], &name)
	s.wantNoError("name", err)
	dropped, err := s.RetainSnapshots(t.Context())
	if err != nil || dropped != 5 { // the empty one, and the first, third, fourth and fifth
		t.Errorf("%d dropped (%v), want 5", dropped, err)
	}
	for i, id := range ids {
		want := strings.Repeat("x", i+1)
		if i != 1 && i < 5 {
			want = ""
		}
		if got := s.content(workspace, id); got != want {
			t.Errorf("snapshot %d has %q, want %q", i, got, want)
		}
	}
	if again, err := s.RetainSnapshots(t.Context()); err != nil || again != 0 {
		t.Errorf("again %d (%v)", again, err)
	}
	if told := s.count("SELECT count(*) FROM events WHERE kind = 'snapshot.unavailable' AND actor = 'sweep:snapshots'"); told != 5 {
		t.Errorf("%d are on record", told)
	}
	_, err = s.NameSnapshot(t.Context(), s.operator, workspace, ids[7], &name)
	if refused, ok := AsRefusal(err); !ok || refused.Code != ErrSnapshotNameTaken.Code {
		t.Errorf("a name that another has: %v", err)
	}
	_, err = s.NameSnapshot(t.Context(), s.operator, workspace, ids[1], nil)
	s.wantNoError("take the name away", err)
	if dropped, err := s.RetainSnapshots(t.Context()); err != nil || dropped != 1 {
		t.Errorf("without its name: %d (%v)", dropped, err)
	}
}

func TestTheDatabaseKeepsTheBytesThatAreNeeded(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	workspace := s.empty()
	w, f := s.writer(workspace)
	ids := s.savedTimes(w, f, 2)
	s.exec("UPDATE snapshots SET name = 'kept' WHERE id = $1", ids[0])
	for what, id := range map[string]uuid.UUID{"named": ids[0], "current": ids[1]} {
		if _, err := s.database.Pool.Exec(t.Context(), "UPDATE snapshots SET state = 'unavailable' WHERE id = $1", id); err == nil {
			t.Errorf("the %s snapshot gives up its bytes", what)
		}
	}
}

// One that is named at the moment when it would be given up keeps either its bytes, or has no name.
func TestNamingAndRetentionAtOnceLoseNoNamedBytes(t *testing.T) {
	t.Parallel()
	s := newCrowd(t, 8)
	s.claimed()
	s.keepSnapshots = 1
	workspace := s.empty()
	w, f := s.writer(workspace)
	for round := range 25 {
		ids := s.savedTimes(w, f, 3)
		name := uuid.NewString()
		race(t, 3, func(i int) (int, error) {
			if i > 0 {
				_, err := s.RetainSnapshots(t.Context())
				wantKnown(t, "retain", err)
				return 0, err
			}
			_, err := s.NameSnapshot(t.Context(), s.operator, workspace, ids[0], &name)
			wantKnown(t, "name", err)
			return 0, err
		})
		named := s.text("SELECT state FROM snapshots WHERE name = $1", name)
		if content := s.content(workspace, ids[0]); (named == "committed") != (content == "x") {
			t.Errorf("round %d: named and %s, with the bytes %q", round, named, content)
		}
	}
}

func TestASaveThatNobodyFinishedIsGivenUpAfterADay(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.claimed()
	workspace := s.empty()
	w, f := s.writer(workspace)
	parent := s.snapshotOf(workspace)
	young := s.begin(w, f, "young", parent)
	s.upload(w, f, young, "young")
	key := snapshot.Key(s.company, workspace, f.Epoch, uuid.New())
	s.wantNoError("put", s.store.Put(t.Context(), key, strings.NewReader("old"), snapshot.Digest{Size: 3, SHA256: hexDigest("old")}))
	old := s.insert("snapshots", "company_id", s.company, "workspace_id", workspace, "epoch", f.Epoch, "run_id", w.RunID,
		"parent_snapshot_id", parent, "state", "pending", "location_provider", "berth", "location_key", key, "size", 3, "file_count", 1,
		"sha256", hexDigest("old"), "created_by", "test", "created_at", time.Now().Add(-25*time.Hour))
	before := s.objects()
	if n, err := s.CollectSnapshots(t.Context()); err != nil || n != 1 || s.objects() != before-1 {
		t.Errorf("%d collected (%v), %d objects of %d are left", n, err, s.objects(), before)
	}
	_, err := s.CommitSnapshot(t.Context(), w.Principal, f, old)
	s.wantCode("commit what was given up", err, ErrSnapshotIncomplete)
	_, err = s.CommitSnapshot(t.Context(), w.Principal, f, young)
	s.wantNoError("commit the young one", err)
}

// aged is a store whose objects are older than they are.
type aged struct{ snapshot.Store }

func (a aged) Walk(ctx context.Context, visit func(snapshot.Object) error) error {
	return a.Store.Walk(ctx, func(o snapshot.Object) error {
		o.StoredAt = o.StoredAt.Add(-25 * time.Hour)
		return visit(o)
	})
}

func TestObjectsThatNoSnapshotNeedsAreDeletedWhenTheyAreOld(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.claimed()
	workspace := s.empty()
	w, f := s.writer(workspace)
	ids := s.savedTimes(w, f, 2)
	pending := s.begin(w, f, "pending", ids[1])
	s.upload(w, f, pending, "pending")
	orphan := snapshot.Key(s.company, workspace, f.Epoch, uuid.New())
	foreign := "companies/readme.txt"
	for _, key := range []string{orphan, foreign} {
		s.wantNoError("put", s.store.Put(t.Context(), key, strings.NewReader("x"), snapshot.Digest{Size: 1, SHA256: hexDigest("x")}))
	}
	all := s.objects()
	if n, err := s.CollectSnapshots(t.Context()); err != nil || n != 0 {
		t.Errorf("%d young objects collected (%v)", n, err)
	}
	s.store = aged{s.store}
	if n, err := s.CollectSnapshots(t.Context()); err != nil || n != 1 || s.objects() != all-1 {
		t.Errorf("%d collected (%v), and %d objects of %d are left", n, err, s.objects(), all)
	}
	if _, err := s.store.Stat(t.Context(), orphan); !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("the orphan is there: %v", err)
	}
	_, err := s.CommitSnapshot(t.Context(), w.Principal, f, pending)
	s.wantNoError("commit the pending one", err)
}

func TestNothingIsDeletedFromAnotherInstallationsStore(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.claimed()
	s.keepSnapshots = 1
	workspace := s.empty()
	w, f := s.writer(workspace)
	s.savedTimes(w, f, 4)
	s.exec("UPDATE instance_settings SET store_marker = $1", uuid.New())
	before := s.objects()
	for what, sweep := range map[string]func() (int, error){
		"retain":  func() (int, error) { return s.RetainSnapshots(t.Context()) },
		"collect": func() (int, error) { return s.CollectSnapshots(t.Context()) },
	} {
		if n, err := sweep(); err == nil || n != 0 {
			t.Errorf("%s: %d (%v)", what, n, err)
		}
	}
	if after := s.objects(); after != before || s.count("SELECT count(*) FROM snapshots WHERE state = 'unavailable'") != 0 {
		t.Errorf("%d objects of %d are left", after, before)
	}
}
