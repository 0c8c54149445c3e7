package authority

import (
	"context"
	"errors"

	"berth/db"
	"berth/provider"
)

// askProvider asks the provider of a machine for a state that can be proof, and returns why there is none, or "".
// The provider's error itself may hold secrets: only its kind leaves this function.
func (s *Service) askProvider(ctx context.Context, p pursuit, m db.ListMachinesOfRunRow) (provider.State, string) {
	switch {
	case m.Provider == "" || m.Provider == "local" || m.ProviderLeaseID == "":
		return "", missingProviderID
	case p.stops && m.InUse:
		return "", heldByUse
	}
	from, err := s.providers.For(m.Provider, m.EnvironmentConfig)
	if errors.Is(err, provider.ErrUnknownProvider) {
		return "", heldByUnknownProvider
	}
	if err != nil {
		return "", string(provider.KindOf(err))
	}
	ctx, cancel := context.WithTimeout(ctx, s.providerTime)
	defer cancel()
	machine := askedMachine{id: m.ProviderLeaseID, known: m.KnownHere}
	questions := []func(context.Context, string) (provider.Answer, error){from.State}
	if p.stops {
		questions = append(questions, from.Stop, from.State) // a stop may be answered before it came
	}
	missing := failedByLife
	for _, ask := range questions {
		found := machine.read(ask(ctx, m.ProviderLeaseID))
		switch {
		case found.ends(cleanupStep{}):
			return found.state, ""
		case found.kind == failedByOtherMachine:
			return "", found.kind
		case found.kind != "":
			missing = found.kind
		}
	}
	if machine.seen {
		s.noteSighting(ctx, m)
	}
	return "", missing
}

// noteSighting remembers that the provider knows the machine by the lease's id. That it cannot is no reason to fail:
// it is only missed when the machine is gone the next time.
func (s *Service) noteSighting(ctx context.Context, m db.ListMachinesOfRunRow) {
	_, err := s.queries.NoteSighting(context.WithoutCancel(ctx), s.pool, db.NoteSightingParams{
		LeaseID: m.ID, EnvironmentConfig: m.EnvironmentConfig,
	})
	if err != nil {
		s.log.WarnContext(ctx, "the sighting of a machine was not noted", "lease", m.ID, "error", err)
	}
}
