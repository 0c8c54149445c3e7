package provider

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
)

// Daytona asks the public API of a Daytona service (https://www.daytona.io/docs) about its sandboxes: their state, to stop
// one, which keeps its files, and to delete one.
type Daytona struct {
	base         *url.URL
	key          string
	organization string // "" for the key's own
	client       *http.Client
}

var _ Provider = (*Daytona)(nil)

// State implements Provider.
func (d *Daytona) State(ctx context.Context, id string) (Answer, error) {
	return d.call(ctx, http.MethodGet, id)
}

// Stop implements Provider. Daytona answers when it began.
func (d *Daytona) Stop(ctx context.Context, id string) (Answer, error) {
	return d.call(ctx, http.MethodPost, id, "stop")
}

// Destroy implements Provider. Daytona answers when it began.
func (d *Daytona) Destroy(ctx context.Context, id string) (Answer, error) {
	return d.call(ctx, http.MethodDelete, id)
}

func (d *Daytona) call(ctx context.Context, method, id string, verb ...string) (Answer, error) {
	target := d.base.JoinPath(append([]string{"sandbox", url.PathEscape(id)}, verb...)...)
	request, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return Answer{}, &Error{Kind: KindMisconfigured, Cause: err}
	}
	request.Header.Set("Authorization", "Bearer "+d.key)
	request.Header.Set("Accept", "application/json")
	if d.organization != "" {
		request.Header.Set("X-Daytona-Organization-ID", d.organization)
	}
	status, _, body, err := exchange(d.client, request)
	if err != nil {
		return Answer{}, err
	}
	switch status {
	case http.StatusOK, http.StatusCreated, http.StatusAccepted:
	case http.StatusUnauthorized, http.StatusForbidden:
		return Answer{}, daytonaRefused(KindUnauthorized, status)
	case http.StatusNotFound:
		return Answer{}, daytonaRefused(KindNotFound, status)
	default:
		return Answer{}, daytonaRefused(KindRefused, status)
	}
	var sandbox struct {
		ID    string `json:"id"`
		State string `json:"state"`
	}
	if err := decodeAnswer(body, &sandbox); err != nil {
		return Answer{}, err
	}
	if sandbox.ID == "" || sandbox.State == "" {
		return Answer{}, &Error{Kind: KindMalformed, Cause: fmt.Errorf("the answer with status %d is about no sandbox", status)}
	}
	return Answer{ID: sandbox.ID, State: daytonaState(sandbox.State), Word: sandbox.State}, nil
}

func daytonaRefused(kind Kind, status int) error {
	return &Error{Kind: kind, Cause: fmt.Errorf("Daytona answered with status %d", status)}
}

// daytonaState reads Daytona's word. A sandbox that failed may still run something, and so may one in a state that this
// version does not know.
func daytonaState(word string) State {
	switch word {
	case "stopped", "archiving", "archived":
		return StateStopped
	case "destroyed":
		return StateDestroyed
	case "creating", "restoring", "starting", "started", "stopping", "destroying", "resizing",
		"pending_build", "building_snapshot", "pulling_snapshot":
		return StateRunning
	default:
		return StateUnknown
	}
}
