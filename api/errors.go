package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"berth/authority"
)

const internalDetail = "Something failed inside the service. The log has it under this requestId."

// statuses says which HTTP status each refusal of the rules is. A test compares it with authority.Codes.
var statuses = map[authority.Code]int{
	authority.ErrUnauthenticated.Code: http.StatusUnauthorized,
	authority.ErrNotAllowed.Code:      http.StatusForbidden,
	authority.ErrValidation.Code:      http.StatusUnprocessableEntity,
	authority.ErrIdempotencyKey.Code:  http.StatusConflict,
	authority.ErrUnavailable.Code:     http.StatusServiceUnavailable,

	authority.ErrCompanyNotFound.Code:          http.StatusNotFound,
	authority.ErrAgentNotFound.Code:            http.StatusNotFound,
	authority.ErrProjectNotFound.Code:          http.StatusNotFound,
	authority.ErrProjectWorkspaceNotFound.Code: http.StatusNotFound,
	authority.ErrEnvironmentNotFound.Code:      http.StatusNotFound,
	authority.ErrIssueNotFound.Code:            http.StatusNotFound,
	authority.ErrRunNotFound.Code:              http.StatusNotFound,
	authority.ErrWorkspaceNotFound.Code:        http.StatusNotFound,
	authority.ErrLeaseNotFound.Code:            http.StatusNotFound,
	authority.ErrSnapshotNotFound.Code:         http.StatusNotFound,
	authority.ErrTokenNotFound.Code:            http.StatusNotFound,

	authority.ErrRunIdentity.Code:       http.StatusForbidden,
	authority.ErrWorkspaceMissing.Code:  http.StatusNotFound,
	authority.ErrBinding.Code:           http.StatusConflict,
	authority.ErrWorkspaceAccess.Code:   http.StatusForbidden,
	authority.ErrOwnershipChanged.Code:  http.StatusConflict,
	authority.ErrSourceMismatch.Code:    http.StatusConflict,
	authority.ErrSourceUnsupported.Code: http.StatusUnprocessableEntity,
	authority.ErrStaleEpoch.Code:        http.StatusConflict,
	authority.ErrRunHoldsWorkspace.Code: http.StatusConflict,
	authority.ErrWriterPending.Code:     http.StatusConflict,
	authority.ErrEpochExhausted.Code:    http.StatusConflict,

	authority.ErrTenureEnded.Code:        http.StatusConflict,
	authority.ErrWorkspaceDirty.Code:     http.StatusConflict,
	authority.ErrTakeoverNeedsProof.Code: http.StatusConflict,
	authority.ErrRecoveryNeedsStop.Code:  http.StatusConflict,
	authority.ErrNoWriter.Code:           http.StatusConflict,
	authority.ErrWorkspaceInUse.Code:     http.StatusConflict,
	authority.ErrRunFinal.Code:           http.StatusConflict,

	authority.ErrReceiptRejected.Code: http.StatusUnprocessableEntity,
	authority.ErrLeaseForward.Code:    http.StatusConflict,

	authority.ErrSnapshotSuperseded.Code:  http.StatusConflict,
	authority.ErrSnapshotIncomplete.Code:  http.StatusConflict,
	authority.ErrSnapshotUnavailable.Code: http.StatusConflict,
	authority.ErrSnapshotContent.Code:     http.StatusUnprocessableEntity,
	authority.ErrSnapshotNameTaken.Code:   http.StatusConflict,
	authority.ErrSnapshotNotPending.Code:  http.StatusConflict,

	authority.ErrSelectionKeyReused.Code:    http.StatusConflict,
	authority.ErrBindingChanged.Code:        http.StatusConflict,
	authority.ErrWorkspaceUnavailable.Code:  http.StatusNotFound,
	authority.ErrPendingSelectionStale.Code: http.StatusConflict,
	authority.ErrTaskRunActive.Code:         http.StatusConflict,
}

// unavailableRetry is when to come back after a 503: long enough for a failover to have begun, short enough for a
// hiccup.
const unavailableRetry = 2 * time.Second

// problem is what a caller is told of err. A refusal is told as it is. Anything else is a fault of ours: the caller
// learns the request id, and the log the rest.
func (s *server) problem(ctx context.Context, err error) *Problem {
	var already *Problem
	if errors.As(err, &already) {
		return exchangeOf(ctx).sign(already)
	}
	refusal, ok := authority.AsRefusal(err)
	if !ok && ctx.Err() != nil {
		refusal, ok = authority.ErrUnavailable, true // the caller left, or ran out of time; nobody may read this
	}
	if ok {
		if status, known := statuses[refusal.Code]; known {
			p, err := refused(status, refusal)
			if err == nil {
				return exchangeOf(ctx).sign(p)
			}
			return s.fault(ctx, err)
		}
	}
	return s.fault(ctx, err)
}

// fault logs err and answers a problem with nothing of it.
func (s *server) fault(ctx context.Context, err error) *Problem {
	x := exchangeOf(ctx)
	s.log.ErrorContext(ctx, "request failed", "requestId", x.id, "method", x.method, "path", x.path, "error", err)
	return x.sign(newProblem(http.StatusInternalServerError, codeInternal, internalDetail))
}

func refused(status int, r *authority.Refusal) (*Problem, error) {
	p := newProblem(status, r.Code, r.Detail)
	for _, f := range r.Fields {
		p.Errors = append(p.Errors, FieldProblem{Location: f.Location, Message: f.Message})
	}
	details, err := detailsOf(r.Details)
	if err != nil {
		return nil, err
	}
	p.Details = details
	switch status {
	case http.StatusServiceUnavailable:
		p.retryAfter(unavailableRetry)
	case http.StatusUnauthorized:
		p.header("WWW-Authenticate", `Bearer realm="berth", error="invalid_token"`)
	default:
		if wait, ok := retryHint(details); ok {
			p.retryAfter(wait)
		}
	}
	return p, nil
}

// retryHint finds in the details of a refusal when it is worth asking again.
func retryHint(details Object) (time.Duration, bool) {
	var hint struct {
		RetryAfterMs *int64 `json:"retryAfterMs"`
	}
	if json.Unmarshal(details, &hint) != nil || hint.RetryAfterMs == nil {
		return 0, false
	}
	return time.Duration(*hint.RetryAfterMs) * time.Millisecond, true
}
