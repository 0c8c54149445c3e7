package snapshot_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/snapshot"
)

// The tree of the benchmarks: 10,000 files of 50 kB, of which about half can be compressed away.
const (
	benchFiles    = 10_000
	benchFileSize = 50_000
	benchMegabyte = benchFiles * benchFileSize / 1e6
)

// Roles that do one save or restore and report what it took. A process of its own shows the peak of its memory; the
// benchmark's would show that of everything before too.
const (
	childMeasurePack    = "measure a save"
	childMeasureRestore = "measure a restore"
)

type measurement struct {
	Seconds float64
	PeakKiB int64 // the highest resident set of the process
	Summary snapshot.Summary
}

func init() {
	childRoles[childMeasurePack] = func(args []string) (string, error) {
		return measure(func() (snapshot.Summary, error) {
			file, err := os.Create(args[1])
			if err != nil {
				return snapshot.Summary{}, err
			}
			summary, err := snapshot.Pack(context.Background(), args[0], file, snapshot.PackOptions{})
			return summary, errors.Join(err, file.Close())
		})
	}
	childRoles[childMeasureRestore] = func(args []string) (string, error) {
		var want snapshot.Digest
		if err := json.Unmarshal([]byte(args[2]), &want); err != nil {
			return "", err
		}
		return measure(func() (snapshot.Summary, error) {
			return snapshot.Restore(context.Background(), args[0], args[1], want, snapshot.Limits{})
		})
	}
}

func measure(work func() (snapshot.Summary, error)) (string, error) {
	start := time.Now()
	summary, err := work()
	if err != nil {
		return "", err
	}
	result := measurement{Seconds: time.Since(start).Seconds(), Summary: summary}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", fmt.Errorf("the peak of memory is read from /proc: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			if _, err := fmt.Sscanf(rest, "%d kB", &result.PeakKiB); err != nil {
				return "", err
			}
		}
	}
	text, err := json.Marshal(result)
	return string(text), err
}

func measureChild(b *testing.B, role string, args ...string) measurement {
	b.Helper()
	var m measurement
	must(b, json.Unmarshal([]byte(startChild(b, role, args...).result(b)), &m))
	return m
}

func benchTree(b *testing.B) string {
	b.Helper()
	root := b.TempDir()
	random := rand.NewChaCha8([32]byte{1})
	half := make([]byte, benchFileSize/2)
	for i := range benchFiles {
		random.Read(half)
		text := strings.Repeat(fmt.Sprintf("line %d of a file that has some text in it\n", i), benchFileSize)
		directory := filepath.Join(root, fmt.Sprintf("%02d/%02d", i%10, i/10%10))
		must(b, os.MkdirAll(directory, 0o755))
		must(b, os.WriteFile(filepath.Join(directory, fmt.Sprint(i)), append([]byte(text[:benchFileSize/2]), half...), 0o644))
	}
	return root
}

// settle writes out what earlier steps left to be written, so that no measurement pays for another's bytes.
func settle(b *testing.B) {
	b.Helper()
	must(b, exec.Command("sync").Run())
}

// shellSeconds times a shell command, which sees the arguments as $1 and so on. It is 0 without zstd.
func shellSeconds(b *testing.B, script string, args ...string) float64 {
	b.Helper()
	if _, err := exec.LookPath("zstd"); err != nil {
		b.Log("zstd is not installed: no comparison with tar and zstd")
		return 0
	}
	settle(b)
	command := exec.Command("sh", append([]string{"-ec", script, "sh"}, args...)...)
	start := time.Now()
	output, err := command.CombinedOutput()
	if err != nil {
		b.Fatalf("%s: %v\n%s", script, err, output)
	}
	return time.Since(start).Seconds()
}

func reportTransfer(b *testing.B, seconds, reference float64, peakKiB int64) {
	b.Helper()
	b.ReportMetric(benchMegabyte/seconds, "MB/s")
	b.ReportMetric(float64(peakKiB)/1024, "peak-MiB")
	if reference > 0 {
		b.ReportMetric(reference/seconds, "x-of-tar+zstd")
	}
}

// BenchmarkPack500MB saves 10,000 files of 500 MB in a process of its own. It reports throughput, the peak of the
// process's memory, and the throughput as a part of what `tar -c | zstd -T2 -3` reaches on the same files.
func BenchmarkPack500MB(b *testing.B) {
	tree, output := benchTree(b), filepath.Join(b.TempDir(), "archive")
	shellSeconds(b, `tar -C "$1" -c . | cat >/dev/null`, tree) // all start with the files in the page cache
	var seconds, reference float64
	var peak int64
	for b.Loop() {
		settle(b)
		m := measureChild(b, childMeasurePack, tree, output)
		seconds, peak = seconds+m.Seconds, max(peak, m.PeakKiB)
		b.ReportMetric(float64(m.Summary.Size)/1e6, "archive-MB")
		reference += shellSeconds(b, `tar -C "$1" -c . | zstd -q -T2 -3 -f -o "$2"`, tree, output+".reference")
	}
	reportTransfer(b, seconds/float64(b.N), reference/float64(b.N), peak)
}

// BenchmarkRestore500MB restores the same tree; the comparison is `zstd -d | tar -x` and the flush of the file system
// that Restore does as well.
func BenchmarkRestore500MB(b *testing.B) {
	tree, directory := benchTree(b), b.TempDir()
	archive := filepath.Join(directory, "archive")
	saved := measureChild(b, childMeasurePack, tree, archive)
	want, err := json.Marshal(saved.Summary.Digest())
	must(b, err)
	shellSeconds(b, `tar -C "$1" -c . | zstd -q -T2 -3 -f -o "$2"`, tree, archive+".reference")
	var seconds, reference float64
	var peak int64
	for b.Loop() {
		settle(b)
		target := filepath.Join(directory, "target")
		m := measureChild(b, childMeasureRestore, archive, target, string(want))
		seconds, peak = seconds+m.Seconds, max(peak, m.PeakKiB)
		must(b, os.RemoveAll(target))
		reference += shellSeconds(b, `mkdir "$2"; zstd -q -dc "$1" | tar -C "$2" -x; sync -f "$2"`, archive+".reference", target)
		must(b, os.RemoveAll(target))
	}
	reportTransfer(b, seconds/float64(b.N), reference/float64(b.N), peak)
}
