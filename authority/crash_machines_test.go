package authority

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"berth/provider"
)

// yard is the provider "cloud" whose machines outlive every process of a test: each is a file that holds its state.
type yard struct {
	dir  string
	fuse *fuse // nil for none
}

func (y yard) For(name string, _ json.RawMessage) (provider.Provider, error) {
	if name != "cloud" {
		return nil, provider.ErrUnknownProvider
	}
	if y.fuse != nil {
		return fusedProvider{y, y.fuse}, nil
	}
	return y, nil
}

func (y yard) State(_ context.Context, id string) (provider.Answer, error) {
	state, err := os.ReadFile(filepath.Join(y.dir, id))
	if errors.Is(err, os.ErrNotExist) {
		return provider.Answer{}, &provider.Error{Kind: provider.KindNotFound}
	}
	if err != nil {
		return provider.Answer{}, &provider.Error{Kind: provider.KindUnreachable, Cause: err}
	}
	return provider.Answer{ID: id, State: provider.State(state), Word: string(state)}, nil
}

func (y yard) Stop(ctx context.Context, id string) (provider.Answer, error) {
	if now, err := y.State(ctx, id); err != nil || now.State != provider.StateRunning {
		return now, err
	}
	return y.become(ctx, id, provider.StateStopped)
}

func (y yard) Destroy(ctx context.Context, id string) (provider.Answer, error) {
	if now, err := y.State(ctx, id); err != nil {
		return now, err
	}
	return y.become(ctx, id, provider.StateDestroyed)
}

// become writes the state as a whole: a machine has no state in between.
func (y yard) become(ctx context.Context, id string, state provider.State) (provider.Answer, error) {
	next := filepath.Join(y.dir, id+".next")
	if err := errors.Join(os.WriteFile(next, []byte(state), 0o600), os.Rename(next, filepath.Join(y.dir, id))); err != nil {
		return provider.Answer{}, &provider.Error{Kind: provider.KindUnreachable, Cause: err}
	}
	return y.State(ctx, id)
}
