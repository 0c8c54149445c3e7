package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The tree of the benchmark: 10,000 files of 50 kB, of which about half can be compressed away.
const (
	benchFiles    = 10_000
	benchFileSize = 50_000
	benchMegabyte = benchFiles * benchFileSize / 1e6
)

// peakAllowed is what neither side may need of memory, however large the tree: archives stream.
const peakAllowed = 100e6

// BenchmarkSaveAndRestore500MB saves a tree of 500 MB with berth save and restores it with berth restore, through a
// berth serve whose disk is a disk. It reports the throughput of each, also as a part of what tar and zstd reach with
// the same tree, and the most memory that the two commands and the server took. It fails when that is over 100 MB.
func BenchmarkSaveAndRestore500MB(b *testing.B) {
	dir := durableDir(b)
	tree, target, reference := filepath.Join(dir, "tree"), filepath.Join(dir, "target"), filepath.Join(dir, "reference.tar.zst")
	benchTree(b, tree)
	s := start(b, dir, nil)
	s.must(b, "create", "company", "Bench", "--prefix", "BENCH")
	s.must(b, "create", "agent", "Coder", "-c", "BENCH", "--adapter", "process")
	s.must(b, "create", "issue", "Task", "-c", "BENCH")
	held := append(strings.Fields(s.must(b, "reserve", "--issue", "BENCH-1")), "BERTH_URL="+s.url)
	if r := s.berthAs(b, held, "restore", "--dir", tree, "--adopt"); r.code != 0 {
		b.Fatal(r.stderr)
	}
	var save, restore, pack, unpack stopwatch
	for b.Loop() {
		save.time(b, held, "save", "--dir", tree)
		restore.time(b, held, "restore", "--dir", target)
		removeAll(b, target)
		if _, err := exec.LookPath("zstd"); err != nil {
			b.Log("zstd is not installed: no comparison with tar and zstd")
			continue
		}
		pack.timeShell(b, `tar -C "$1" -c . | zstd -q -T2 -3 -f -o "$2"; sync "$2"`, tree, reference)
		unpack.timeShell(b, `mkdir "$1"; zstd -q -dc "$2" | tar -C "$1" -x; sync -f "$1"`, target, reference)
		removeAll(b, target)
	}
	save.report(b, "save", pack)
	restore.report(b, "restore", unpack)
	reportPeak(b, "server", peakOf(s.command.Process.Pid))
	b.ReportMetric(0, "ns/op") // of everything together: it says nothing
}

// stopwatch adds up how long the same step took, and keeps the highest peak of its memory, in bytes.
type stopwatch struct {
	took time.Duration
	peak int64
}

// time runs a command line of berth, and fails unless it succeeds.
func (w *stopwatch) time(b *testing.B, env []string, args ...string) {
	b.Helper()
	command := exec.Command(program, args...)
	command.Env = clean(env...)
	w.run(b, command)
}

// timeShell runs a script, which sees the arguments as $1 and $2.
func (w *stopwatch) timeShell(b *testing.B, text string, args ...string) {
	b.Helper()
	w.run(b, exec.Command("sh", append([]string{"-ec", text, "sh"}, args...)...))
}

func (w *stopwatch) run(b *testing.B, command *exec.Cmd) {
	b.Helper()
	// What earlier steps left to be written is written first, so that no step pays for another's bytes.
	if err := exec.Command("sync").Run(); err != nil {
		b.Fatal(err)
	}
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	start := time.Now()
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-look.C: // the peak only grows, so the last look counts
			w.peak = max(w.peak, peakOf(command.Process.Pid))
		case err := <-ended:
			w.took += time.Since(start)
			if err != nil {
				b.Fatalf("%s: %v\n%s", command, err, &output)
			}
			return
		}
	}
}

func (w *stopwatch) report(b *testing.B, step string, reference stopwatch) {
	b.Helper()
	b.ReportMetric(benchMegabyte*float64(b.N)/w.took.Seconds(), step+"-MB/s")
	if reference.took > 0 {
		b.ReportMetric(reference.took.Seconds()/w.took.Seconds(), step+"-x-of-tar+zstd")
	}
	reportPeak(b, step, w.peak)
}

func reportPeak(b *testing.B, who string, peak int64) {
	b.Helper()
	b.ReportMetric(float64(peak)/1e6, who+"-peak-MB")
	if peak > peakAllowed {
		b.Errorf("%s took %d bytes of memory, and may take %d", who, peak, int64(peakAllowed))
	}
}

// peakOf is the highest resident set that a process had, in bytes; 0 when it is gone, or where the system does not say.
// The usage that Wait returns would not do: on Linux it begins with that of the process that started it.
func peakOf(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}

// durableDir is on a disk, where /tmp may be memory. The user that a root's private server runs as can pass through it.
func durableDir(b *testing.B) string {
	b.Helper()
	base := "/var/tmp"
	if _, err := os.Stat(base); err != nil {
		base = os.TempDir()
	}
	dir, err := os.MkdirTemp(base, "berth-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		b.Fatal(err)
	}
	return dir
}

func benchTree(b *testing.B, root string) {
	b.Helper()
	random := rand.NewChaCha8([32]byte{1})
	half := make([]byte, benchFileSize/2)
	for i := range benchFiles {
		random.Read(half)
		line := fmt.Sprintf("line %d of a file that has some text in it\n", i)
		text := strings.Repeat(line, benchFileSize/len(line))[:benchFileSize/2]
		directory := filepath.Join(root, fmt.Sprintf("%02d/%02d", i%10, i/10%10))
		if err := os.MkdirAll(directory, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, fmt.Sprint(i)), append([]byte(text), half...), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

func removeAll(b *testing.B, dir string) {
	b.Helper()
	if err := os.RemoveAll(dir); err != nil {
		b.Fatal(err)
	}
}
