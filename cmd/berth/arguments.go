package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/google/uuid"
)

// workspaceArgument is the workspace that a command is about. Inside of a run it
// is the run's own.
type workspaceArgument struct {
	companyFlags
	Workspace string `arg:"" env:"BERTH_WORKSPACE_ID" placeholder:"WORKSPACE" help:"The workspace: its id or name, or a task that is bound to it, such as ACME-2."`
}

func (w workspaceArgument) openWorkspace(ctx context.Context) (*session, uuid.UUID, error) {
	s, err := w.open()
	if err != nil {
		return nil, uuid.Nil, err
	}
	id, err := s.workspaceID(ctx, w.Workspace)
	return s, id, err
}

// parseID is for things that have no name but their id.
func parseID(flag string) func(context.Context, string) (uuid.UUID, error) {
	return func(_ context.Context, text string) (uuid.UUID, error) {
		id, err := uuid.Parse(text)
		if err != nil {
			return uuid.Nil, usageError{fmt.Errorf("%s: %q is not an id", flag, text)}
		}
		return id, nil
	}
}

func textOrNone[T ~string](text *T) string {
	if text == nil {
		return none
	}
	return printable(string(*text))
}

func numberOrNone(n *int64) string {
	if n == nil {
		return none
	}
	return strconv.FormatInt(*n, 10)
}
