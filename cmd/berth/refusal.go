package main

import (
	"encoding/json"
	"fmt"
	"strings"

	client "berth/clients/go"
)

// apiError is a refusal by the service.
type apiError struct {
	client.Problem
}

// Error is the sentence for people with the code for scripts, and then, a line
// each, what the details say.
func (e *apiError) Error() string {
	lines := []string{fmt.Sprintf("%s (%s)", strings.TrimSuffix(e.Detail, "."), e.Code)}
	for _, problem := range e.Errors {
		lines = append(lines, problem.Location+" "+problem.Message)
	}
	lines = append(lines, describeDetails(e.Details)...)
	return strings.Join(lines, "\n  ")
}

// nextStep is what usually helps, or "".
func (e *apiError) NextStep() string {
	switch e.Code {
	case "unauthenticated":
		return "give a valid token in BERTH_TOKEN, or the service's data directory in BERTH_DATA_DIR"
	case "remote_workspace_writer_pending":
		return "berth explain says what would free the workspace"
	case "takeover_needs_proof":
		return "bring the receipts, or add --accept-risk when you know that the writer is gone"
	case "recovery_needs_stop":
		return "finish the run and bring the receipts of its machines; berth stop has the providers asked"
	case "no_writer":
		return "berth history tells who had the workspace"
	case "workspace_dirty":
		return "berth save saves the work; --discard gives it up"
	case "stale_epoch", "tenure_ended":
		return "berth history tells who has the workspace now"
	case "unavailable":
		return "try again in a moment"
	case "internal":
		return "the service's log has the reason under request " + e.RequestID
	}
	return ""
}

// nextStepError is an error with the way out.
type nextStepError struct {
	error
	next string
}

func (e *nextStepError) Unwrap() error { return e.error }

func (e *nextStepError) NextStep() string { return e.next }

// pendingDetails are the details of refusals that have to do with a writer. What
// a code's details do not have stays empty.
type pendingDetails struct {
	Holder *struct {
		RunID         string  `json:"runId"`
		IssueID       *string `json:"issueId"`
		Epoch         int64   `json:"epoch"`
		Since         string  `json:"since"`
		RunStatus     string  `json:"runStatus"`
		LastRenewedAt *string `json:"lastRenewedAt"`
	} `json:"holder"`
	StopRequested *struct {
		Reason   string `json:"reason"`
		Deadline string `json:"deadline"`
		State    string `json:"state"`
	} `json:"stopRequested"`
	RunID        string `json:"runId"`
	RunStatus    string `json:"runStatus"`
	MissingProof []struct {
		LeaseID  string `json:"leaseId"`
		Provider string `json:"provider"`
		Reason   string `json:"reason"`
	} `json:"missingProof"`
	EndedAt string  `json:"endedAt"`
	How     string  `json:"how"`
	By      string  `json:"by"`
	Reason  *string `json:"reason"`
}

// describeDetails puts the details that this program knows into words.
func describeDetails(details map[string]any) []string {
	raw, err := json.Marshal(details)
	if err != nil {
		return nil
	}
	var d pendingDetails
	if json.Unmarshal(raw, &d) != nil {
		return nil // from a newer service; the sentence has to do
	}
	var lines []string
	if h := d.Holder; h != nil {
		line := fmt.Sprintf("held by run %s (%s)", h.RunID, h.RunStatus)
		if h.IssueID != nil {
			line += " of task " + *h.IssueID
		}
		line += fmt.Sprintf(", epoch %d, since %s", h.Epoch, shortTimeText(h.Since))
		if h.LastRenewedAt != nil {
			line += ", last heard of at " + shortTimeText(*h.LastRenewedAt)
		}
		lines = append(lines, line)
	}
	if r := d.StopRequested; r != nil {
		lines = append(lines, fmt.Sprintf("asked to stop by %s (%s): %s", shortTimeText(r.Deadline), r.State, printable(r.Reason)))
	}
	if d.RunStatus != "" {
		lines = append(lines, fmt.Sprintf("run %s is %s", d.RunID, d.RunStatus))
	}
	for _, m := range d.MissingProof {
		lines = append(lines, fmt.Sprintf("no proof that lease %s (%s) stopped: %s", m.LeaseID, orNone(m.Provider), m.Reason))
	}
	if d.How != "" {
		line := fmt.Sprintf("the tenure ended at %s by %s of %s", shortTimeText(d.EndedAt), d.How, d.By)
		if d.Reason != nil {
			line += ": " + *d.Reason
		}
		lines = append(lines, line)
	}
	return lines
}
