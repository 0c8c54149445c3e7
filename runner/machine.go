package runner

import (
	"context"
	"os"
	"runtime"

	"github.com/google/uuid"

	client "berth/clients/go"
	"berth/provider"
)

// machine is this run's process tree as the service knows it: a lease, by which it can be proven later that all of the
// tree is gone, also when this wrapper cannot say so any more.
type machine struct {
	lease uuid.UUID
	id    string
}

// registerMachine records the tree that the command will be, before anything of it runs. Leases are an operator's, so
// a run that is started with a member's token goes without: nobody can prove then that it stopped.
func (s *session) registerMachine(ctx context.Context) error {
	here, err := provider.OpenProcess()
	if err != nil {
		if runtime.GOOS == "linux" { // elsewhere there is nothing to be had
			s.note("the run's processes cannot be named, so nobody can prove later that they are gone: %v", err)
		}
		return nil
	}
	tree, err := here.Tree(s.run.ID.String())
	if err != nil {
		return err
	}
	longer, cancel := lingering(ctx, afterInterrupt)
	defer cancel()
	lease, err := s.leaseMachine(longer, tree)
	switch {
	case refusedWith(err, codeNotAllowed):
		s.note("the run's processes are not registered, which takes an operator's token: should this wrapper be killed, nobody can prove that they are gone")
		return nil
	case err != nil:
		return err
	}
	s.machine = &machine{lease: lease.ID, id: tree.String()}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// leaseMachine makes the lease, in the environment that stands for this host. Its key makes one of many tries.
func (s *session) leaseMachine(ctx context.Context, tree provider.ProcessTree) (*client.EnvironmentLease, error) {
	environment, err := s.hostEnvironment(ctx, tree)
	if err != nil {
		return nil, err
	}
	key, name, id := "machine-"+s.run.ID.String(), provider.ProcessName, tree.String()
	return brief(ctx, s.caller, "register the run's processes", func(ctx context.Context) (*client.EnvironmentLease, error) {
		reply, err := s.caller.api.CreateEnvironmentLeaseWithResponse(ctx, s.run.CompanyID,
			&client.CreateEnvironmentLeaseParams{IdempotencyKey: &key}, client.LeaseCreate{
				EnvironmentID: environment, HeartbeatRunID: &s.run.ID, IssueID: &s.IssueID, ExecutionWorkspaceID: &s.workspace.ID,
				Provider: &name, ProviderLeaseID: &id,
			})
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON201, reply.HTTPResponse, reply.Body)
	})
}

// hostEnvironment finds the environment that stands for this host, or makes it.
func (s *session) hostEnvironment(ctx context.Context, tree provider.ProcessTree) (uuid.UUID, error) {
	name, err := os.Hostname()
	if err != nil {
		name = tree.Host
	}
	name = "host " + name
	all := int64(200)
	for next := (*string)(nil); ; {
		page, err := brief(ctx, s.caller, "look for this host's environment", func(ctx context.Context) (*client.EnvironmentList, error) {
			reply, err := s.caller.api.ListEnvironmentsWithResponse(ctx, &client.ListEnvironmentsParams{Limit: &all, Cursor: next})
			if err != nil {
				return nil, err
			}
			return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
		})
		if err != nil {
			return uuid.Nil, err
		}
		for _, e := range page.Items {
			if e.Name == name && e.Driver == client.EnvironmentDriverLocal && e.Status == client.EnvironmentStatusActive {
				return e.ID, nil
			}
		}
		if next = page.NextCursor; next == nil {
			break
		}
	}
	key := uuid.NewString() // of many tries one makes it; of two runs at once on a new host both may, which harms nobody
	made, err := brief(ctx, s.caller, "register this host", func(ctx context.Context) (*client.Environment, error) {
		reply, err := s.caller.api.CreateEnvironmentWithResponse(ctx, &client.CreateEnvironmentParams{IdempotencyKey: &key},
			client.EnvironmentCreate{Name: name, Driver: client.EnvironmentDriverLocal})
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON201, reply.HTTPResponse, reply.Body)
	})
	if err != nil {
		return uuid.Nil, err
	}
	return made.ID, nil
}

// reportMachineGone records that nothing of the tree is left. Only this wrapper knows that, until it ends itself: so it
// comes after the last step that needs the tenure. When it fails a later look at the host finds out.
func (s *session) reportMachineGone(ctx context.Context) {
	if s.machine == nil {
		return
	}
	_, err := brief(ctx, s.caller, "say that the run's processes are gone", func(ctx context.Context) (*client.RecordedReceipt, error) {
		reply, err := s.caller.api.RecordTerminationReceiptWithResponse(ctx, s.machine.lease, client.ReceiptCreate{
			Kind: client.ReceiptKindTermination, ProviderLeaseID: s.machine.id, State: string(provider.StateDestroyed), RunID: &s.run.ID,
		})
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON201, reply.HTTPResponse, reply.Body)
	})
	if err != nil {
		s.note("that the run's processes are gone is not on record: %v", err)
	}
}
