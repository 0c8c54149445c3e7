package authority

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// StopRequest asks the writer of one tenure to end by itself until the deadline. Until then it is told with
// each renewal; from then on the providers of its machines are asked to stop them.
//
// State is requested until the deadline, enforcing after it, and alert when nobody could be brought to
// prove the stop: people have to look, while the attempts go on. It ends as enforced, when every
// machine is proven stopped and the run is finished; as over, when the tenure ended otherwise; or as superseded
// by a newer request. LastErrorKind says why the last attempt proved nothing.
type StopRequest struct {
	ID            uuid.UUID
	CompanyID     uuid.UUID
	WorkspaceID   uuid.UUID
	Epoch         int64
	RunID         uuid.UUID
	Reason        string
	Deadline      time.Time
	RequestedBy   string
	RequestedAt   time.Time
	State         string
	Attempts      int
	NextAttemptAt *time.Time // nil once it is settled
	LastErrorKind *string
	AlertedAt     *time.Time
	SettledAt     *time.Time
}

func stopRequestOf(row db.StopRequest) StopRequest {
	r := StopRequest{
		ID: row.ID, CompanyID: row.CompanyID, WorkspaceID: row.WorkspaceID, Epoch: row.Epoch, RunID: row.RunID,
		Reason: row.Reason, Deadline: row.Deadline, RequestedBy: row.RequestedBy, RequestedAt: row.RequestedAt,
		State: row.State, Attempts: int(row.Attempts), LastErrorKind: row.LastErrorKind,
		AlertedAt: row.AlertedAt, SettledAt: row.SettledAt,
	}
	if row.SettledAt == nil {
		r.NextAttemptAt = &row.NextAttemptAt
	}
	return r
}

// StopInput says why a writer should end, and until when. A deadline in the past means at once.
type StopInput struct {
	Reason   string
	Deadline time.Time
}

// RequestStop asks the writer of a workspace to end by itself. For operators. It takes nothing from the
// writer: until its stop is proven it may save and release, and a newer request supersedes this one.
// ErrNoWriter: there is nobody to ask.
func (s *Service) RequestStop(ctx context.Context, by Principal, workspace uuid.UUID, in StopInput, once Once) (StopRequest, error) {
	readable, err := s.readableWorkspace(ctx, s.pool, by, workspace)
	if err != nil {
		return StopRequest{}, err
	}
	if err := by.requireOperator(); err != nil {
		return StopRequest{}, err
	}
	if strings.TrimSpace(in.Reason) == "" {
		return StopRequest{}, ErrValidation.At("body.reason", "is empty: the writer and the history are told why")
	}
	request, _, err := createOnce(ctx, s, by, &readable.CompanyID, once, func(tx pgx.Tx) (StopRequest, error) {
		held, err := s.lockWriter(ctx, tx, readable.CompanyID, workspace)
		if err != nil {
			return StopRequest{}, err
		}
		_, err = s.queries.SupersedeStopRequest(ctx, tx, db.SupersedeStopRequestParams{
			CompanyID: held.CompanyID, WorkspaceID: held.ID, Epoch: held.Epoch,
		})
		if err != nil {
			return StopRequest{}, fmt.Errorf("supersede a stop request: %w", err)
		}
		row, err := s.queries.InsertStopRequest(ctx, tx, db.InsertStopRequestParams{
			ID: newID(), CompanyID: held.CompanyID, WorkspaceID: held.ID, Epoch: held.Epoch, RunID: *held.WriterRunID,
			Reason: in.Reason, Deadline: in.Deadline, RequestedBy: by.Actor(),
		})
		if err != nil {
			return StopRequest{}, fmt.Errorf("insert a stop request: %w", err)
		}
		return stopRequestOf(row), nil
	})
	return request, err
}

