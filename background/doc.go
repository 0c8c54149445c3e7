// Package background does what no request waits for: it has machines cleaned up, forgets what is old, and looks after
// what fell silent. The work queues in Postgres, by River, so that any number of servers share it: each job is due in
// one of them at a time, and goes on in another when the first dies.
//
// The package knows when, and nothing of what: every job calls one method of authority, which is safe to run twice
// or to be cut off. The table of jobs is in jobs.go.
package background
