package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/google/uuid"
)

type showCommand struct {
	outputFlag
	companyFlags
	Kind string `arg:"" enum:"company,project,environment,issue,workspace,run,lease,settings" placeholder:"KIND" help:"company, project, environment, issue, workspace, run, lease or settings."`
	Name string `arg:"" optional:"" placeholder:"NAME" help:"Its id, or the name that people know it by."`
}

// showable is a kind of thing: how it is found, and how it is read.
type showable struct {
	find func(context.Context, string) (uuid.UUID, error)
	get  func(context.Context, uuid.UUID) (*http.Response, error)
}

// Run prints one object of the API, member by member.
func (c showCommand) Run(ctx context.Context, stdout io.Writer) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	kind := s.showable(c.Kind)
	var id uuid.UUID
	switch {
	case kind.find == nil && c.Name != "":
		return usageError{fmt.Errorf("there is only one %s: leave %q out", c.Kind, c.Name)}
	case kind.find != nil && c.Name == "":
		return usageError{fmt.Errorf("which %s? Give its id or name", c.Kind)}
	case kind.find != nil:
		if id, err = kind.find(ctx, c.Name); err != nil {
			return err
		}
	}
	object, err := read[json.RawMessage](kind.get(ctx, id))
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(stdout, object.json)
	}
	if err := printObject(stdout, object.json); err != nil || c.Kind != "workspace" {
		return err
	}
	asked, err := s.openStopRequest(ctx, id)
	if err == nil && asked != nil {
		fmt.Fprintln(stdout, describeStopRequest(*asked))
	}
	return err
}

func (s *session) showable(kind string) showable {
	switch kind {
	case "company":
		return showable{s.companyByName, func(ctx context.Context, id uuid.UUID) (*http.Response, error) { return s.GetCompany(ctx, id) }}
	case "project":
		return showable{s.projectID, func(ctx context.Context, id uuid.UUID) (*http.Response, error) { return s.GetProject(ctx, id) }}
	case "environment":
		return showable{s.environmentID, func(ctx context.Context, id uuid.UUID) (*http.Response, error) { return s.GetEnvironment(ctx, id) }}
	case "issue":
		return showable{s.issueID, func(ctx context.Context, id uuid.UUID) (*http.Response, error) { return s.GetIssue(ctx, id) }}
	case "workspace":
		return showable{s.workspaceID, func(ctx context.Context, id uuid.UUID) (*http.Response, error) {
			return s.GetExecutionWorkspace(ctx, id)
		}}
	case "run":
		return showable{parseID("run"), func(ctx context.Context, id uuid.UUID) (*http.Response, error) { return s.GetHeartbeatRun(ctx, id) }}
	case "lease":
		return showable{parseID("lease"), func(ctx context.Context, id uuid.UUID) (*http.Response, error) {
			return s.GetEnvironmentLease(ctx, id)
		}}
	default:
		return showable{get: func(ctx context.Context, _ uuid.UUID) (*http.Response, error) { return s.GetSettings(ctx) }}
	}
}
