package authority

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"berth/db"
)

const (
	// workspaceChannel is where the database tells which workspace may have become free.
	workspaceChannel = "berth_workspace"

	// keepEvery is how often the places of all open requests are polled for, in one statement. Three may be missed
	// before a turn is.
	keepEvery = 4 * time.Second

	// lookEvery is how often the room looks whose turn it is while notifications come, in case one got lost, and
	// lookOften while none do.
	lookEvery = 2 * time.Second
	lookOften = 250 * time.Millisecond

	// listenAgain is how long the room does without notifications before it tries to get them again.
	listenAgain = 5 * time.Second
)

// waitingRoom is where this server's open requests wait for their turn. It costs the database the same for one as for
// thousands: one connection that listens, one statement that keeps all places, one that looks whose turn it is. It
// decides nothing: who is woken asks again, and the decision is made there. While nobody waits it does nothing.
type waitingRoom struct {
	pool    *pgxpool.Pool
	queries *db.Queries
	log     *slog.Logger
	listens bool

	mu      sync.Mutex
	waiters map[uuid.UUID]map[*waiter]struct{} // by run
	lines   map[uuid.UUID]int                  // how many wait, by workspace
	stop    context.CancelFunc                 // ends the work that goes on while somebody waits
}

func newWaitingRoom(pool *pgxpool.Pool, queries *db.Queries, log *slog.Logger, listens bool) *waitingRoom {
	return &waitingRoom{
		pool: pool, queries: queries, log: log, listens: listens,
		waiters: map[uuid.UUID]map[*waiter]struct{}{}, lines: map[uuid.UUID]int{},
	}
}

// waiter is one open request of a run.
type waiter struct {
	room      *waitingRoom
	run       uuid.UUID
	workspace uuid.UUID
	woken     chan struct{} // has an element when it may be the run's turn
	gone      chan struct{} // closed when the run lost its place
	lost      sync.Once
	left      sync.Once
}

func (r *waitingRoom) enter(run, workspace uuid.UUID) *waiter {
	w := &waiter{room: r, run: run, workspace: workspace, woken: make(chan struct{}, 1), gone: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiters[run] == nil {
		r.waiters[run] = map[*waiter]struct{}{}
	}
	r.waiters[run][w] = struct{}{}
	r.lines[workspace]++
	if r.stop == nil {
		var ctx context.Context
		ctx, r.stop = context.WithCancel(context.Background())
		go r.attend(ctx)
	}
	return w
}

func (w *waiter) leave() { w.left.Do(func() { w.room.forget(w) }) }

func (r *waitingRoom) forget(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiters[w.run], w)
	if len(r.waiters[w.run]) == 0 {
		delete(r.waiters, w.run)
	}
	if r.lines[w.workspace]--; r.lines[w.workspace] == 0 {
		delete(r.lines, w.workspace)
	}
	if len(r.waiters) == 0 {
		r.stop()
		r.stop = nil
	}
}

// attend serves those who wait until the last one left.
func (r *waitingRoom) attend(ctx context.Context) {
	freed, listening := make(chan uuid.UUID), make(chan bool)
	if r.listens {
		go r.listen(ctx, freed, listening)
	}
	keep, look := time.NewTicker(keepEvery), time.NewTicker(lookOften)
	defer keep.Stop()
	defer look.Stop()
	for {
		select {
		case workspace := <-freed:
			r.callTurns(ctx, []uuid.UUID{workspace})
		case on := <-listening:
			look.Reset(map[bool]time.Duration{true: lookEvery, false: lookOften}[on])
			r.callTurns(ctx, r.awaited())
		case <-look.C:
			r.callTurns(ctx, r.awaited())
		case <-keep.C:
			r.keepPlaces(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// awaited are the workspaces that somebody here waits for.
func (r *waitingRoom) awaited() []uuid.UUID {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]uuid.UUID, 0, len(r.lines))
	for id := range r.lines {
		ids = append(ids, id)
	}
	return ids
}

// callTurns wakes those whose turn it seems to be, if they wait here.
func (r *waitingRoom) callTurns(ctx context.Context, workspaces []uuid.UUID) {
	turns, err := r.queries.ListTurns(ctx, r.pool, workspaces)
	if err != nil {
		r.complain(ctx, "look whose turn it is", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, turn := range turns {
		for w := range r.waiters[turn.RunID] {
			w.wake()
		}
	}
}

// keepPlaces polls for everybody here. Whoever has no place any more is told: it was cancelled, or its run ended.
func (r *waitingRoom) keepPlaces(ctx context.Context) {
	r.mu.Lock()
	runs, asked := make([]uuid.UUID, 0, len(r.waiters)), []*waiter{}
	for run, waiters := range r.waiters {
		runs = append(runs, run)
		asked = slices.AppendSeq(asked, maps.Keys(waiters))
	}
	r.mu.Unlock()
	kept, err := r.queries.KeepPlaces(ctx, r.pool, runs)
	if err != nil {
		r.complain(ctx, "keep the places of those who wait", err)
		return
	}
	have := make(map[uuid.UUID]bool, len(kept))
	for _, run := range kept {
		have[run] = true
	}
	for _, w := range asked {
		if !have[w.run] {
			w.lose()
		}
	}
}

// keep polls for one run, and reports whether it has a place.
func (r *waitingRoom) keep(ctx context.Context, run uuid.UUID) (bool, error) {
	kept, err := r.queries.KeepPlaces(ctx, r.pool, []uuid.UUID{run})
	return len(kept) > 0, err
}

func (w *waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default: // it is about to look already
	}
}

// dismiss tells the open requests of a run that its place was given up. Those at another server learn of it when their
// places are next kept.
func (r *waitingRoom) dismiss(run uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.waiters[run] {
		w.lose()
	}
}

func (w *waiter) lose() { w.lost.Do(func() { close(w.gone) }) }

// listen hands on the database's notifications, on a connection of its own, and says when they come and when they do
// not. It takes none of the pool's, which requests need.
func (r *waitingRoom) listen(ctx context.Context, freed chan<- uuid.UUID, listening chan<- bool) {
	for ctx.Err() == nil {
		err := r.listenOnce(ctx, freed, listening)
		if ctx.Err() != nil {
			return
		}
		r.complain(ctx, "listen for workspaces that become free", err)
		select {
		case listening <- false:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(listenAgain):
		case <-ctx.Done():
		}
	}
}

func (r *waitingRoom) listenOnce(ctx context.Context, freed chan<- uuid.UUID, listening chan<- bool) error {
	conn, err := pgx.ConnectConfig(ctx, r.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is lost with it
	if _, err := conn.Exec(ctx, "LISTEN "+workspaceChannel); err != nil {
		return err
	}
	select {
	case listening <- true:
	case <-ctx.Done():
		return nil
	}
	for {
		said, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		workspace, err := uuid.Parse(said.Payload)
		if err != nil || !r.isAwaited(workspace) {
			continue
		}
		select {
		case freed <- workspace:
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *waitingRoom) isAwaited(workspace uuid.UUID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines[workspace] > 0
}

// complain logs what keeps the room from its work. It goes on trying: those who wait lose time, not their places.
func (r *waitingRoom) complain(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		r.log.WarnContext(ctx, "waiting is slower for now: could not "+what, "error", err)
	}
}
