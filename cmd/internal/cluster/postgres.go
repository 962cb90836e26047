package cluster

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"rouse/cmd/internal/config"
	"rouse/internal/ledger"
	"rouse/internal/ledger/node"
	"rouse/internal/storage/objects"
)

const (
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

// WithoutPassword is the address of a database as it may be shown.
func WithoutPassword(address string) string {
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

// Open opens the ledger of a node. serves tells that the process is a daemon, which needs more connections.
func Open(ctx context.Context, e config.Engine, node string, serves bool, o ledger.Options) (*ledger.Ledger, *sql.DB, error) {
	connections := nodeConnections
	if !serves {
		connections = idleConnections
	}
	db, err := connectPostgres(ctx, e.Postgres, node, connections)
	if err != nil {
		return nil, nil, err
	}
	o.DB = db
	if o.Values, err = OpenValues(e); err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	l, err := ledger.Open(ctx, o)
	if err != nil {
		return nil, nil, errors.Join(explainPostgres(e.Postgres, err), db.Close())
	}
	return l, db, nil
}

// OpenLedger opens a ledger in PostgreSQL that no home is asked about, for a command that moves one; its large values are at a place beside it,
// or in it where that is nil. copying says that it may not be whole.
func OpenLedger(ctx context.Context, address string, values objects.Store, copying bool) (*ledger.Ledger, func() error, error) {
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

// connectPostgres opens the database of a ledger for the node of a name. The error says in words what to do.
func connectPostgres(ctx context.Context, address, nodeName string, connections int) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("engine.postgres is not understood: %w", err) // pgx leaves the password out
	}
	prepareConnections(cfg, nodeName)
	db := stdlib.OpenDB(*cfg, stdlib.OptionAfterConnect(keepConnected))
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(min(idleConnections, connections))
	db.SetConnMaxIdleTime(idleConnectionFor)

	if err := node.RefusePooler(ctx, db); err != nil {
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

// ConnectRiver opens the connections of River.
func ConnectRiver(ctx context.Context, address, node string) (*pgxpool.Pool, error) {
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
	at := WithoutPassword(address)
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, node.ErrPooled), errors.Is(err, context.Canceled):
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
