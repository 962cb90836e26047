package daemon

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"rouse/cmd/internal/config"
	"rouse/internal/atomicfile"
	"rouse/internal/ledger"
	"rouse/internal/ledger/store"
	"rouse/internal/storage/objects"
	"rouse/internal/storage/sqlite"
)

const (
	// engineName is the file of a home whose ledger is in PostgreSQL: the address of the database, without a password, and below it
	// the name of the node that the home is of.
	engineName = "engine"

	// connectFor is how long one connection to the database may take to be made.
	connectFor = 5 * time.Second
	// nodeConnections are those of a node, of which the writer has one.
	nodeConnections = 14
	// riverConnections are those of River in a node.
	riverConnections = 5
	// idleConnections are kept for the next question.
	idleConnections = 6
	// idleConnectionFor is how long another one is kept.
	idleConnectionFor = 5 * time.Minute
	// clocksApart is how far the clocks of a node and its database may differ without a word.
	clocksApart = time.Minute
)

// keepAlive is how soon a connection is found to lead nowhere, by this machine and by the server.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

const serverKeepAlive = `set tcp_keepalives_idle = 5; set tcp_keepalives_interval = 2; set tcp_keepalives_count = 3`

// SharedLedgerError is a home whose ledger is in PostgreSQL, of which something was wanted that is done with a file.
type SharedLedgerError struct{ Home, Address string }

func (e *SharedLedgerError) Error() string {
	return fmt.Sprintf("the ledger of the home %s is in PostgreSQL (%s), and there is no file of it here: back it up with pg_dump, bring it back with pg_restore while no node runs, and have its size from PostgreSQL. The databases of agents are files of the home: rouse db AGENT backup", e.Home, e.Address)
}

// SharedLedger is a *SharedLedgerError when the ledger of a home is in PostgreSQL, as far as the home knows; nil when it is a file.
func SharedLedger(home string) error {
	if address := sharedAddress(home); address != "" {
		return &SharedLedgerError{home, address}
	}
	return nil
}

// sharedAddress is where in PostgreSQL the ledger of a home is, "" where it is a file.
func sharedAddress(home string) string {
	address, _ := readEngine(home)
	return address
}

// NodeOf is the name of the node that a home is of, "" where it does not know one.
func NodeOf(home string) string {
	_, node := readEngine(home)
	return node
}

// readEngine reads what a home remembers of its ledger in PostgreSQL.
func readEngine(home string) (address, node string) {
	text, err := os.ReadFile(filepath.Join(home, engineName))
	if err != nil {
		return "", "" // one that cannot be read is found by whoever opens the home
	}
	address, node, _ = strings.Cut(strings.TrimSpace(string(text)), "\n")
	return strings.TrimSpace(address), strings.TrimSpace(node)
}

// findLedger says whether the ledger that a configuration means is the one that a home has had, or may have.
func findLedger(ctx context.Context, dir string, cfg *config.Config, problem error) error {
	if cfg.Shared() {
		return refuseHistory(ctx, dir)
	}
	address := sharedAddress(dir)
	switch {
	case address == "":
		return FindLedger(ctx, dir)
	case problem != nil:
		return fmt.Errorf("the ledger of the home %s is in PostgreSQL (%s), and how to reach it is not known: %w", dir, address, problem)
	}
	return fmt.Errorf("the ledger of the home %s is in PostgreSQL (%s), and the configuration does not say so any more: put engine.postgres back, or name another home. Nothing was started, and nothing was changed", dir, address)
}

