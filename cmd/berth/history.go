package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	client "berth/clients/go"
)

type historyCommand struct {
	listFlags
	workspaceArgument
}

// Run tells what happened to a workspace, the newest last.
func (c historyCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, id, err := c.openWorkspace(ctx)
	if err != nil {
		return err
	}
	events, err := newest(c.Limit, pages[client.Event](func(limit *int64, cursor *string) (*http.Response, error) {
		return s.ListEvents(ctx, id, &client.ListEventsParams{Limit: limit, Cursor: cursor})
	}))
	if err != nil {
		return err
	}
	if c.json() {
		tenures, err := newest(c.Limit, pages[client.Tenure](func(limit *int64, cursor *string) (*http.Response, error) {
			return s.ListTenures(ctx, id, &client.ListTenuresParams{Limit: limit, Cursor: cursor})
		}))
		if err != nil {
			return err
		}
		document, err := json.Marshal(map[string][]json.RawMessage{"tenures": rawItems(tenures), "events": rawItems(events)})
		if err != nil {
			return err
		}
		return printJSON(stdout, document)
	}
	teller := storyteller{session: s, tasks: make(map[uuid.UUID]string)}
	rows := make([][]string, 0, len(events))
	for _, event := range events {
		rows = append(rows, []string{shortTime(event.value.At), numberOrNone(event.value.Epoch), teller.sentence(ctx, event.value)})
	}
	return table(stdout, []string{"TIME", "EPOCH", "WHAT HAPPENED"}, rows)
}

// newest is the newest limit items, or all, of a list that has the newest first;
// the newest last, as people read.
func newest[T any](limit int, list iter.Seq2[item[T], error]) ([]item[T], error) {
	var items []item[T]
	for it, err := range list {
		if err != nil {
			return nil, err
		}
		if items = append(items, it); len(items) == limit {
			break
		}
	}
	slices.Reverse(items)
	return items, nil
}

func rawItems[T any](items []item[T]) []json.RawMessage {
	raw := make([]json.RawMessage, 0, len(items))
	for _, it := range items {
		raw = append(raw, it.json)
	}
	return raw
}

// storyteller puts events into sentences.
type storyteller struct {
	*session
	tasks map[uuid.UUID]string // identifiers by id
}

// eventData is what the data of events holds; each kind has some of it.
type eventData struct {
	Handover         *client.Handover `json:"handover"`
	How              string           `json:"how"`
	Reason           string           `json:"reason"`
	UnsavedWork      bool             `json:"unsavedWork"`
	Unproven         bool             `json:"unproven"`
	Code             string           `json:"code"`
	SnapshotID       string           `json:"snapshotId"`
	FileCount        *int64           `json:"fileCount"`
	Size             *int64           `json:"size"`
	Status           string           `json:"status"`
	ParentSnapshotID *string          `json:"parentSnapshotId"`
	Deadline         string           `json:"deadline"`
	ErrorKind        string           `json:"errorKind"`
	LastHeardAt      string           `json:"lastHeardAt"`
	RiskAccepted     bool             `json:"riskAccepted"`
}

func (t *storyteller) sentence(ctx context.Context, e client.Event) string {
	raw, _ := json.Marshal(e.Data) // it came from JSON
	var data eventData
	if json.Unmarshal(raw, &data) != nil {
		return fmt.Sprintf("%s by %s %s", e.Kind, e.Actor, raw)
	}
	run := "run " + idOrNone(e.RunID) + t.ofTask(ctx, e.IssueID)
	switch e.Kind {
	case "tenure.started":
		return run + " became the writer" + following(data.Handover)
	case "tenure.ended":
		return fmt.Sprintf("%s is no longer the writer: %s%s", run, ending(data.How, e.Actor), remains(data))
	case "snapshot.committed":
		return fmt.Sprintf("snapshot %s was saved by %s (%s files, %s bytes)", data.SnapshotID, e.Actor, numberOrNone(data.FileCount), numberOrNone(data.Size))
	case "reservation.refused":
		return fmt.Sprintf("%s was refused the workspace: %s", run, data.Code)
	case "workspace.created":
		return "the workspace was made by " + e.Actor + t.forTask(ctx, e.IssueID)
	case "workspace.imported":
		return "the workspace was brought here from another system by " + e.Actor
	case "workspace.taken_over":
		return fmt.Sprintf("%s took the workspace over from %s: %s%s", e.Actor, run, printable(data.Reason), remains(data))
	case "workspace.closed", "workspace.reopened", "workspace.status_changed":
		return fmt.Sprintf("%s by %s, status %s", e.Kind, e.Actor, orNone(data.Status))
	}
	if told := unfinished(e, run, data); told != "" {
		return told
	}
	return printable(fmt.Sprintf("%s by %s %s", e.Kind, e.Actor, raw)) // a kind that came later
}

