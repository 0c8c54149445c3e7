package storetest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Wire carries connections to a server, and can be cut.
type Wire struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	changed *sync.Cond // when what follows changed
	open    map[net.Conn]bool
	cut     bool
	frozen  bool
	pause   time.Duration // after each piece
	left    [2]int64      // bytes until the next cut by direction; negative is no limit
}

// Direction is where bytes on a wire go.
type Direction int

// The two directions.
const (
	ToServer Direction = iota
	ToClient
)

func newWire(tb testing.TB, target string) *Wire {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	w := &Wire{listener: listener, target: target, open: map[net.Conn]bool{}, left: [2]int64{-1, -1}}
	w.changed = sync.NewCond(&w.mu)
	tb.Cleanup(func() {
		_ = listener.Close()
		w.Cut()
	})
	go w.accept()
	return w
}

// Address is where clients connect to.
func (w *Wire) Address() string { return w.listener.Addr().String() }

// Cut ends all connections, and those that are begun until Mend.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	w.endAll()
}

// CutOnceAfter ends all connections when that many further bytes went into the direction. New ones are carried.
func (w *Wire) CutOnceAfter(bytes int64, direction Direction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left[direction] = bytes
}

// Freeze lets connections stand, and be begun, but carry nothing until Mend.
func (w *Wire) Freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen = true
}

// Slow lets the wire pause after each 4096 bytes or less.
func (w *Wire) Slow(pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pause = pause
}

// Mend ends Cut, Freeze and Slow.
func (w *Wire) Mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.frozen, w.pause = false, false, 0
	w.changed.Broadcast()
}

func (w *Wire) endAll() {
	for conn := range w.open {
		_ = conn.Close()
	}
	clear(w.open)
	w.frozen = false
	w.changed.Broadcast()
}

func (w *Wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.target) //nolint:noctx // it ends with the wire
		if err != nil {
			_ = client.Close()
			continue
		}
		w.mu.Lock()
		if w.cut {
			_, _ = client.Close(), server.Close()
		} else {
			w.open[client], w.open[server] = true, true
			go w.carry(client, server, ToServer)
			go w.carry(server, client, ToClient)
		}
		w.mu.Unlock()
	}
}

func (w *Wire) carry(from, to net.Conn, direction Direction) {
	defer w.end(from, to)
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			n, cut, pause := w.pass(n, direction)
			<-time.After(pause)
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
			if cut {
				w.mu.Lock()
				w.endAll()
				w.mu.Unlock()
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits while the wire is frozen, and says how many of n bytes get through, whether the wire is cut after them, and
// how long they take.
func (w *Wire) pass(n int, direction Direction) (int, bool, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.frozen {
		w.changed.Wait()
	}
	left := &w.left[direction]
	if *left < 0 {
		return n, false, w.pause
	}
	n = int(min(int64(n), *left))
	*left -= int64(n)
	if *left > 0 {
		return n, false, w.pause
	}
	*left = -1
	return n, true, w.pause
}

func (w *Wire) end(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
		delete(w.open, conn)
	}
}
