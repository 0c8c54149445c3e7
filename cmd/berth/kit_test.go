package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The tests run the built program, as a person or a script does.

var (
	// program is where TestMain built it.
	program string
	// template is a data directory in which a database was made, and nothing else:
	// to make one is most of the work of a first start.
	template string
	// commonDir is where the common service works.
	commonDir string
)

func TestMain(m *testing.M) {
	os.Exit(testAll(m))
}

func testAll(m *testing.M) int {
	scratch, err := makeOpenDir()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch) //nolint:errcheck // what is left of it is in memory, or in the way of nobody
	defer stopCommon()
	program, template, commonDir = filepath.Join(scratch, "berth"), filepath.Join(scratch, "template"), filepath.Join(scratch, "common")
	for _, command := range []*exec.Cmd{
		exec.Command("go", "build", "-buildvcs=false", "-o", program, "."),
		exec.Command(program, "migrate", "up", "--data-dir", template),
		exec.Command("mkdir", commonDir),
	} {
		command.Env = clean()
		if output, err := command.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v: %s\n", command, err, output)
			return 1
		}
	}
	return m.Run()
}

// patience bounds every wait. It is long, since it only passes when something is
// broken, and the machine may be busy.
const patience = time.Minute

// eventually polls until holds does.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not in %s: %s", patience, what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// openTempDir is a directory of the test's that the user of Postgres can get to,
// which t.TempDir is not when the tests run as root.
func openTempDir(t testing.TB) string {
	t.Helper()
	dir, err := makeOpenDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// makeOpenDir makes it, in memory where that is to be had.
func makeOpenDir() (string, error) {
	base := ""
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "berth-test-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

// clean is this process's environment without anything that steers berth.
func clean(extra ...string) []string {
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "BERTH_") {
			env = append(env, variable)
		}
	}
	return append(env, extra...)
}

// result is what a command line came to.
type result struct {
	stdout, stderr string
	code           int
}

// invoke runs a command line to its end.
func invoke(t testing.TB, dir string, env []string, args ...string) result {
	t.Helper()
	command := exec.Command(program, args...)
	var stdout, stderr bytes.Buffer
	command.Dir, command.Env = dir, clean(env...)
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), command.ProcessState.ExitCode()}
}

// service is a running berth serve.
type service struct {
	t       testing.TB
	command *exec.Cmd
	dir     string   // its working directory; the data is in .berth there
	banner  []string // what it printed when it was ready
	url     string
	log     *lockedBuffer
	done    chan struct{} // closed when it ended
}

// lockedBuffer collects what a process writes while somebody else reads it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// launch starts berth serve in dir on a free port and does not wait until it is
// ready.
func launch(t testing.TB, dir string, env []string, args ...string) (*service, io.Reader) {
	t.Helper()
	s := &service{t: t, dir: dir, log: &lockedBuffer{}, done: make(chan struct{})}
	s.command = exec.Command(program, append([]string{"serve", "--addr", "127.0.0.1:0"}, args...)...)
	s.command.Dir, s.command.Env = dir, clean(env...)
	s.command.Stderr = s.log
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.command.Stdout = input
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	_ = input.Close()
	go func() {
		_ = s.command.Wait()
		close(s.done)
	}()
	return s, output
}

// start starts berth serve in dir, on a database that is there already, and waits
// until it is ready. The end of the test stops it.
func start(t testing.TB, dir string, env []string, args ...string) *service {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, ".berth")); err != nil && !slices.Contains(args, "--database-url") {
		giveDatabase(t, dir)
	}
	s := startAnew(t, dir, env, args...)
	t.Cleanup(func() { s.end(syscall.SIGINT) }) // in order, so that nothing writes there any more
	return s
}

// giveDatabase puts a data directory with a database into dir.
func giveDatabase(t testing.TB, dir string) {
	t.Helper()
	// cp knows how to keep the owners, of whom one is Postgres's.
	if output, err := exec.Command("cp", "-a", template, filepath.Join(dir, ".berth")).CombinedOutput(); err != nil {
		t.Fatalf("copy the database: %v: %s", err, output)
	}
}