// unfinished tells of a writer that does not end by itself, or "" for other events.
func unfinished(e client.Event, run string, data eventData) string {
	switch e.Kind {
	case "stop.requested":
		return fmt.Sprintf("%s asked %s to stop by %s: %s", e.Actor, run, shortTimeText(data.Deadline), printable(data.Reason))
	case "stop.enforcing":
		return "the deadline passed: the providers of the machines of " + run + " are asked to stop them"
	case "stop.alert":
		return fmt.Sprintf("%s is not proven stopped (%s): people have to look, and nothing is freed", run, printable(data.ErrorKind))
	case "stop.enforced":
		return run + " is proven stopped, as " + e.Actor + " wanted"
	case "stop.over", "stop.superseded":
		return fmt.Sprintf("%s came to its end (%s)", e.Actor, strings.TrimPrefix(e.Kind, "stop."))
	case "writer.silent":
		return fmt.Sprintf("%s fell silent: it was last heard of at %s", run, shortTimeText(data.LastHeardAt))
	case "recovery.opened":
		return fmt.Sprintf("%s opened the recovery of %s%s", e.Actor, run, atRisk(data))
	case "workspace.recovered":
		return fmt.Sprintf("%s saved what %s left, as snapshot %s%s", e.Actor, run, data.SnapshotID, atRisk(data))
	}
	return ""
}

// atRisk tells that a recovery went on without proof.
func atRisk(data eventData) string {
	if data.RiskAccepted {
		return "; it was not proven stopped, and the risk was accepted"
	}
	return ""
}

// following tells whom a new writer follows.
func following(h *client.Handover) string {
	if h == nil {
		return ""
	}
	return fmt.Sprintf(", after run %s of epoch %d (%s)", h.FromRunID, h.FromEpoch, h.Kind)
}

// ending tells how a tenure ended.
func ending(how, actor string) string {
	switch how {
	case "release":
		return "released by " + actor
	case "finish":
		return "released when it finished, by " + actor
	case "handover":
		return "it is proven stopped, and " + actor + " followed"
	case "takeover":
		return "taken over by " + actor
	}
	return how + " by " + actor
}

// remains tells what a tenure's end left open.
func remains(data eventData) string {
	text := ""
	if data.UnsavedWork {
		text += "; work was not saved"
	}
	if data.Unproven {
		text += "; not proven stopped"
	}
	return text
}

func (t *storyteller) ofTask(ctx context.Context, issue *uuid.UUID) string {
	if issue == nil {
		return ""
	}
	return " of task " + t.task(ctx, *issue)
}

func (t *storyteller) forTask(ctx context.Context, issue *uuid.UUID) string {
	if issue == nil {
		return ""
	}
	return " for task " + t.task(ctx, *issue)
}

// task is the identifier of a task, or the id of one that cannot be read.
func (t *storyteller) task(ctx context.Context, id uuid.UUID) string {
	if known, ok := t.tasks[id]; ok {
		return known
	}
	t.tasks[id] = id.String()
	if issue, err := read[client.Issue](t.GetIssue(ctx, id)); err == nil {
		t.tasks[id] = issue.value.Identifier
	}
	return t.tasks[id]
}
