package background

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/uuid"

	"berth/authority"
	"berth/db/dbtest"
	"berth/provider"
	"berth/snapshot"
)

// beMachine is a program that names its process tree, starts a process of the run in it, and waits.
func beMachine(run string) error {
	here, err := provider.OpenProcess()
	if err != nil {
		return err
	}
	tree, err := here.Tree(run)
	if err != nil {
		return err
	}
	child := exec.Command("sleep", "600")
	child.Env = append(os.Environ(), provider.RunVariable+"="+run)
	if err := child.Start(); err != nil {
		return err
	}
	fmt.Println(tree, child.Process.Pid)
	return child.Wait()
}

func TestTheProcessesThatAnEndedRunLeftOnThisHostAreEnded(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	run := uuid.New()
	left := exec.Command(os.Args[0])
	left.Env = append(os.Environ(), machineOf+"="+run.String())
	output, err := left.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = left.Process.Kill() })
	var machine, below string
	if _, err := fmt.Fscan(output, &machine, &below); err != nil {
		t.Fatal(err)
	}
	lease := abandoned(t, d.Pool, provider.ProcessName, machine)

	store, err := snapshot.OpenFileStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	rules := authority.New(d.Pool, store, quiet, authority.WithProviders(provider.NewDirectory(os.Getenv)), authority.WithCleanupAfter(0))
	jobs, err := Start(t.Context(), d.Pool, rules, Options{Log: quiet, Every: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, jobs)
	gone := make(chan struct{})
	go func() { _ = left.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Fatal("the processes live on")
	}
	eventually(t, "the lease is settled", func() bool {
		return count(t, d.Pool, `SELECT count(*) FROM environment_leases l JOIN termination_receipts r ON r.lease_id = l.id
			WHERE l.id = $1 AND l.status = 'expired' AND r.state = 'destroyed'`, lease) == 1
	})
	if command, err := os.ReadFile("/proc/" + below + "/cmdline"); err == nil && len(command) > 0 {
		t.Errorf("the process below lives on: %q", command)
	}
}
