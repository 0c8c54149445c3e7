package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"berth/api"
	"berth/authority"
	"berth/background"
	"berth/db"
	"berth/provider"
	"berth/snapshot"
)

type serveCommand struct {
	Addr     string `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Where to listen; ${default} unless given. Port 0 takes a free one."`
	TLSCert  string `placeholder:"FILE" help:"The certificate for HTTPS, PEM, with its chain."`
	TLSKey   string `placeholder:"FILE" help:"Its key."`
	Insecure bool   `help:"Serve plain HTTP on a public address. Tokens then cross the network readable."`

	dataDirFlag
	DatabaseURL    string    `placeholder:"URL" help:"A Postgres of yours, for the role berth. Without it: a private server in the data directory."`
	MigrateURL     string    `placeholder:"URL" help:"The same database for the role that owns the schema; it is migrated at the start."`
	DatabasePooler db.Pooler `enum:"none,transaction" default:"none" placeholder:"KIND" help:"What stands before --database-url: none, or transaction for a pooler like PgBouncer in transaction mode; ${default} unless given."`
	SnapshotURL    string    `placeholder:"URL" help:"Where snapshots are kept: file:///absolute/path or s3://bucket/prefix?endpoint=URL. Without it: in the data directory."`
	OperatorToken  string    `placeholder:"SECRET" help:"The operator token. Without it: one is made at the first start, and kept in the data directory."`

	SilentAfter time.Duration `default:"2m" placeholder:"DURATION" help:"How long a writer may not be heard of before it counts as silent; ${default} unless given. Silence frees nothing."`

	KeepSnapshots int `default:"20" placeholder:"N" help:"How many saved states of a workspace keep their files, beside the current and the named ones; ${default} unless given."`

	LogFormat string     `enum:"text,json" default:"text" help:"How the log on stderr is written: text or json."`
	LogLevel  slog.Level `default:"info" placeholder:"LEVEL" help:"What it holds: debug, info, warn or error, and what is worse; ${default} unless given."`
}

// oneWish is how long further signals are taken for the same wish: whoever signals
// a process and its group, as timeout(1) does, signals twice.
const oneWish = time.Second

// Run serves until SIGINT or SIGTERM, and then ends in order: requests first,
// then background work, the database last. A second signal ends the program at
// once, which loses nothing that was answered.
func (c serveCommand) Run(ctx context.Context, stdout io.Writer) error {
	log := c.logger(os.Stderr)
	slog.SetDefault(log)
	ctx, forget := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer forget()
	context.AfterFunc(ctx, func() { time.AfterFunc(oneWish, forget) })

	if err := c.check(); err != nil {
		return err
	}
	door, err := c.listen(ctx)
	if err != nil {
		return err
	}
	defer door.Close() //nolint:errcheck // closed by the server already, unless the start failed
	base, err := c.openDatabase(ctx, log)
	if err != nil {
		return interrupted(ctx, err)
	}
	rules, token, err := c.prepare(ctx, base, log)
	if err != nil {
		return interrupted(ctx, closing(base, err))
	}
	go giveMemoryBack(ctx)
	handler := api.New(rules, api.Options{Log: log, Version: version()})
	jobs, err := background.Start(ctx, base.pool, rules, background.Options{Log: log, PollOnly: c.DatabasePooler == db.TransactionPooler})
	if err != nil {
		return interrupted(ctx, closing(base, err))
	}
	announce(stdout, c.url(door), c.dataDirFlag, base.dataDir, token)
	err = c.serve(ctx, door, handler, base.lost(), log)
	if cut := jobs.Stop(); cut != nil {
		log.Warn("background work was cut off; another server, or the next start, goes on", "error", cut)
	}
	return closing(base, err)
}

// check refuses settings that cannot be meant.
func (c serveCommand) check() error {
	switch {
	case c.KeepSnapshots < 1:
		return usageError{fmt.Errorf("--keep-snapshots %d: the current saved state is always kept, so keep at least 1", c.KeepSnapshots)}
	case c.SilentAfter <= 0:
		return usageError{fmt.Errorf("--silent-after %s: a writer renews every 20 s or so, so wait longer than that", c.SilentAfter)}
	}
	return nil
}

// interrupted is nil when a start failed because somebody wanted it to end.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // whoever asked for the end is not told that the start failed
	}
	return err
}

// prepare opens the snapshot store and brings the rules to where they can answer
// calls. The text it returns tells a person where the operator token is.
func (c serveCommand) prepare(ctx context.Context, base *database, log *slog.Logger) (*authority.Service, string, error) {
	store, err := c.openStore(base.dataDir)
	if err != nil {
		return nil, "", err
	}
	options := []authority.Option{
		authority.WithRenewalPool(base.renewals), authority.WithSilentAfter(c.SilentAfter),
		authority.WithKeepSnapshots(c.KeepSnapshots), authority.WithProviders(provider.NewDirectory(os.Getenv)),
	}
	if c.DatabasePooler == db.TransactionPooler {
		options = append(options, authority.WithPolling())
	}
	rules := authority.New(base.pool, store, log, options...)
	if err := rules.ClaimStore(ctx); err != nil {
		return nil, "", err
	}
	token, err := c.ensureOperator(ctx, rules, base, log)
	return rules, token, err
}

func (c serveCommand) openStore(dataDir string) (snapshot.Store, error) {
	location := c.SnapshotURL
	if location == "" {
		location = fileURL(dataDir, snapshotsDir)
	}
	return snapshot.OpenStore(location, os.Getenv)
}

func (c serveCommand) logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// quietLog is for commands that start a database only in passing.
func quietLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// announce tells a person in three lines where the service is, where the key
// is, and what to do next.
func announce(stdout io.Writer, url string, flag dataDirFlag, dataDir, token string) {
	next := programName() + " create company Acme"
	if url != defaultURL {
		next += " --url " + url
	}
	if dataDir != "" && flag.DataDir != "" && os.Getenv("BERTH_DATA_DIR") == "" {
		next += fmt.Sprintf(" --data-dir %q", flag.DataDir)
	}
	fmt.Fprintf(stdout, "Berth serves %s (its API: %s/docs)\n%s\nTry: %s\n", url, url, token, next)
}

func (c serveCommand) url(door net.Listener) string {
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	return scheme + "://" + door.Addr().String()
}
