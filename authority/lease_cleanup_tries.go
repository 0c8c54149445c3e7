package authority

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"berth/db"
	"berth/provider"
)

// What a try can fail by beside the kinds of a provider's errors.
const (
	failedByOtherMachine = "wrong_machine" // the provider answered for another id than it was asked for
	failedByLife         = "still_running" // it took the wish, and the machine is not stopped yet
	failedByRemains      = "still_there"   // the machine stopped, and is not destroyed yet
)

// finding is what a try learned of a machine. The state is stopped or destroyed where the provider said
// so of that very machine; else kind says what is missing. Both are set for a machine that stopped and
// should be gone.
type finding struct {
	state   provider.State
	kind    string
	seen    bool // the provider answered by the machine's id
	unknown bool // nobody here serves a provider of that name
}

// ask has the provider stop or destroy the machine, unless it is so already. No transaction is open.
func (t *cleanupTry) ask(ctx context.Context, step cleanupStep) finding {
	asked, err := t.providers.For(*t.facts.Provider, t.facts.EnvironmentConfig)
	switch {
	case errors.Is(err, provider.ErrUnknownProvider):
		return finding{unknown: true}
	case err != nil:
		return finding{kind: string(provider.KindOf(err))}
	}
	ctx, cancel := context.WithTimeout(ctx, t.providerTime)
	defer cancel()
	m := askedMachine{id: *t.facts.ProviderLeaseID, known: t.facts.KnownHere}
	found := m.read(asked.State(ctx, m.id))
	if found.ends(step) || found.state == "" {
		return found
	}
	wish := asked.Stop
	if step.destroy {
		wish = asked.Destroy
	}
	answer := m.read(wish(ctx, m.id))
	if answer.ends(step) {
		return answer
	}
	now := m.read(asked.State(ctx, m.id))
	if answer.kind != "" && !now.ends(step) {
		now.kind = answer.kind // the refusal of the wish tells more than that the machine is as it was
	}
	return now.missing(step)
}

// askedMachine is one that a provider is asked about. It is known once the provider answered by its id.
type askedMachine struct {
	id    string
	known bool
	seen  bool // in this try
}

// read says what an answer is worth. Not found is a word about this machine only when the provider once
// knew it by that id: otherwise it may never have been looked for in the right place.
func (m *askedMachine) read(answer provider.Answer, err error) finding {
	switch {
	case err == nil && answer.ID != m.id:
		return finding{kind: failedByOtherMachine, seen: m.seen}
	case err == nil:
		m.known, m.seen = true, true
		return finding{state: answer.State, seen: true}
	case provider.KindOf(err) == provider.KindNotFound && m.known:
		return finding{state: provider.StateDestroyed, seen: m.seen}
	default:
		return finding{kind: string(provider.KindOf(err)), seen: m.seen}
	}
}

// ends reports whether nothing is left to ask.
func (f finding) ends(step cleanupStep) bool {
	return f.state == provider.StateDestroyed || (f.state == provider.StateStopped && !step.destroy)
}

// missing adds why a machine that answered is not done with.
func (f finding) missing(step cleanupStep) finding {
	switch {
	case f.ends(step) || f.kind != "":
	case f.state == provider.StateStopped:
		f.kind = failedByRemains
	default:
		f.kind = failedByLife
	}
	return f
}

// cleanupOutcome is what became of a try, once it is committed.
type cleanupOutcome struct {
	what      cleanupEnd
	attempts  int32
	errorKind string
	warned    bool // people are told, this once
}

type cleanupEnd int

const (
	outcomeSettled cleanupEnd = iota + 1
	outcomeStopped
	outcomeFailed
	outcomeHeldBack
)

func (c *CleanupSweep) count(o cleanupOutcome) {
	switch o.what {
	case outcomeSettled:
		c.Settled++
	case outcomeStopped:
		c.Stopped++
	case outcomeFailed:
		c.Failed++
	case outcomeHeldBack:
		c.HeldBack++
	}
}

