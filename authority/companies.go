package authority

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"berth/db"
)

// Company is a tenant. IssueCounter is the number of its newest task; IssuePrefix is in front of
// it: "PAP-12". A paused company is a note for whoever schedules work, and Berth goes on as before;
// an archived one takes no new work from its members (requireCompanyWrite).
type Company struct {
	ID           uuid.UUID
	Name         string
	IssuePrefix  string
	IssueCounter int64
	Status       string
	CreatedAt    time.Time
	UpdatedAt    time.Time
}

func companyOf(row db.Company) Company { return Company(row) }

// CompanyInput is what a new company is made from. Without an IssuePrefix one is taken from the name.
type CompanyInput struct {
	Name        string
	IssuePrefix string
}

// CompanyPatch changes what is not nil.
type CompanyPatch struct {
	Name   *string
	Status *string
}

var companyStatuses = []string{"active", "paused", "archived"}

var issuePrefixForm = regexp.MustCompile(`^[A-Z][A-Z0-9]{0,9}$`)

// CreateCompany makes a company. Operators only. A prefix that is given and taken is a problem of
// that field; one that Berth chooses is always free.
func (s *Service) CreateCompany(ctx context.Context, by Principal, in CompanyInput, once Once) (Company, error) {
	if err := by.requireOperator(); err != nil {
		return Company{}, err
	}
	refused := validation{}
	refused.text("body.name", in.Name)
	if in.IssuePrefix != "" && !issuePrefixForm.MatchString(in.IssuePrefix) {
		refused.add("body.issuePrefix", "has 1 to 10 of A-Z and 0-9, and begins with a letter")
	}
	if err := refused.err(); err != nil {
		return Company{}, err
	}
	company, _, err := createOnce(ctx, s, by, nil, once, func(tx pgx.Tx) (Company, error) {
		return s.insertCompany(ctx, tx, in)
	})
	return company, err
}

func (s *Service) insertCompany(ctx context.Context, tx pgx.Tx, in CompanyInput) (Company, error) {
	candidates := []string{in.IssuePrefix}
	if in.IssuePrefix == "" {
		candidates = prefixesFor(in.Name)
	}
	for _, prefix := range candidates {
		row, err := s.queries.InsertCompany(ctx, tx, db.InsertCompanyParams{ID: newID(), Name: in.Name, IssuePrefix: prefix})
		switch {
		case err == nil:
			return companyOf(row), nil
		case !errors.Is(err, pgx.ErrNoRows):
			return Company{}, fmt.Errorf("insert a company: %w", err)
		}
	}
	return Company{}, ErrValidation.At("body.issuePrefix", "is taken: choose another prefix")
}

// prefixesFor lists prefixes for a company's name, the nicest first: the initials of its words or
// the beginning of its only one; then with a small number; and at the end with numbers so large
// that one is free.
func prefixesFor(name string) []string {
	base := prefixOf(name)
	candidates := []string{base}
	for n := 2; n <= 9; n++ {
		candidates = append(candidates, base+strconv.Itoa(n))
	}
	for range 8 {
		candidates = append(candidates, base+strconv.Itoa(10_000+rand.IntN(90_000))) //nolint:gosec // not a secret
	}
	return candidates
}

// prefixOf is up to four letters of the name, or CO for one without letters of A to Z.
func prefixOf(name string) string {
	words := strings.FieldsFunc(strings.ToUpper(name), func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
	var prefix string
	for _, word := range words {
		prefix += word[:1]
	}
	if len(words) == 1 {
		prefix = words[0]
	}
	prefix = strings.TrimLeft(prefix, "0123456789")
	if prefix == "" {
		return "CO"
	}
	return prefix[:min(len(prefix), 4)]
}

// GetCompany returns a company that the caller is of.
func (s *Service) GetCompany(ctx context.Context, by Principal, id uuid.UUID) (Company, error) {
	if err := s.requireCompanyRead(ctx, s.pool, by, id); err != nil {
		return Company{}, err
	}
	row, err := s.queries.GetCompany(ctx, s.pool, id)
	row, err = found(row, err, ErrCompanyNotFound, "read the company")
	return companyOf(row), err
}

// ListCompanies lists the companies that the caller is of, the oldest first.
func (s *Service) ListCompanies(ctx context.Context, by Principal, page Page) (List[Company], error) {
	if by.Role == RoleRecovery {
		return List[Company]{}, errRecoveryOnly
	}
	after, err := page.after()
	if err != nil {
		return List[Company]{}, err
	}
	params := db.ListCompaniesParams{RunID: by.readerRun(), Rows: page.rows()}
	params.AfterAt, params.AfterID = after.parts()
	params.ReaderType, params.ReaderID = by.reader()
	if by.Role == RoleRun {
		params.OnlyCompanyID = &by.CompanyID
	}
	rows, err := s.queries.ListCompanies(ctx, s.pool, params)
	if err != nil {
		return List[Company]{}, fmt.Errorf("list companies: %w", err)
	}
	return pageOf(page, rows, companyOf, func(r db.Company) place { return place{At: r.CreatedAt, ID: r.ID} }), nil
}

// UpdateCompany changes a company. Operators only.
func (s *Service) UpdateCompany(ctx context.Context, by Principal, id uuid.UUID, patch CompanyPatch) (Company, error) {
	if err := s.requireCompanyAdministration(ctx, s.pool, by, id); err != nil {
		return Company{}, err
	}
	refused := validation{}
	if patch.Name != nil {
		refused.text("body.name", *patch.Name)
	}
	if patch.Status != nil {
		refused.text("body.status", *patch.Status)
		refused.oneOf("body.status", *patch.Status, companyStatuses)
	}
	if err := refused.err(); err != nil {
		return Company{}, err
	}
	row, err := s.queries.UpdateCompany(ctx, s.pool, db.UpdateCompanyParams{ID: id, Name: patch.Name, Status: patch.Status})
	row, err = found(row, err, ErrCompanyNotFound, "change the company")
	return companyOf(row), err
}
