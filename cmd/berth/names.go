package main

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/google/uuid"

	client "berth/clients/go"
)

// session is one command's conversation with the service. It also finds things
// by the names that people know them by: a company by its prefix or name, a task
// by its identifier, anything else by its name; and everything by its id.
type session struct {
	*client.Client
	company string // as the user gave it, or "" for the only one
}

// companyFlags are the connection of a command about things of one company.
type companyFlags struct {
	connectionFlags
	Company string `short:"c" placeholder:"COMPANY" help:"The company, by prefix, name or id. Not needed where there is only one."`
}

func (f connectionFlags) open() (*session, error) {
	api, err := f.connect()
	return &session{Client: api}, err
}

func (f companyFlags) open() (*session, error) {
	s, err := f.connectionFlags.open()
	if err == nil {
		s.company = f.Company
	}
	return s, err
}

// named is a thing that a list knows by names.
type named struct {
	id    uuid.UUID
	names []string
}

// find returns the one thing of a list that has the name, in any case of letters.
func find[T any](what, name string, list iter.Seq2[item[T], error], describe func(T) named) (uuid.UUID, error) {
	var found, known []named
	for it, err := range list {
		if err != nil {
			return uuid.Nil, err
		}
		thing := describe(it.value)
		known = append(known, thing)
		for _, n := range thing.names {
			if strings.EqualFold(n, name) {
				found = append(found, thing)
				break
			}
		}
	}
	switch len(found) {
	case 1:
		return found[0].id, nil
	case 0:
		return uuid.Nil, fmt.Errorf("there is no %s %q%s", what, name, choices(known))
	default:
		return uuid.Nil, fmt.Errorf("%d %ss are called %q: give the id, one of%s", len(found), what, name, ids(found))
	}
}

// only returns the one thing of a list, for a flag that was left out.
func only[T any](what, flag string, list iter.Seq2[item[T], error], describe func(T) named) (uuid.UUID, error) {
	var known []named
	for it, err := range list {
		if err != nil {
			return uuid.Nil, err
		}
		known = append(known, describe(it.value))
	}
	switch len(known) {
	case 1:
		return known[0].id, nil
	case 0:
		return uuid.Nil, fmt.Errorf("there is no %s yet: make one with berth create %s", what, what)
	default:
		return uuid.Nil, usageError{fmt.Errorf("which %s? Name it with %s%s", what, flag, choices(known))}
	}
}

// choices lists names, if they are few enough to be read.
func choices(known []named) string {
	if len(known) == 0 || len(known) > 20 {
		return ""
	}
	names := make([]string, 0, len(known))
	for _, k := range known {
		names = append(names, printable(k.names[0]))
	}
	return "; known: " + strings.Join(names, ", ")
}

func ids(found []named) string {
	var text strings.Builder
	for _, f := range found {
		text.WriteString(" " + f.id.String())
	}
	return text.String()
}

func (s *session) companies(ctx context.Context) iter.Seq2[item[client.Company], error] {
	return pages[client.Company](func(limit *int64, cursor *string) (*http.Response, error) {
		return s.ListCompanies(ctx, &client.ListCompaniesParams{Limit: limit, Cursor: cursor})
	})
}

func companyNames(c client.Company) named {
	return named{c.ID, []string{c.IssuePrefix, c.Name}}
}

// companyID is the company of the command.
func (s *session) companyID(ctx context.Context) (uuid.UUID, error) {
	if s.company == "" {
		return only("company", "--company", s.companies(ctx), companyNames)
	}
	return s.companyByName(ctx, s.company)
}

func (s *session) companyByName(ctx context.Context, name string) (uuid.UUID, error) {
	if id, err := uuid.Parse(name); err == nil {
		return id, nil
	}
	return find("company", name, s.companies(ctx), companyNames)
}

// inCompany finds a thing of the command's company: by its id, or by its name in
// the list that list gives for the company.
func inCompany[T any](ctx context.Context, s *session, what, name string,
	list func(context.Context, uuid.UUID) iter.Seq2[item[T], error], describe func(T) named,
) (uuid.UUID, error) {
	if id, err := uuid.Parse(name); err == nil {
		return id, nil
	}
	company, err := s.companyID(ctx)
	if err != nil {
		return uuid.Nil, err
	}
	return find(what, name, list(ctx, company), describe)
}

func (s *session) agents(ctx context.Context, company uuid.UUID) iter.Seq2[item[client.Agent], error] {
	return pages[client.Agent](func(limit *int64, cursor *string) (*http.Response, error) {
		return s.ListAgents(ctx, company, &client.ListAgentsParams{Limit: limit, Cursor: cursor})
	})
}

func agentNames(a client.Agent) named { return named{a.ID, []string{a.Name}} }