// refuseHistory refuses a home whose runs are in a file of it: they would be out of sight.
func refuseHistory(ctx context.Context, dir string) error {
	path := filepath.Join(dir, ledgerName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	var runs int
	db, err := sqlite.OpenReadOnly(path)
	if err == nil {
		err = db.QueryRowContext(ctx, `select count(*) from (select 1 from runs limit 1)`).Scan(&runs)
		err = errors.Join(err, db.Close())
	}
	if err == nil && runs == 0 || ledgerState(ctx, path) != "" {
		return nil
	}
	return fmt.Errorf("the history of this home is in %s, and engine.postgres would put it out of sight. Take it there first: rouse engine migrate --to URL; or begin with another home (--home, home in the configuration), and keep this one to look things up", path)
}

// openShared opens the ledger in PostgreSQL.
func (d *Daemon) openShared(ctx context.Context, o Options) error {
	if d.home.readOnly != nil {
		return store.CannotWrite(d.home.Dir, d.home.readOnly)
	}

	_, known := readEngine(d.home.Dir) // what a daemon was called here is the name of its commands, too
	node, err := cmp.Or(o.Node, o.Config.Node, known), error(nil)
	if node == "" {
		node, err = o.Config.NodeName()
	} else {
		err = config.CheckNodeName(node)
	}
	if err != nil {
		return err
	}

	connections := nodeConnections
	if !o.Serves {
		connections = idleConnections
	}
	address := o.Config.Engine.Postgres
	if d.db, err = connectPostgres(ctx, address, node, connections); err != nil {
		return err
	}
	values, err := OpenValues(o.Config.Engine)
	if err != nil {
		return err
	}
	if d.ledger, err = ledger.Open(ctx, ledger.Options{DB: d.db, Values: values, Now: o.Now, Logger: d.log}); err != nil {
		return explainPostgres(address, err)
	}
	d.nodes.node, d.nodes.address = node, withoutPassword(address)
	return d.markShared(o.Serves)
}

// markShared has the home remember where its ledger is, so that an empty one in a file never takes its place; a daemon gives the node its name.
func (d *Daemon) markShared(serves bool) error {
	address, node := readEngine(d.home.Dir)
	if address == d.nodes.address && (node == d.nodes.node || !serves) {
		return nil
	}
	if serves {
		node = d.nodes.node
	}
	if err := atomicfile.Write(filepath.Join(d.home.Dir, engineName), []byte(d.nodes.address+"\n"+node+"\n"), 0o600); err != nil {
		return fmt.Errorf("cannot record where the ledger is: %w", err)
	}
	return nil
}

// withoutPassword is the address of a database as it may be shown.
func withoutPassword(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "its address is not understood"
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if name := u.User.Username(); name != "" {
		shown.User = url.User(name)
	}
	return shown.String()
}

// OpenShared opens a ledger in PostgreSQL that no home is asked about, for a command that moves one; its large values are at a place beside it,
// or in it where that is nil. copying says that it may not be whole.
func OpenShared(ctx context.Context, address string, values objects.Store, copying bool) (*ledger.Ledger, func() error, error) {
	db, err := connectPostgres(ctx, address, "migrate", idleConnections)
	if err != nil {
		return nil, nil, err
	}
	l, err := ledger.Open(ctx, ledger.Options{DB: db, Values: values, Copying: copying})
	if err != nil {
		return nil, nil, errors.Join(explainPostgres(address, err), db.Close())
	}
	return l, func() error { return errors.Join(l.Close(), db.Close()) }, nil
}

// ForgetShared has a home be one whose ledger is a file, after it was brought back from PostgreSQL.
func ForgetShared(home string) error {
	err := os.Remove(filepath.Join(home, engineName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// connectPostgres opens the database of a ledger for the node of a name. The error says in words what to do.
func connectPostgres(ctx context.Context, address, node string, connections int) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("engine.postgres is not understood: %w", err) // pgx leaves the password out
	}
	prepareConnections(cfg, node)
	db := stdlib.OpenDB(*cfg, stdlib.OptionAfterConnect(keepConnected))
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(min(idleConnections, connections))
	db.SetConnMaxIdleTime(idleConnectionFor)

	if err := ledger.RefusePooler(ctx, db); err != nil {
		return nil, errors.Join(explainPostgres(address, err), db.Close())
	}
	return db, nil
}

// prepareConnections says what the connections of a node have in common.
func prepareConnections(cfg *pgx.ConnConfig, node string) {
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "rouse/" + node
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectFor
	}
	if !strings.HasPrefix(cfg.Host, "/") { // else there is no network between
		cfg.DialFunc = (&net.Dialer{Timeout: cfg.ConnectTimeout, KeepAliveConfig: keepAlive}).DialContext
	}
}

// keepConnected has the server find out that a connection leads nowhere.
func keepConnected(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, serverKeepAlive, pgx.QueryExecModeSimpleProtocol)
	return err
}

// connectRiver opens the connections of River.
func connectRiver(ctx context.Context, address, node string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("engine.postgres is not understood: %w", err)
	}
	prepareConnections(cfg.ConnConfig, node)
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "3000" // what a frozen process has locked would hold up the others
	// What River writes comes before the start of an attempt, which is durable with all that came before it.
	cfg.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	cfg.AfterConnect, cfg.MaxConns = keepConnected, riverConnections
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	return pool, explainPostgres(address, err)
}

// explainPostgres says what to do about an error of the database.
func explainPostgres(address string, err error) error {
	at := withoutPassword(address)
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ledger.ErrPooled), errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", at, err)
	case errors.As(err, &refused):
		return fmt.Errorf("the ledger's database %s: %w; %s", at, err, remedyOf(refused, at))
	case errors.As(err, new(*pgconn.ConnectError)), errors.As(err, new(net.Error)), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the ledger's database %s cannot be reached: %w; see that the server runs, that it listens on that address, and that nothing between keeps this machine out (psql %s tells the same)", at, err, at)
	}
	return fmt.Errorf("the ledger's database %s: %w", at, err)
}

// remedyOf says what to do about what the server refuses.
func remedyOf(refused *pgconn.PgError, at string) string {
	switch refused.Code {
	case "28P01", "28000":
		return "see the user and the password in engine.postgres (a secret is set with rouse secrets set NAME), and that pg_hba.conf of the server lets this machine in"
	case "3D000":
		return "make it with: create database NAME; or correct its name in engine.postgres"
	case "42501":
		return "its user needs to make tables: grant create, usage on schema public to USER; or have it own the database"
	case "3F000":
		return "make the schema that search_path names, or take it out of engine.postgres"
	case "53300":
		return fmt.Sprintf("the server takes no more connections: a node has up to %d; raise its max_connections", nodeConnections+riverConnections+1)
	case "57P03":
		return "the server is starting or stopping: it is tried again when rouse is started again"
	case "08P01":
		return "where a pooler is between, connect to PostgreSQL itself, or pool by session"
	}
	return "see the message of the server; psql " + at + " tells the same"
}
