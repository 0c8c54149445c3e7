package runner

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestARunOutlivesAServiceThatIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	door := newDoor(t, s.URL)
	p := s.script(s.first, `echo x > here; until [ -s go ]; do sleep 0.01; done; echo done > did`)
	p.URL = door.url()
	out := p.begin()
	p.awaitFile("here")
	door.shut()
	renewed := s.lastRenewed(t)
	<-time.After(10 * quickPace.renew)
	door.open()
	eventually(t, 20*time.Second, "renewals go on", func() bool { return s.lastRenewed(t) != renewed })
	door.shut() // and for the whole of the first tries to save
	put(t, p.Dir, "go", "x")
	eventually(t, 20*time.Second, "the save is tried", func() bool { return strings.Contains(p.notices.String(), "trying on") })
	door.open()
	if e := p.await(out); e.err != nil || e.ExitCode != 0 || e.Saved == nil {
		t.Errorf("got %+v, %v", e.Result, e.err)
	}
	s.requireFree()
}

func (s *stage) lastRenewed(t *testing.T) string {
	t.Helper()
	runs := s.runs()
	return fmt.Sprint(runs[len(runs)-1]["lastRenewedAt"])
}

// door is a way to a service that can be shut, with every connection that goes through it.
type door struct {
	t       *testing.T
	to      string
	address string

	mu       sync.Mutex
	listener net.Listener
	through  map[net.Conn]bool
}

func newDoor(t *testing.T, service string) *door {
	t.Helper()
	where, err := url.Parse(service)
	if err != nil {
		t.Fatal(err)
	}
	d := &door{t: t, to: where.Host, address: "127.0.0.1:0"}
	d.open()
	t.Cleanup(d.shut)
	return d
}

func (d *door) url() string { return "http://" + d.address }

func (d *door) open() {
	d.t.Helper()
	listener, err := net.Listen("tcp", d.address)
	if err != nil {
		d.t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listener, d.address, d.through = listener, listener.Addr().String(), map[net.Conn]bool{}
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			go d.pass(in)
		}
	}()
}

func (d *door) pass(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", d.to)
	if err != nil {
		return
	}
	defer out.Close()
	d.mu.Lock()
	d.through[in], d.through[out] = true, true
	d.mu.Unlock()
	go func() {
		_, _ = io.Copy(out, in)
		_ = out.Close()
	}()
	_, _ = io.Copy(in, out)
}

func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.listener.Close()
	for connection := range d.through {
		_ = connection.Close()
	}
}