// ListStopRequests returns what writers of a workspace were asked, newest first.
func (s *Service) ListStopRequests(ctx context.Context, by Principal, workspace uuid.UUID, page Page) (List[StopRequest], error) {
	w, err := s.readableWorkspace(ctx, s.pool, by, workspace)
	if err != nil {
		return List[StopRequest]{}, err
	}
	before, err := page.after()
	if err != nil {
		return List[StopRequest]{}, err
	}
	params := db.ListStopRequestsParams{CompanyID: w.CompanyID, WorkspaceID: w.ID, Rows: page.rows()}
	params.BeforeAt, params.BeforeID = before.parts()
	rows, err := s.queries.ListStopRequests(ctx, s.pool, params)
	if err != nil {
		return List[StopRequest]{}, fmt.Errorf("list stop requests: %w", err)
	}
	return pageOf(page, rows, stopRequestOf, func(r db.StopRequest) place { return place{At: r.RequestedAt, ID: r.ID} }), nil
}

// stopAttemptsBeforeAlert is after how many attempts without proof people are told, where asking again may
// help. That is about four minutes after the deadline: longer than a machine takes to shut down.
const stopAttemptsBeforeAlert = 4

// asksToStop reports whether an attempt asks the machines to stop, or only what became of them. A machine that took
// the first wish gets time before it is asked again: a wrapper that ended its command is saving what the command
// left, and another signal would cut it off.
func asksToStop(r db.StopRequest) bool {
	return r.LastErrorKind == nil || *r.LastErrorKind != failedByLife || r.Attempts >= stopAttemptsBeforeAlert
}

// EnforceStopRequests acts on requests whose deadline passed: it asks the providers of the writer's
// machines to stop them. When every machine is proven stopped the run is finished as interrupted, in the
// name of the request; what it left unsaved stays for a recovery. Without proof nothing is freed: the attempts
// go on, ever more rarely, and the request comes to the state alert.
//
// Any number of servers may call it at any time.
func (s *Service) EnforceStopRequests(ctx context.Context) error {
	over, err := s.queries.SettleOldStopRequests(ctx, s.pool)
	if err != nil {
		return fmt.Errorf("settle the stop requests of ended tenures: %w", err)
	}
	if over > 0 {
		s.log.InfoContext(ctx, "stop requests are over", "requests", over)
	}
	return s.untilNothingIsDue(ctx, s.enforceOneStop)
}

// enforceOneStop makes one attempt for one request. It reports false when none is due.
func (s *Service) enforceOneStop(ctx context.Context) (bool, error) {
	claim := uuid.New()
	r, err := s.queries.ClaimStopRequest(ctx, s.pool, claim)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claim a stop request: %w", err)
	}
	p := pursuit{
		company: r.CompanyID, workspace: r.WorkspaceID, epoch: r.Epoch, run: r.RunID,
		actor: "stop-request:" + r.ID.String(), stops: asksToStop(r),
		settle: func(tx pgx.Tx, how ending) (int64, error) {
			state := map[ending]string{endingProven: "enforced", endingOver: "over"}[how]
			return s.queries.SettleStopRequest(ctx, tx, db.SettleStopRequestParams{ID: r.ID, Claim: claim, State: state})
		},
	}
	missing, err := s.pursue(ctx, p)
	if err != nil || missing == "" {
		return true, err
	}
	alert := hopeless(missing) || r.Attempts >= stopAttemptsBeforeAlert
	_, err = s.queries.PostponeStopRequest(ctx, s.pool, db.PostponeStopRequestParams{
		ID: r.ID, Claim: claim, ErrorKind: missing, Seconds: pauseAfter(int(r.Attempts)).Seconds(), Alert: alert,
	})
	if err != nil {
		return true, fmt.Errorf("postpone a stop request: %w", err)
	}
	if alert && r.AlertedAt == nil {
		s.log.WarnContext(ctx, "a writer cannot be proven stopped", "stopRequest", r.ID, "workspace", r.WorkspaceID,
			"run", r.RunID, "attempts", r.Attempts, "errorKind", missing)
	}
	return true, nil
}
