package api_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// pgbench is Postgres's own load generator: what it reaches with the same statements is what there is to have.
type pgbench struct {
	rig     *rig
	program string
	env     []string // where the server is, and as whom
}

// findPgbench looks beside the server's programs, then on PATH. It is nil when there is none.
func (r *rig) findPgbench() *pgbench {
	r.b.Helper()
	var folder string
	benchMust(r.b, r.admin.QueryRow(context.Background(), "SELECT setting FROM pg_config WHERE name = 'BINDIR'").Scan(&folder))
	program := filepath.Join(folder, "pgbench")
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("pgbench"); err != nil {
			r.b.Log("pgbench is not installed (Debian has it in postgresql-15): no comparison with it")
			return nil
		}
	}
	// The same role and the same session settings as the service's.
	config := r.pool.Config().ConnConfig
	var options []string
	for name, value := range config.RuntimeParams {
		options = append(options, "-c "+name+"="+strings.ReplaceAll(value, " ", `\ `))
	}
	return &pgbench{rig: r, program: program, env: append(os.Environ(),
		"PGHOST="+config.Host, "PGPORT="+strconv.Itoa(int(config.Port)), "PGUSER="+config.User,
		"PGPASSWORD="+config.Password, "PGDATABASE="+config.Database, "PGSSLMODE=disable",
		"PGOPTIONS="+strings.Join(options, " "),
	)}
}

// pgbenchSample is the time between two of its progress lines.
const pgbenchSample = 2 * time.Second

var (
	pgbenchProgress = regexp.MustCompile(`(?m)^progress: [\d.]+ s, ([\d.]+) tps`)
	pgbenchTotal    = regexp.MustCompile(`number of transactions actually processed: (\d+)`)
)

// rate runs a script in so many sessions and returns how often a second it came to its end, and how often in all.
func (p *pgbench) rate(s script, sessions int, duration time.Duration) (perSecond float64, total int64) {
	p.rig.b.Helper()
	file := filepath.Join(p.rig.b.TempDir(), "cycle.sql")
	benchMust(p.rig.b, os.WriteFile(file, []byte(s.text), 0o600))
	seconds := func(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
	args := []string{
		"--no-vacuum", "--protocol=prepared", "--client=" + strconv.Itoa(sessions), "--jobs=2",
		"--time=" + seconds(warmUp()+duration), "--progress=" + seconds(pgbenchSample), "--file=" + file,
	}
	for _, constant := range s.constants {
		args = append(args, "--define="+constant)
	}
	command := exec.Command(p.program, args...)
	command.Env = p.env
	output, err := command.CombinedOutput()
	if err != nil {
		p.rig.b.Fatalf("pgbench: %v\n%s", err, output)
	}
	rates := pgbenchProgress.FindAllSubmatch(output, -1)
	rates = rates[min(len(rates), int(warmUp()/pgbenchSample)):]
	if len(rates) == 0 {
		p.rig.b.Fatalf("pgbench reports no progress:\n%s", output)
	}
	for _, rate := range rates {
		perSecond += number(p.rig.b, rate[1]) / float64(len(rates))
	}
	found := pgbenchTotal.FindSubmatch(output)
	if found == nil {
		p.rig.b.Fatalf("pgbench does not say how many transactions it ran:\n%s", output)
	}
	return perSecond, int64(number(p.rig.b, found[1]))
}

func number(b *testing.B, text []byte) float64 {
	b.Helper()
	n, err := strconv.ParseFloat(string(text), 64)
	benchMust(b, err)
	return n
}
