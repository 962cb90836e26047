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
	// connectFor is the timeout for one connection to the database.
	connectFor = 5 * time.Second
	// nodeConnections is the number of connections of a node. One of them belongs to the writer.
	nodeConnections = 14
	// riverConnections is the number of connections of River in a node.
	riverConnections = 5
	// idleConnections is the number of idle connections to keep.
	idleConnections = 6
	// idleConnectionFor is how long an idle connection is kept.
	idleConnectionFor = 5 * time.Minute
	// clocksApart is the clock difference between a node and its database that causes a warning.
	clocksApart = time.Minute
)

// keepAlive configures how soon this machine and the server detect a dead connection.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

const serverKeepAlive = `set tcp_keepalives_idle = 5; set tcp_keepalives_interval = 2; set tcp_keepalives_count = 3`

// WithoutPassword returns the address of a database for messages.
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

// Open opens the ledger of a node. A daemon (serves) gets more connections than a command.
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

// OpenLedger opens a ledger in PostgreSQL without a home, for a command that moves it. Large
// values are in values, or in PostgreSQL if values is nil. If copying is true, the ledger may be
// incomplete.
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

// connectPostgres opens the database of a ledger for a node. Its errors include a remedy.
func connectPostgres(ctx context.Context, address, nodeName string, connections int) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("engine.postgres is not understood: %w", err) // pgx omits the password
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

// prepareConnections sets the options that all connections of a node share.
func prepareConnections(cfg *pgx.ConnConfig, node string) {
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "rouse/" + node
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectFor
	}
	if !strings.HasPrefix(cfg.Host, "/") { // a path is a Unix socket, without a network
		cfg.DialFunc = (&net.Dialer{Timeout: cfg.ConnectTimeout, KeepAliveConfig: keepAlive}).DialContext
	}
}

// keepConnected makes the server detect dead connections.
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
	// Locks of a frozen process would block the others.
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "3000"
	// River's commits need not wait. The start of an attempt is durable, and with it all earlier
	// writes.
	cfg.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	cfg.AfterConnect, cfg.MaxConns = keepConnected, riverConnections
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	return pool, explainPostgres(address, err)
}

// explainPostgres adds a remedy to an error of the database.
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

// remedyOf returns the remedy for an error that the server reports.
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
