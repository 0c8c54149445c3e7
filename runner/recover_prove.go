package runner

import (
	"context"
	"fmt"
	"time"

	client "berth/clients/go"
	"berth/provider"
)

// prove looks on this host for the process trees of the run, and brings a receipt for each that is gone. It returns how
// many machines the run has; for those of other providers and hosts somebody else has to speak.
func (r Recover) prove(ctx context.Context, s *session) (machines int, err error) {
	here := r.host
	if here == nil {
		if here, err = provider.OpenProcess(); err != nil {
			s.note("nothing can be proven on this host: %v", err)
		}
	}
	all := int64(200)
	for next := (*string)(nil); ; {
		page, err := brief(ctx, s.caller, "list the run's machines", func(ctx context.Context) (*client.EnvironmentLeaseList, error) {
			reply, err := s.caller.api.ListEnvironmentLeasesWithResponse(ctx, s.run.CompanyID,
				&client.ListEnvironmentLeasesParams{HeartbeatRunID: &s.run.ID, Limit: &all, Cursor: next})
			if err != nil {
				return nil, err
			}
			return answer(reply.JSON200, reply.HTTPResponse, reply.Body)
		})
		if err != nil {
			return machines, err
		}
		for _, lease := range page.Items {
			machines++
			if here == nil || lease.Provider == nil || *lease.Provider != provider.ProcessName || lease.ProviderLeaseID == nil {
				continue
			}
			if err := s.proveGone(ctx, here, lease); err != nil {
				return machines, err
			}
		}
		if next = page.NextCursor; next == nil {
			return machines, nil
		}
	}
}

// proveGone brings the receipt of one process tree, if this host may speak for it.
func (s *session) proveGone(ctx context.Context, here *provider.Process, lease client.EnvironmentLease) error {
	said, err := stateKnown(ctx, here, *lease.ProviderLeaseID)
	if err != nil {
		s.note("this host cannot speak for the run's processes (%s)", provider.KindOf(err))
		return nil
	}
	switch said.State {
	case provider.StateDestroyed, provider.StateStopped:
	default:
		return fmt.Errorf("the run's processes are not proven gone from this host: %s. End them first", said.Word)
	}
	_, err = brief(ctx, s.caller, "say that the run's processes are gone", func(ctx context.Context) (*client.RecordedReceipt, error) {
		reply, err := s.caller.api.RecordTerminationReceiptWithResponse(ctx, lease.ID, client.ReceiptCreate{
			Kind: client.ReceiptKindTermination, ProviderLeaseID: said.ID, State: string(said.State), RunID: &s.run.ID,
		})
		if err != nil {
			return nil, err
		}
		return answer(reply.JSON201, reply.HTTPResponse, reply.Body)
	})
	if err == nil {
		s.note("proven: %s", said.Word)
	}
	return err
}

// knowWithin is how long a host may leave open what became of a tree, as it does while processes come and go faster than
// they can be read, and knowAgain is how often it is asked.
const (
	knowWithin = 15 * time.Second
	knowAgain  = 100 * time.Millisecond
)

// stateKnown asks until the host knows, or has had long enough.
func stateKnown(ctx context.Context, here *provider.Process, id string) (provider.Answer, error) {
	enough, cancel := context.WithTimeout(ctx, knowWithin)
	defer cancel()
	for {
		said, err := here.State(ctx, id)
		if err != nil || said.State != provider.StateUnknown {
			return said, err
		}
		select {
		case <-time.After(knowAgain):
		case <-enough.Done():
			return said, nil
		}
	}
}
