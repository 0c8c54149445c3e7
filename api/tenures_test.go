package api_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"berth/api/apitest"
)

func TestAWriterReservesSavesAndReleases(t *testing.T) {
	t.Parallel()
	s := newEstate(t)
	reservation := "/api/issues/" + s.ids["issueId"] + "/workspace/reservation"
	explained := s.as(http.StatusOK, http.MethodGet, reservation+"?runId="+s.ids["runId"]+"&expectedEpoch=0", nil)
	if explained["reservable"] != true || explained["code"] != nil {
		t.Fatalf("explained as %v", explained)
	}
	path := s.reserve()
	again := s.as(http.StatusOK, http.MethodPost, reservation, map[string]any{"runId": s.ids["runId"]})
	authority := again["workspace"].(map[string]any)["authority"].(map[string]any)
	base := authority["snapshotId"]
	want := map[string]any{
		"schema": "paperclip.remote-workspace.v1", "epoch": 1.0, "snapshotId": base, "source": map[string]any{"kind": "empty"},
		"location": nil, "writerRunId": s.ids["runId"], "dirty": false,
	}
	if again["replayed"] != true || again["handover"] != nil || !reflect.DeepEqual(authority, want) {
		t.Fatalf("reserved again: %v", again)
	}
	s.as(http.StatusOK, http.MethodPost, path+"/renew", s.claim())
	located := s.as(http.StatusOK, http.MethodPost, path+"/location", with(s.claim(), "location", map[string]any{"host": "h", "path": "/w"}))
	if where := located["authority"].(map[string]any)["location"]; !reflect.DeepEqual(where, map[string]any{"host": "h", "path": "/w"}) {
		t.Errorf("location is %v", where)
	}
	s.as(http.StatusOK, http.MethodPost, path+"/dirty", s.claim())
	if refused := s.as(http.StatusConflict, http.MethodPost, path+"/release", s.claim()); refused["code"] != "workspace_dirty" {
		t.Errorf("release of unsaved work: %v", refused)
	}
	saved := s.save(path, base, []byte("archive"))
	released := s.as(http.StatusOK, http.MethodPost, path+"/release", s.claim())["authority"].(map[string]any)
	if released["snapshotId"] != saved || released["writerRunId"] != nil || released["dirty"] != false || released["location"] != nil {
		t.Errorf("released: %v", released)
	}
	ended := s.as(http.StatusConflict, http.MethodPost, path+"/renew", s.claim())
	if details := ended["details"].(map[string]any); ended["code"] != "tenure_ended" || details["how"] != "release" || details["endedAt"] == nil {
		t.Errorf("renewed after the release: %v", ended)
	}
	for _, list := range []string{"/tenures", "/events", "/snapshots"} {
		if items := s.as(http.StatusOK, http.MethodGet, path+list+"?limit=1", nil)["items"].([]any); len(items) != 1 {
			t.Errorf("%s: %v", list, items)
		}
	}
}

// save begins, uploads and commits a snapshot, and returns its id.
func (s *estate) save(path string, parent any, content []byte) string {
	s.t.Helper()
	id := s.begin(path, parent, content)
	if reply := s.upload(path, id, bytes.NewReader(content)); reply.Status != http.StatusOK {
		s.t.Fatalf("upload: %d %s", reply.Status, reply.Body)
	}
	committed := s.as(http.StatusOK, http.MethodPost, path+"/snapshots/"+id+"/commit", s.claim())
	if committed["state"] != "committed" {
		s.t.Fatalf("committed: %v", committed)
	}
	return id
}

func (s *estate) begin(path string, parent any, content []byte) string {
	s.t.Helper()
	sum := sha256.Sum256(content)
	announced := with(s.claim(), "sha256", hex.EncodeToString(sum[:]))
	announced["size"], announced["fileCount"], announced["parentSnapshotId"] = len(content), 1, parent
	return s.as(http.StatusCreated, http.MethodPost, path+"/snapshots", announced)["id"].(string)
}

func (s *estate) upload(path, id string, content io.Reader) apitest.Reply {
	s.t.Helper()
	return s.Send(apitest.Request{
		Method: http.MethodPut, Path: path + "/snapshots/" + id + "/content", Token: s.token, Body: content,
		Header: http.Header{"Content-Type": {"application/octet-stream"}},
	})
}

// savedState is the snapshot that the estate's workspace has.
func (s *estate) savedState(path string) any {
	s.t.Helper()
	return s.as(http.StatusOK, http.MethodGet, path, nil)["authority"].(map[string]any)["snapshotId"]
}

