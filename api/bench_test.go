package api_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

// measureTime is how long each measurement lasts; with -short less than half of it, which is enough to see that it works.
func measureTime() time.Duration {
	if testing.Short() {
		return 4 * time.Second
	}
	return 10 * time.Second
}

// warmUp comes before each measurement and does not count. A new session costs a quarter of a second of processor time:
// it parses and plans every statement, of the triggers too, and Postgres plans anew the first five times.
func warmUp() time.Duration {
	if testing.Short() {
		return 2 * time.Second
	}
	return 10 * time.Second
}

// BenchmarkReserveAndRelease lets 32 clients reserve and release over HTTP, each its own workspace, and reports cycles
// a second. Beside them pgbench runs the statements that the service sends for such a cycle, on the same server: one a
// round trip with 32 and with 8 sessions, and with 8 sessions in the service's own round trips, which is the most that
// can be had from this schema. An operation is one such measurement.
func BenchmarkReserveAndRelease(b *testing.B) {
	r := newRig(b)
	recorder := r.clients[0]
	exchanges := r.record(recorder, (*benchClient).cycle)
	single, err := r.scriptOf(exchanges, recorder, false)
	benchMust(b, err)
	pipelined, err := r.scriptOf(exchanges, recorder, true)
	benchMust(b, err)
	reference := r.findPgbench()
	report := newReport(b, "cycles")
	for b.Loop() {
		report.http(r.load((*benchClient).cycle))
		if reference == nil {
			continue
		}
		report.add("pgbench-c32", reference.cycles(single, 32))
		report.add("pgbench-c8", reference.cycles(single, 8))
		report.add("pgbench-c8-pipelined", reference.cycles(pipelined, 8))
	}
	report.publish()
	b.ReportMetric(float64(len(exchanges)), "round-trips/cycle")
}

// cycles is how many cycles a second pgbench reaches. It fails when the cycles did not do what they are for: a guarded
// statement that finds no row is fast.
func (p *pgbench) cycles(s script, sessions int) float64 {
	p.rig.b.Helper()
	p.rig.settle()
	const closed = "SELECT count(*) FROM tenures WHERE ended_how = 'release'"
	before := p.rig.count(closed)
	rate, total := p.rate(s, sessions, measureTime())
	if got := p.rig.count(closed) - before; got != total {
		p.rig.b.Fatalf("pgbench says %d cycles, and %d tenures began and ended", total, got)
	}
	for _, c := range p.rig.clients { // their epochs moved
		benchMust(p.rig.b, c.cycle())
	}
	return rate
}

// load has every client repeat a call for the time of a measurement, and returns how long each took.
func (r *rig) load(call func(*benchClient) error) []time.Duration {
	r.b.Helper()
	r.settle()
	r.repeat(call, warmUp())
	return r.repeat(call, measureTime())
}

func (r *rig) repeat(call func(*benchClient) error, duration time.Duration) (took []time.Duration) {
	r.b.Helper()
	var (
		working sync.WaitGroup
		mu      sync.Mutex
		failed  error
		end     = time.Now().Add(duration)
	)
	for _, c := range r.clients {
		working.Go(func() {
			var own []time.Duration
			var err error
			for err == nil && time.Now().Before(end) {
				start := time.Now()
				err = call(c)
				own = append(own, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			took, failed = append(took, own...), errors.Join(failed, err)
		})
	}
	working.Wait()
	benchMust(r.b, failed)
	return took
}

// report gathers measurements that took turns on one machine and publishes their means.
type report struct {
	b       *testing.B
	what    string
	order   []string
	samples map[string][]float64
	took    []time.Duration
}

func newReport(b *testing.B, what string) *report {
	return &report{b: b, what: what, samples: map[string][]float64{}}
}

func (r *report) http(took []time.Duration) {
	r.add("http", float64(len(took))/measureTime().Seconds())
	r.took = append(r.took, took...)
}

func (r *report) add(name string, perSecond float64) {
	if r.samples[name] == nil {
		r.order = append(r.order, name)
	}
	r.samples[name] = append(r.samples[name], perSecond)
}

func (r *report) publish() {
	mean := func(name string) (sum float64) {
		for _, sample := range r.samples[name] {
			sum += sample / float64(len(r.samples[name]))
		}
		return sum
	}
	for _, name := range r.order {
		r.b.ReportMetric(mean(name), name+"-"+r.what+"/s")
		if name != "http" {
			r.b.ReportMetric(mean("http")/mean(name), "x-of-"+name)
		}
	}
	slices.Sort(r.took)
	for name, part := range map[string]float64{"p50-ms": 0.5, "p99-ms": 0.99} {
		r.b.ReportMetric(float64(r.took[int(part*float64(len(r.took)-1))])/1e6, name)
	}
	r.b.ReportMetric(0, "ns/op") // the length of a measurement says nothing
}
