// Package postgres runs a private Postgres server in a directory of its own.
//
// It exists so that Berth starts on a machine where nobody has set up a
// database: Start finds the Postgres programs (or fetches them), makes a
// database cluster in the directory, starts the server as an unprivileged
// user, and prepares the roles and the database that Berth works with. The
// next Start on the same directory finds the data again.
//
// # What is in the directory
//
//	lock            held (flock) by the one process that runs the server
//	passwords.json  the passwords of the roles, readable by its owner only
//	pg_hba.conf     who may connect: rewritten at every start
//	postgres.log    what the server says (postgres.log.1: the one before)
//	run             the folder of the Unix socket
//	data            the cluster, as initdb made it
//
// # Who can reach the server
//
// Clients come through a Unix socket in a folder that only the user of the
// server (and root) may enter, and on request through 127.0.0.1. Both ask for
// a scram-sha-256 password. No other local user gets in, and no other host.
//
// # How long the server lives
//
// Never longer than the program that started it. On Linux the kernel ends it
// when the program dies, however it dies; elsewhere a small shell does, when a
// pipe that the program held open breaks. A server that dies by itself is
// started again on the same address, so that a connection pool recovers.
//
// # What it never does
//
// It never removes or overwrites a cluster that was finished once: data of
// another major version, or of another user, is refused with the way out.
package postgres