// tell logs a warning that is on record. Of what the provider sent it has the kind alone.
func (t *cleanupTry) tell(ctx context.Context, o cleanupOutcome) {
	if o.warned {
		t.log.WarnContext(ctx, "a leased machine cannot be cleaned up; it goes on being tried",
			"leaseId", t.lease, "runId", t.facts.RunID, "provider", t.facts.Provider, "attempts", o.attempts, "errorKind", o.errorKind)
	}
}

// record writes what a try found, under its claim and all locks of the lease.
func (t *cleanupTry) record(
	ctx context.Context, tx pgx.Tx, lease db.EnvironmentLease, step cleanupStep, found finding,
) (cleanupOutcome, error) {
	if found.seen {
		_, err := t.queries.NoteSighting(ctx, tx, db.NoteSightingParams{
			LeaseID: t.lease, EnvironmentConfig: t.facts.EnvironmentConfig,
		})
		if err != nil {
			return cleanupOutcome{}, fmt.Errorf("note that a machine was seen: %w", err)
		}
	}
	switch {
	case step.heldBackBy == heldByUnknownProvider || found.unknown:
		return t.leaveUnknown(ctx, tx, lease)
	case step.heldBackBy != "":
		return cleanupOutcome{what: outcomeHeldBack}, t.waitFor(ctx, tx, step.heldBackBy)
	case found.state == provider.StateDestroyed:
		return t.settleCleanup(ctx, tx, lease, stateDestroyed)
	case found.state == provider.StateStopped && step.kind == receiptTermination:
		return t.settleCleanup(ctx, tx, lease, stateStopped)
	case found.state == provider.StateStopped && !step.destroy:
		// It stays until the work on it is recovered or given up.
		if _, err := t.receive(ctx, tx, lease, ReceiptInput{State: stateStopped, Kind: step.kind}); err != nil {
			return cleanupOutcome{}, err
		}
		return cleanupOutcome{what: outcomeStopped}, t.waitFor(ctx, tx, heldByUnsavedWork)
	}
	return t.fail(ctx, tx, lease, found)
}

// settleCleanup records the receipt that ends the clean-up.
func (t *cleanupTry) settleCleanup(ctx context.Context, tx pgx.Tx, lease db.EnvironmentLease, state string) (cleanupOutcome, error) {
	if _, err := t.receive(ctx, tx, lease, ReceiptInput{State: state, Kind: receiptTermination}); err != nil {
		return cleanupOutcome{}, err
	}
	if _, err := t.queries.SettleLeaseCleanup(ctx, tx, db.SettleLeaseCleanupParams{LeaseID: t.lease, Claim: t.claim}); err != nil {
		return cleanupOutcome{}, fmt.Errorf("settle a clean-up: %w", err)
	}
	return cleanupOutcome{what: outcomeSettled}, nil
}

// fail puts the next try off. A machine that stopped and could not be destroyed is proven stopped all
// the same: it costs money, and keeps nobody out.
func (t *cleanupTry) fail(ctx context.Context, tx pgx.Tx, lease db.EnvironmentLease, found finding) (cleanupOutcome, error) {
	status := lease.Status
	if found.state == provider.StateStopped && !t.facts.Proven {
		moved, err := t.receive(ctx, tx, lease, ReceiptInput{State: stateStopped, Kind: receiptRecoveryCleanup})
		if err != nil {
			return cleanupOutcome{}, err
		}
		status = moved.Status
	}
	if found.kind != failedByLife { // which is no failure yet
		_, err := t.queries.MarkLeaseCleanupFailed(ctx, tx, db.MarkLeaseCleanupFailedParams{ID: t.lease, FromStatus: status})
		if err != nil {
			return cleanupOutcome{}, fmt.Errorf("mark a clean-up as failed: %w", err)
		}
	}
	row, err := t.queries.FailLeaseCleanup(ctx, tx, db.FailLeaseCleanupParams{
		ErrorKind: found.kind, WarnAfter: cleanupWarnAfter, LeaseID: t.lease, Claim: t.claim,
	})
	if err != nil {
		return cleanupOutcome{}, fmt.Errorf("put a clean-up off: %w", err)
	}
	o := cleanupOutcome{what: outcomeFailed, attempts: row.Attempts, errorKind: found.kind, warned: row.Attempts == cleanupWarnAfter}
	return o, t.recordWarning(ctx, tx, lease, o)
}

