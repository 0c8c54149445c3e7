package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// Company is a tenant.
type Company struct {
	ID           uuid.UUID     `json:"id" format:"uuid"`
	Name         string        `json:"name" maxLength:"200"`
	IssuePrefix  string        `json:"issuePrefix" maxLength:"10" doc:"Begins the identifiers of the company's tasks."`
	IssueCounter int64         `json:"issueCounter" minimum:"0" maximum:"9007199254740991" doc:"The number of the newest task."`
	Status       CompanyStatus `json:"status"`
	CreatedAt    Time          `json:"createdAt"`
	UpdatedAt    Time          `json:"updatedAt"`
}

func companyOf(c authority.Company) Company {
	return Company{
		ID: c.ID, Name: c.Name, IssuePrefix: c.IssuePrefix, IssueCounter: c.IssueCounter,
		Status: CompanyStatus(c.Status), CreatedAt: Time(c.CreatedAt), UpdatedAt: Time(c.UpdatedAt),
	}
}

// CompanyCreate makes a company.
type CompanyCreate struct {
	Name        string `json:"name" minLength:"1" maxLength:"200"`
	IssuePrefix string `json:"issuePrefix,omitempty" maxLength:"10" pattern:"^[A-Z][A-Z0-9]{0,9}$" example:"ACME" doc:"Begins the identifiers of the company's tasks, as in ACME-1. No other company has it. If absent, one is made of the name."`
}

// CompanyUpdate changes what it names.
type CompanyUpdate struct {
	Name   *string        `json:"name,omitempty" minLength:"1" maxLength:"200"`
	Status *CompanyStatus `json:"status,omitempty"`
}

// CompanyPath names a company.
type CompanyPath struct {
	CompanyID uuid.UUID `path:"companyId" format:"uuid"`
}

func (s *server) companies() {
	register(s, endpoint{
		id: "listCompanies", method: http.MethodGet, path: "/api/companies", tag: "companies",
		summary: "List the companies that the caller may read",
	}, func(ctx context.Context, by authority.Principal, in *struct{ PageQuery }) (*Answer[List[Company]], error) {
		list, err := s.rules.ListCompanies(ctx, by, in.page())
		return listOf(list, err, companyOf)
	})
	register(s, endpoint{
		id: "createCompany", method: http.MethodPost, path: "/api/companies", tag: "companies", status: http.StatusCreated,
		summary: "Create a company", doc: "For operators.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		IdempotencyKey
		Body CompanyCreate
	},
	) (*Answer[Company], error) {
		company, err := s.rules.CreateCompany(ctx, by, authority.CompanyInput{
			Name: in.Body.Name, IssuePrefix: in.Body.IssuePrefix,
		}, in.once(ctx))
		return answer(company, err, companyOf)
	})
	register(s, endpoint{
		id: "getCompany", method: http.MethodGet, path: "/api/companies/{companyId}", tag: "companies",
		summary: "Read a company",
	}, func(ctx context.Context, by authority.Principal, in *struct{ CompanyPath }) (*Answer[Company], error) {
		company, err := s.rules.GetCompany(ctx, by, in.CompanyID)
		return answer(company, err, companyOf)
	})
	register(s, endpoint{
		id: "updateCompany", method: http.MethodPatch, path: "/api/companies/{companyId}", tag: "companies",
		summary: "Rename, pause or archive a company", doc: "For operators.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		CompanyPath
		Body CompanyUpdate
	},
	) (*Answer[Company], error) {
		company, err := s.rules.UpdateCompany(ctx, by, in.CompanyID, authority.CompanyPatch{
			Name: in.Body.Name, Status: textOf(in.Body.Status),
		})
		return answer(company, err, companyOf)
	})
}