func (s *session) agentID(ctx context.Context, name string) (uuid.UUID, error) {
	return inCompany(ctx, s, "agent", name, s.agents, agentNames)
}

func (s *session) projects(ctx context.Context, company uuid.UUID) iter.Seq2[item[client.Project], error] {
	return pages[client.Project](func(limit *int64, cursor *string) (*http.Response, error) {
		return s.ListProjects(ctx, company, &client.ListProjectsParams{Limit: limit, Cursor: cursor})
	})
}

func projectNames(p client.Project) named { return named{p.ID, []string{p.Name}} }

func (s *session) projectID(ctx context.Context, name string) (uuid.UUID, error) {
	return inCompany(ctx, s, "project", name, s.projects, projectNames)
}

func (s *session) sources(ctx context.Context, project uuid.UUID) iter.Seq2[item[client.ProjectWorkspace], error] {
	return pages[client.ProjectWorkspace](func(limit *int64, cursor *string) (*http.Response, error) {
		return s.ListProjectWorkspaces(ctx, project, &client.ListProjectWorkspacesParams{Limit: limit, Cursor: cursor})
	})
}

func (s *session) environments(ctx context.Context) iter.Seq2[item[client.Environment], error] {
	return pages[client.Environment](func(limit *int64, cursor *string) (*http.Response, error) {
		return s.ListEnvironments(ctx, &client.ListEnvironmentsParams{Limit: limit, Cursor: cursor})
	})
}

func (s *session) environmentID(ctx context.Context, name string) (uuid.UUID, error) {
	if id, err := uuid.Parse(name); err == nil {
		return id, nil
	}
	return find("environment", name, s.environments(ctx), func(e client.Environment) named { return named{e.ID, []string{e.Name}} })
}

func (s *session) issues(ctx context.Context, company uuid.UUID) iter.Seq2[item[client.Issue], error] {
	return pages[client.Issue](func(limit *int64, cursor *string) (*http.Response, error) {
		return s.ListIssues(ctx, company, &client.ListIssuesParams{Limit: limit, Cursor: cursor})
	})
}

func issueNames(i client.Issue) named { return named{i.ID, []string{i.Identifier}} }

// issueID finds a task by its id or its identifier, which names the company too.
func (s *session) issueID(ctx context.Context, name string) (uuid.UUID, error) {
	if id, err := uuid.Parse(name); err == nil {
		return id, nil
	}
	prefix, _, ok := cutLast(name, "-")
	if !ok {
		return uuid.Nil, usageError{fmt.Errorf("%q is no task: give an identifier such as ACME-2, or an id", name)}
	}
	company, err := s.companyByName(ctx, prefix)
	if err != nil {
		return uuid.Nil, fmt.Errorf("task %s: %w", name, err)
	}
	return find("task", name, s.issues(ctx, company), issueNames)
}

func cutLast(text, separator string) (before, after string, found bool) {
	at := strings.LastIndex(text, separator)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+len(separator):], true
}

func (s *session) workspaces(ctx context.Context, company uuid.UUID) iter.Seq2[item[client.ExecutionWorkspace], error] {
	return pages[client.ExecutionWorkspace](func(limit *int64, cursor *string) (*http.Response, error) {
		return s.ListExecutionWorkspaces(ctx, company, &client.ListExecutionWorkspacesParams{Limit: limit, Cursor: cursor})
	})
}

func workspaceNames(w client.ExecutionWorkspace) named { return named{w.ID, []string{w.Name}} }

// workspaceID finds a workspace by its id or its name, or as the one that a task
// is bound to.
func (s *session) workspaceID(ctx context.Context, name string) (uuid.UUID, error) {
	if id, err := uuid.Parse(name); err == nil {
		return id, nil
	}
	if looksLikeIssue(name) {
		if issue, err := s.issueID(ctx, name); err == nil {
			return s.boundWorkspace(ctx, issue)
		}
	}
	return inCompany(ctx, s, "workspace", name, s.workspaces, workspaceNames)
}

// boundWorkspace is the workspace of a task.
func (s *session) boundWorkspace(ctx context.Context, issue uuid.UUID) (uuid.UUID, error) {
	task, err := read[client.Issue](s.GetIssue(ctx, issue))
	if err != nil {
		return uuid.Nil, err
	}
	if task.value.ExecutionWorkspaceID == nil {
		return uuid.Nil, fmt.Errorf("task %s has no workspace yet: its first reservation makes one, or berth create workspace --issue %[1]s", task.value.Identifier)
	}
	return *task.value.ExecutionWorkspaceID, nil
}

// looksLikeIssue tells ACME-2 from names that people give workspaces.
func looksLikeIssue(name string) bool {
	_, number, ok := cutLast(name, "-")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}
