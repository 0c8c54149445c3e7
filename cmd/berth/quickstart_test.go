package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/snapshot"
)

// The README's quickstart, word for word, but for its first line, which builds
// the program: on a repository with real history and a few thousand files.
func TestTheQuickstartOfTheReadmeWorks(t *testing.T) {
	t.Parallel()
	s := start(t, openTempDir(t), nil)
	makeRepository(t, s.dir)
	if err := os.Symlink(program, filepath.Join(s.dir, "berth")); err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	lines := quickstart(t)
	if len(lines) > 12 || !strings.HasPrefix(lines[0], "go build -o berth ./cmd/berth && W=$(mktemp -d) && ") {
		t.Fatalf("the quickstart has %d commands, and the first is %s", len(lines), lines[0])
	}
	lines[0] = "W=" + scratch + ` && git clone -q . "$W/one"`
	script := ""
	for _, line := range lines {
		script += line + "\necho \"exit code $?\"\n"
	}
	shell := exec.Command("bash", "-c", script)
	shell.Dir, shell.Env = s.dir, clean("BERTH_URL="+s.url, "GIT_CONFIG_GLOBAL=/dev/null")
	output, err := shell.CombinedOutput()
	told := string(output)
	if err != nil {
		t.Fatalf("%v: %s", err, told)
	}
	var codes []string
	for _, match := range regexp.MustCompile(`(?m)^exit code (\d+)$`).FindAllStringSubmatch(told, -1) {
		codes = append(codes, match[1])
	}
	want := slices.Repeat([]string{"0"}, len(lines))
	want[len(want)-2] = "73" // the sibling's first attempt
	if diff := cmp.Diff(want, codes); diff != "" {
		t.Fatalf("exit codes (-want +got):\n%s%s", diff, told)
	}
	runs := s.must(t, "list", "runs", "--issue", "ACME-2", "-o", "json")
	holder := memberOf(t, runs, "items").([]any)[0].(map[string]any)["id"].(string)
	_, after, _ := strings.Cut(told, "The run is the writer")
	wants(t, after, "remote_workspace_writer_pending", holder, "Write the page")

	one, two := filepath.Join(scratch, "one"), filepath.Join(scratch, "two")
	before := inventory(t, one)
	if len(before) < 3000 {
		t.Errorf("only %d files", len(before))
	}
	if diff := cmp.Diff(before, inventory(t, two)); diff != "" {
		t.Errorf("the sibling got other files (-first +sibling):\n%s", diff)
	}
	if first, second := git(t, one, "log", "--all"), git(t, two, "log", "--all"); first != second {
		t.Errorf("the sibling got another history:\n%s\n%s", first, second)
	}
	git(t, two, "fsck", "--strict")
	if status := git(t, two, "status", "--porcelain"); status != "" {
		t.Errorf("the restored repository is not clean: %s", status)
	}
	workspace := s.must(t, "show", "workspace", "ACME-1", "-o", "json")
	if epoch := memberOf(t, workspace, "authority", "epoch"); epoch != 2.0 {
		t.Errorf("epoch %v", epoch)
	}
	if writer := memberOf(t, workspace, "authority", "writerRunId"); writer != nil {
		t.Errorf("writer %v", writer)
	}
}

// quickstart is the block of commands below the README's heading.
func quickstart(t testing.TB) []string {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(readme), "\n## Quickstart\n")
	_, block, opened := strings.Cut(section, "\n```sh\n")
	block, _, closed := strings.Cut(block, "\n```\n")
	if !found || !opened || !closed {
		t.Fatal("the README has no block of commands below Quickstart")
	}
	return strings.Split(block, "\n")
}

// makeRepository makes a git repository with some thousand files, a history of
// many commits, a merge, a tag, links and executable files.
func makeRepository(t testing.TB, dir string) {
	t.Helper()
	git(t, dir, "init", "-q", "-b", "main")
	for commit := range 20 {
		for file := range 160 {
			path := filepath.Join(dir, fmt.Sprintf("part%02d/group%d/file%03d.txt", commit, file%7, file))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			mode := fs.FileMode(0o644)
			if file%50 == 0 {
				mode = 0o755
			}
			text := strings.Repeat(fmt.Sprintf("line of file %d in commit %d\n", file, commit), 1+file%40)
			if err := os.WriteFile(path, []byte(text), mode); err != nil {
				t.Fatal(err)
			}
		}
		part := fmt.Sprintf("part%02d", commit)
		if err := os.Symlink("group0", filepath.Join(dir, part, "first")); err != nil {
			t.Fatal(err)
		}
		git(t, dir, "add", part)
		git(t, dir, "commit", "-q", "-m", fmt.Sprintf("Add part %d", commit))
		if commit == 9 {
			git(t, dir, "branch", "side")
			git(t, dir, "tag", "-a", "v1", "-m", "Half of it")
		}
	}
	git(t, dir, "checkout", "-q", "side")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "Go another way")
	git(t, dir, "checkout", "-q", "main")
	git(t, dir, "merge", "-q", "--no-ff", "-m", "Come together", "side")
}

// git runs git in a directory, as somebody and at a time that do not change.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	command := exec.Command("git", args...)
	const who, when = "Somebody", "2026-01-02T03:04:05Z"
	command.Dir, command.Env = dir, clean("GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME="+who, "GIT_AUTHOR_EMAIL=somebody@example.com", "GIT_AUTHOR_DATE="+when,
		"GIT_COMMITTER_NAME="+who, "GIT_COMMITTER_EMAIL=somebody@example.com", "GIT_COMMITTER_DATE="+when)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String()
}

// inventory is everything below a directory, but for Berth's own marker: kind,
// permissions, time, and content or target.
func inventory(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == "." {
			return err
		}
		if name == snapshot.MarkerName {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		found[name], err = describe(path, info)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func describe(path string, info fs.FileInfo) (string, error) {
	switch {
	case info.IsDir():
		return info.Mode().String(), nil
	case info.Mode().Type() == fs.ModeSymlink:
		target, err := os.Readlink(path)
		return "-> " + target, err
	}
	content, err := os.ReadFile(path)
	return fmt.Sprintf("%s %s %x", info.Mode(), info.ModTime().UTC().Format(time.RFC3339Nano), sha256.Sum256(content)), err
}

// What a person can configure, the README has to name.
func TestTheReadmeNamesEverySettingOfServe(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	help := invoke(t, ".", nil, "serve", "--help").stdout
	variables := regexp.MustCompile(`\$(BERTH_\w+)`).FindAllStringSubmatch(help, -1)
	if len(variables) < 10 {
		t.Fatalf("only %d settings in %s", len(variables), help)
	}
	for _, variable := range variables {
		wants(t, string(readme), "`"+variable[1]+"`")
	}
}
