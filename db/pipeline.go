package db

import (
	"context"
	"reflect"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Pipeline gathers statements that travel to the server together and are answered together: one
// round trip, in order, each with a snapshot of its own. What a statement answers is there after
// the pipeline ran.
type Pipeline struct {
	batch pgx.Batch
}

// Statement is one that sqlc compiled, as far as a pipeline needs it: its text, with its parameters
// and its row as types. Those that a pipeline takes are listed at the end of the file.
type Statement[Params, Row any] struct {
	text string
}

// Rows queues the statement. The slice that it points to is filled when the pipeline ran.
func (st Statement[Params, Row]) Rows(p *Pipeline, params Params) *[]Row {
	var rows []Row
	p.batch.Queue(st.text, fieldsOf(params)...).Query(func(answer pgx.Rows) error {
		var err error
		rows, err = pgx.AppendRows(rows[:0], answer, pgx.RowToStructByPos[Row])
		return err
	})
	return &rows
}

// First returns the first row of a statement's answer, or nil.
func First[Row any](rows *[]Row) *Row {
	if len(*rows) == 0 {
		return nil
	}
	return &(*rows)[0]
}

// Run sends what was queued. A pipeline runs once.
func (p *Pipeline) Run(ctx context.Context, on interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
},
) error {
	return on.SendBatch(ctx, &p.batch).Close()
}

// fieldsOf lists a struct's fields, which sqlc writes in the order of the parameters.
func fieldsOf(params any) []any {
	v := reflect.ValueOf(params)
	args := make([]any, v.NumField())
	for i := range args {
		args[i] = v.Field(i).Interface()
	}
	return args
}

// The statements that travel in pipelines.
var (
	LockIssueForReservationStatement = Statement[LockIssueForReservationParams, struct{ ID uuid.UUID }]{lockIssueForReservation}
	LockBoundWorkspaceStatement      = Statement[LockBoundWorkspaceForReservationParams, struct{ ID uuid.UUID }]{lockBoundWorkspaceForReservation}
	TryLockBoundWorkspaceStatement   = Statement[TryLockBoundWorkspaceForReservationParams, struct{ ID uuid.UUID }]{tryLockBoundWorkspaceForReservation}
	LockRunsForReservationStatement  = Statement[LockRunsForReservationParams, struct{ ID uuid.UUID }]{lockRunsForReservation}
	ReservationFactsStatement        = Statement[GetReservationFactsParams, GetReservationFactsRow]{getReservationFacts}
	LeaseProofsOfWriterStatement     = Statement[ListLeaseProofsOfWriterParams, ListLeaseProofsOfWriterRow]{listLeaseProofsOfWriter}
	ReserveWorkspaceStatement        = Statement[ReserveWorkspaceParams, ExecutionWorkspace]{reserveWorkspace}
	HandOverWorkspaceStatement       = Statement[HandOverWorkspaceParams, ExecutionWorkspace]{handOverWorkspace}
	OpenTenureStatement              = Statement[OpenTenureParams, Tenure]{openTenure}
	CloseTenureStatement             = Statement[CloseTenureParams, Tenure]{closeTenure}
	LeavePlaceStatement              = Statement[LeavePlaceParams, struct{}]{leavePlace}
	RecordRefusalStatement           = Statement[RecordRefusalParams, struct{ ID int64 }]{recordRefusal}
	LockHeldWorkspaceStatement       = Statement[LockHeldWorkspaceParams, ExecutionWorkspace]{lockHeldWorkspace}
	LockEndedRunStatement            = Statement[LockEndedRunParams, HeartbeatRun]{lockEndedRun}
	LeaseProofsByRunStatement        = Statement[ListLeaseProofsByRunParams, ListLeaseProofsByRunRow]{listLeaseProofsByRun}
	ReleaseWorkspaceStatement        = Statement[ReleaseWorkspaceParams, ExecutionWorkspace]{releaseWorkspace}
	MarkWorkspaceDirtyStatement      = Statement[MarkWorkspaceDirtyParams, ExecutionWorkspace]{markWorkspaceDirty}
	SetWorkspaceLocationStatement    = Statement[SetWorkspaceLocationParams, ExecutionWorkspace]{setWorkspaceLocation}
	LockRunningRunStatement          = Statement[LockRunningRunParams, HeartbeatRun]{lockRunningRun}
)
