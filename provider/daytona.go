package provider

import (
	"bytes"
	"context"
	"errors"
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

// daytonaSandbox is what matters here of how Daytona describes a sandbox.
type daytonaSandbox struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Desired string `json:"desiredState"` // what it is on its way to
}

func (d *Daytona) call(ctx context.Context, method, id string, verb ...string) (Answer, error) {
	if id == "" || id == "." || id == ".." { // each would be the address of something else
		return Answer{}, &Error{Kind: KindNotFound, Cause: fmt.Errorf("%q is the id of no sandbox", id)}
	}
	target := d.base.JoinPath(append([]string{"sandbox", url.PathEscape(id)}, verb...)...)
	status, body, err := d.exchange(ctx, method, target, answerBytes)
	switch {
	case err != nil:
		return Answer{}, err
	case status == http.StatusNotFound:
		return d.missing(ctx, id)
	case !daytonaTook(status):
		return Answer{}, daytonaRefused(status)
	case len(body) == 0 && method != http.MethodGet: // as older versions answer
		return d.State(ctx, id)
	}
	var sandbox daytonaSandbox
	if err := decodeAnswer(body, &sandbox); err != nil {
		return Answer{}, err
	}
	if sandbox.ID == "" || sandbox.State == "" {
		return Answer{}, &Error{Kind: KindMalformed, Cause: fmt.Errorf("the answer with status %d is about no sandbox", status)}
	}
	return sandbox.answer(), nil
}

// missing asks again about a sandbox that Daytona says it does not find, which it says also when it failed to look, and
// of a sandbox whose deletion failed and that may still run. A list that can show those too decides.
func (d *Daytona) missing(ctx context.Context, id string) (Answer, error) {
	target := d.base.JoinPath("sandbox")
	target.RawQuery = url.Values{"id": {id}, "includeErroredDeleted": {"true"}}.Encode()
	status, body, err := d.exchange(ctx, http.MethodGet, target, daytonaListBytes)
	switch {
	case err != nil:
		return Answer{}, err
	case !daytonaTook(status):
		return Answer{}, daytonaRefused(status)
	}
	list, whole, err := decodeDaytonaList(body)
	if err != nil {
		return Answer{}, err
	}
	for _, sandbox := range list {
		if sandbox.ID == id {
			return sandbox.answer(), nil
		}
	}
	if !whole {
		return Answer{}, &Error{Kind: KindMalformed, Cause: errors.New("the list goes on, and so does not tell who is missing")}
	}
	return Answer{}, &Error{Kind: KindNotFound, Cause: errors.New("Daytona neither finds nor lists the sandbox")}
}

// daytonaListBytes bounds a list: older versions answer with all sandboxes whatever id they are asked for.
const daytonaListBytes = 8 << 20

// decodeDaytonaList reads a list as each version sends it: all sandboxes, or a page of them. It is whole when it has no
// further page.
func decodeDaytonaList(body []byte) (list []daytonaSandbox, whole bool, err error) {
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		err := decodeAnswer(body, &list)
		return list, true, err
	}
	var page struct {
		Items      *[]daytonaSandbox `json:"items"`
		NextCursor *string           `json:"nextCursor"`
		TotalPages int               `json:"totalPages"`
	}
	if err := decodeAnswer(body, &page); err != nil {
		return nil, false, err
	}
	if page.Items == nil {
		return nil, false, &Error{Kind: KindMalformed, Cause: errors.New("the answer is no list of sandboxes")}
	}
	return *page.Items, (page.NextCursor == nil || *page.NextCursor == "") && page.TotalPages <= 1, nil
}

func (d *Daytona) exchange(ctx context.Context, method string, target *url.URL, atMost int64) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return 0, nil, &Error{Kind: KindMisconfigured, Cause: err}
	}
	request.Header.Set("Authorization", "Bearer "+d.key)
	request.Header.Set("Accept", "application/json")
	if d.organization != "" {
		request.Header.Set("X-Daytona-Organization-ID", d.organization)
	}
	status, _, body, err = exchange(d.client, request, atMost)
	return status, body, err
}

func daytonaTook(status int) bool {
	return status == http.StatusOK || status == http.StatusCreated || status == http.StatusAccepted || status == http.StatusNoContent
}

func daytonaRefused(status int) error {
	kind := KindRefused
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		kind = KindUnauthorized
	}
	return &Error{Kind: kind, Cause: fmt.Errorf("Daytona answered with status %d", status)}
}

// answer reads Daytona's words. A sandbox that failed may still run something, and so may one in a state that this
// version does not know; and one that has stopped and is to be started proves nothing for the moment after.
func (s daytonaSandbox) answer() Answer {
	answer := Answer{ID: s.ID, State: daytonaState(s.State), Word: s.State}
	switch s.Desired {
	case "", "stopped", "archived", "destroyed":
	default:
		if answer.State == StateStopped {
			answer.State, answer.Word = StateUnknown, s.State+", to be "+s.Desired
		}
	}
	return answer
}

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