func TestContentOfAnySizeComesBackAsItWasSent(t *testing.T) {
	t.Parallel()
	s := newEstate(t)
	path := s.reserve()
	content := make([]byte, 5<<20) // far more than a JSON body may have
	_, _ = rand.Read(content)
	id := s.save(path, s.savedState(path), content)
	reply := s.Send(apitest.Request{Method: http.MethodGet, Path: path + "/snapshots/" + id + "/content", Token: s.token})
	sum := sha256.Sum256(content)
	if reply.Status != http.StatusOK || !bytes.Equal(reply.Body, content) {
		t.Errorf("download: %d, %d bytes", reply.Status, len(reply.Body))
	}
	if reply.Header.Get("ETag") != `"`+hex.EncodeToString(sum[:])+`"` || reply.Header.Get("Content-Length") != "5242880" {
		t.Errorf("headers are %v", reply.Header)
	}
}

func TestContentOtherThanAnnouncedIsRefusedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newEstate(t)
	path := s.reserve()
	parent := s.savedState(path)
	content := []byte("what was announced")
	id := s.begin(path, parent, content)
	for what, other := range map[string]string{"longer": "what was announced, and more", "shorter": "what was", "other": "what Was announced", "empty": ""} {
		reply := s.upload(path, id, strings.NewReader(other))
		if reply.Status != http.StatusUnprocessableEntity || reply.JSON()["code"] != "snapshot_content_mismatch" {
			t.Errorf("%s: %d %s", what, reply.Status, reply.Body)
		}
	}
	refused := s.as(http.StatusConflict, http.MethodPost, path+"/snapshots/"+id+"/commit", s.claim())
	if refused["code"] != "snapshot_incomplete" {
		t.Errorf("commit: %v", refused)
	}
	if reply := s.upload(path, id, bytes.NewReader(content)); reply.Status != http.StatusOK {
		t.Errorf("the announced content afterwards: %d %s", reply.Status, reply.Body)
	}
}

// brokenOff is a body whose sender breaks off in the middle.
type brokenOff struct{ sent bool }

func (b *brokenOff) Read(p []byte) (int, error) {
	if b.sent {
		return 0, errors.New("the sender broke off")
	}
	b.sent = true
	return copy(p, "half"), nil
}

func TestAnUploadThatBreaksOffLeavesTheSnapshotPending(t *testing.T) {
	t.Parallel()
	s := newEstate(t)
	path := s.reserve()
	content := []byte("half and half")
	id := s.begin(path, s.savedState(path), content)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+path+"/snapshots/"+id+"/content", &brokenOff{})
	if err != nil {
		t.Fatal(err)
	}
	request.ContentLength = int64(len(content))
	request.Header.Set("Authorization", "Bearer "+s.token)
	if response, err := http.DefaultClient.Do(request); err == nil {
		defer response.Body.Close()
		t.Errorf("the broken call got %s", response.Status)
	}
	if state := s.as(http.StatusOK, http.MethodGet, path+"/snapshots/"+id, nil)["state"]; state != "pending" {
		t.Errorf("state is %v", state)
	}
	if reply := s.upload(path, id, bytes.NewReader(content)); reply.Status != http.StatusOK {
		t.Errorf("the whole content afterwards: %d %s", reply.Status, reply.Body)
	}
}

func TestARefusalOfAHeldWorkspaceNamesTheHolderAndTheWait(t *testing.T) {
	t.Parallel()
	s := newEstate(t)
	path := s.reserve()
	sibling := s.Must(http.MethodPost, "/api/companies/"+s.ids["companyId"]+"/heartbeat-runs", map[string]any{
		"agentId": s.ids["agentId"], "issueId": s.ids["issueId"],
	})
	reply := s.Send(apitest.Request{
		Method: http.MethodPost, Path: "/api/issues/" + s.ids["issueId"] + "/workspace/reservation", Token: sibling["token"].(string),
		Body: map[string]any{"runId": sibling["run"].(map[string]any)["id"]},
	})
	refused := reply.JSON()
	if reply.Status != http.StatusConflict || refused["code"] != "remote_workspace_writer_pending" || reply.Header.Get("Retry-After") == "" {
		t.Fatalf("%d %v %v", reply.Status, reply.Header, refused)
	}
	details := refused["details"].(map[string]any)
	if holder := details["holder"].(map[string]any); holder["runId"] != s.ids["runId"] || details["state"] != "writer_running" {
		t.Errorf("details are %v", details)
	}
	taken := s.Must(http.MethodPost, path+"/takeover", map[string]any{"reason": "it hangs", "acceptRisk": true})
	if taken["authority"].(map[string]any)["epoch"] != 2.0 {
		t.Errorf("taken over: %v", taken)
	}
}
