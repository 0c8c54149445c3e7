package authority

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	"berth/db"
	"berth/snapshot"
)

// crashVariable tells the test binary that it is a server that does one operation, and dies in the midst of it.
const crashVariable = "BERTH_AUTHORITY_TEST_CRASH"

// crashOrder is what such a server is told.
type crashOrder struct {
	Database  string
	Store     string
	Machines  string
	Operation string
	Stage     crashStage
	Moment    int // at which it is killed
}

func TestMain(m *testing.M) {
	order := os.Getenv(crashVariable)
	if order == "" {
		os.Exit(m.Run())
	}
	if err := obey(order); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// obey does what an order says. When the moment comes it tells its name and is killed, as by kill -9.
func obey(text string) error {
	var order crashOrder
	if err := json.Unmarshal([]byte(text), &order); err != nil {
		return err
	}
	ctx := context.Background()
	f := &fuse{blow: func(moment string, _ uint32) {
		_, _ = os.Stdout.WriteString(moment)
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
		}
		select {} // the signal is on its way
	}}
	usual, err := db.Open(ctx, order.Database, db.Options{})
	if err != nil {
		return err
	}
	defer usual.Close()
	pool, err := fusedPool(ctx, usual, f)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := pool.Ping(ctx); err != nil {
		return err
	}
	store, err := snapshot.OpenFileStore(order.Store)
	if err != nil {
		return err
	}
	s := New(pool, fusedStore{store, f}, slog.New(slog.DiscardHandler), WithPolling(), WithProviders(yard{order.Machines, f}))
	f.arm(order.Moment)
	return crashOperations[order.Operation].call(ctx, s, order.Stage)
}

// killedAt has another process do the order, and returns the moment at which it was killed, or "" when it got to its
// end before.
func (o crashOrder) killedAt(t testing.TB) string {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	self := exec.CommandContext(t.Context(), os.Args[0])
	self.Env = append(os.Environ(), crashVariable+"="+string(text))
	var moment, complaint bytes.Buffer
	self.Stdout, self.Stderr = &moment, &complaint
	err = self.Run()
	switch {
	case err == nil && moment.Len() == 0:
		return ""
	case err == nil || moment.Len() == 0:
		t.Fatalf("the process that does %q: %v %s", o.Operation, err, complaint.String())
	}
	return moment.String()
}