// leaveUnknown leaves a lease alone whose provider nobody here can ask: another installation may, or
// people. When nobody did until the second look, people are told, once.
func (t *cleanupTry) leaveUnknown(ctx context.Context, tx pgx.Tx, lease db.EnvironmentLease) (cleanupOutcome, error) {
	again := t.facts.HeldBackBy == heldByUnknownProvider
	o := cleanupOutcome{what: outcomeHeldBack, errorKind: heldByUnknownProvider, warned: again && t.facts.WarnedAt == nil}
	wait := cleanupLookLater
	if again {
		wait = cleanupLookSeldom
	}
	if err := t.holdBack(ctx, tx, db.HoldBackLeaseCleanupParams{
		WaitSeconds: wait.Seconds(), HeldBackBy: heldByUnknownProvider, Warned: o.warned,
	}); err != nil {
		return o, err
	}
	return o, t.recordWarning(ctx, tx, lease, o)
}

// recordWarning puts into the history what people are told.
func (t *cleanupTry) recordWarning(ctx context.Context, tx pgx.Tx, lease db.EnvironmentLease, o cleanupOutcome) error {
	if !o.warned {
		return nil
	}
	data, _ := json.Marshal(map[string]any{ // plain values always marshal
		"leaseId": lease.ID, "provider": lease.Provider, "attempts": o.attempts, "errorKind": o.errorKind,
	})
	event := db.InsertEventParams{
		CompanyID: lease.CompanyID, Kind: "lease.cleanup_failing", RunID: lease.HeartbeatRunID, Actor: cleanupActor, Data: data,
	}
	held, err := t.queries.GetWorkspaceHeldByRun(ctx, tx, db.GetWorkspaceHeldByRunParams{
		CompanyID: lease.CompanyID, RunID: t.facts.RunID,
	})
	switch {
	case err == nil:
		event.WorkspaceID, event.Epoch = &held.ID, &held.Epoch
	case !errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("look for the run's workspace: %w", err)
	}
	return t.recordEvent(ctx, tx, event)
}

// waitFor ends a try after which somebody has to do something before the next.
func (t *cleanupTry) waitFor(ctx context.Context, tx pgx.Tx, what string) error {
	return t.holdBack(ctx, tx, db.HoldBackLeaseCleanupParams{WaitSeconds: cleanupLookAgain.Seconds(), HeldBackBy: what})
}

func (t *cleanupTry) holdBack(ctx context.Context, tx pgx.Tx, how db.HoldBackLeaseCleanupParams) error {
	how.LeaseID, how.Claim = t.lease, t.claim
	if _, err := t.queries.HoldBackLeaseCleanup(ctx, tx, how); err != nil {
		return fmt.Errorf("hold a clean-up back: %w", err)
	}
	return nil
}

// receive records the provider's word as a receipt. A lease that is past it moved on meanwhile.
func (t *cleanupTry) receive(ctx context.Context, tx pgx.Tx, lease db.EnvironmentLease, in ReceiptInput) (Lease, error) {
	in.ProviderLeaseID, in.RunID = *lease.ProviderLeaseID, lease.HeartbeatRunID
	_, moved, err := t.recordReceipt(ctx, tx, cleanupActor, lease, in)
	if errors.Is(err, ErrLeaseForward) {
		return moved, errStaleCleanup
	}
	return moved, err
}
