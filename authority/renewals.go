package authority

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"berth/db"
)

const (
	// renewalsAtOnce bounds one statement, and so how long its locks stand.
	renewalsAtOnce = 256

	// renewalTime bounds a statement and the wait for a connection to send it on.
	renewalTime = 10 * time.Second
)

// renewals sends the renewals of many writers together: those that came while one statement was under way are the
// next. Each costs the database a few rows then, and all of them one commit; a renewal that comes alone goes at once.
// It holds one connection at a time, so that it leaves the rest to others, however many renew.
type renewals struct {
	pool    *pgxpool.Pool
	queries *db.Queries

	mu      sync.Mutex
	waiting []*renewal
	sending bool
}

// renewal is one that waits to be sent, and then its answer: nil when the statement left it out.
type renewal struct {
	asked    db.RenewTenureParams
	answered chan struct{} // closed once answer or err is there
	answer   *db.RenewTenuresRow
	err      error
}

// ask renews together with others. No answer and no error means that this renewal has to be asked about by itself.
func (g *renewals) ask(ctx context.Context, asked db.RenewTenureParams) (*db.RenewTenuresRow, error) {
	r := &renewal{asked: asked, answered: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, r)
	if !g.sending {
		g.sending = true
		go g.send(context.WithoutCancel(ctx))
	}
	g.mu.Unlock()
	select {
	case <-r.answered:
		return r.answer, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("renew: %w", ctx.Err())
	}
}

// send goes on until nobody waits. No caller's end is its end: the others wait for it as well.
func (g *renewals) send(ctx context.Context) {
	for {
		together := g.next()
		if together == nil {
			return
		}
		g.sendTogether(ctx, together)
	}
}

// next takes those who wait, in the order in which they came.
func (g *renewals) next() []*renewal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.waiting, g.sending = nil, false
		return nil
	}
	n := min(len(g.waiting), renewalsAtOnce)
	together := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	return together
}

func (g *renewals) sendTogether(ctx context.Context, together []*renewal) {
	var all db.RenewTenuresParams
	for _, r := range together {
		all.CompanyIds = append(all.CompanyIds, r.asked.CompanyID)
		all.WorkspaceIds = append(all.WorkspaceIds, r.asked.WorkspaceID)
		all.RunIds = append(all.RunIds, r.asked.RunID)
		all.Epochs = append(all.Epochs, r.asked.Epoch)
	}
	ctx, cancel := context.WithTimeout(ctx, renewalTime)
	defer cancel()
	var rows []db.RenewTenuresRow
	err := db.Retry(ctx, func() (err error) {
		rows, err = g.queries.RenewTenures(ctx, g.pool, all)
		return err
	})
	for _, row := range rows {
		together[row.Place-1].answer = &row
	}
	for _, r := range together {
		if err != nil {
			r.answer, r.err = nil, fmt.Errorf("renew: %w", err)
		}
		close(r.answered)
	}
}