// startAnew starts berth serve on whatever is in dir, and leaves its end to the
// caller.
func startAnew(t testing.TB, dir string, env []string, args ...string) *service {
	t.Helper()
	s, output := launch(t, dir, env, args...)
	lines := bufio.NewScanner(output)
	for len(s.banner) < 3 && lines.Scan() {
		s.banner = append(s.banner, lines.Text())
	}
	if len(s.banner) < 3 {
		s.end(syscall.SIGKILL)
		t.Fatalf("berth serve did not get ready: %s", s.log)
	}
	if _, err := fmt.Sscanf(s.banner[0], "Berth serves %s", &s.url); err != nil {
		t.Fatalf("%v in %q", err, s.banner[0])
	}
	return s
}

// end sends a signal, waits for the end, and returns the exit code, which is -1
// after a signal that the program did not take.
func (s *service) end(signal syscall.Signal) int {
	s.t.Helper()
	_ = s.command.Process.Signal(signal) // it may have ended already
	return s.wait()
}

func (s *service) wait() int {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(patience):
		_ = s.command.Process.Kill()
		s.t.Fatalf("berth serve does not end: %s", s.log)
	}
	return s.command.ProcessState.ExitCode()
}

// berth runs a command line that speaks to the service, in its directory.
func (s *service) berth(t testing.TB, args ...string) result {
	t.Helper()
	return s.berthAs(t, nil, args...)
}

func (s *service) berthAs(t testing.TB, env []string, args ...string) result {
	t.Helper()
	return invoke(t, s.dir, append([]string{"BERTH_URL=" + s.url}, env...), args...)
}

// must is berth for what has to succeed. It returns what was printed.
func (s *service) must(t testing.TB, args ...string) string {
	t.Helper()
	r := s.berth(t, args...)
	if r.code != 0 {
		t.Fatalf("berth %s: exit code %d: %s", strings.Join(args, " "), r.code, r.stderr)
	}
	return strings.TrimSpace(r.stdout)
}

// postgres is the process number of the private server.
func (s *service) postgres() int {
	s.t.Helper()
	content, err := os.ReadFile(filepath.Join(s.dir, ".berth/postgres/data/postmaster.pid"))
	if err != nil {
		s.t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(content), &pid); err != nil {
		s.t.Fatal(err)
	}
	return pid
}

// running tells whether a process is there and has not ended.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat("/proc/self"); err != nil { // no such file system here
			return syscall.Kill(pid, 0) == nil
		}
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z")
}

// common is one service for all tests that do not end it. Each of them works in a
// company of its own.
var common struct {
	once sync.Once
	*service
}

// company makes a company with the prefix in the common service.
func company(t testing.TB, prefix string) *service {
	t.Helper()
	common.once.Do(func() {
		giveDatabase(t, commonDir)
		common.service = startAnew(t, commonDir, nil)
	})
	if common.service == nil {
		t.Fatal("the common service did not start")
	}
	common.must(t, "create", "company", prefix+" Inc", "--prefix", prefix)
	return common.service
}

// stopCommon ends the common service, if any test used it.
func stopCommon() {
	if common.service == nil {
		return
	}
	_ = common.command.Process.Signal(syscall.SIGINT)
	<-common.done
}

// memberOf reads one member of a JSON object, by its path.
func memberOf(t testing.TB, document string, path ...string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(document), &value); err != nil {
		t.Fatalf("%v in %s", err, document)
	}
	for _, name := range path {
		object, ok := value.(map[string]any)
		if !ok {
			t.Fatalf("no %s in %s", strings.Join(path, "."), document)
		}
		value = object[name]
	}
	return value
}

// get fetches a page of the service that needs no token.
func get(t testing.TB, client *http.Client, url string) (int, string) {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// wants fails unless the text has all of the parts.
func wants(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
}

// refused fails unless a command line failed so, saying all of the parts.
func refused(t testing.TB, r result, code int, parts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, not %d: %s%s", r.code, code, r.stdout, r.stderr)
	}
	wants(t, r.stderr, parts...)
}
