// Package sql holds Berth's hand-written SQL: the schema, the queries, the roles and what
// each role may do.
package sql

import "embed"

// Migrations is the schema as numbered pairs of files in the folder "migrations". A file
// that has landed is never edited.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// Queries is what sqlc compiles into package db, in the folder "queries".
//
//go:embed queries/*.sql
var Queries embed.FS

// Roles creates the roles berth_owner, berth and berth_auditor where they are missing. A
// superuser runs it once on a server.
//
//go:embed roles.sql
var Roles string

// Grants says what the service and the auditor may do on the migrated schema. The owner
// runs it after every migration; running it again changes nothing.
//
//go:embed grants.sql
var Grants string
