// Package api serves Berth over HTTP: every operation of the OpenAPI document, and the document itself.
//
// A handler decides nothing. It converts what came in, calls one method of authority, and converts what came back.
// What a caller may do, and why not, is authority's word; what a refusal looks like on the wire is said once, in
// errors.go.
//
// # The way of a request
//
//	observe    request id, log line, metrics, security headers; catches panics       server.go
//	route      the operation, or 404 and 405 as problems                             server.go
//	principal  bearer token to authority.Principal, or 401                           auth.go
//	body       at most 1 MiB, valid text everywhere, and the digest of the request   body.go, text.go
//	huma       JSON and parameters against the schema, or 422 with each field
//	handler    one file an aggregate, with the stems of package authority
//
// What comes back is written by the types beside the handlers and those of types.go; refusals by problem.go, and their
// details by details.go. A snapshot's content is the one body that is no JSON: streams.go.
//
// # Adding an operation
//
// Write the types and the call of register into the aggregate's file, add a new refusal's code to the table in
// errors.go (a test fails until you do), and print the document anew. Types of requests and answers are named, since
// their names are those in the generated clients.
package api
