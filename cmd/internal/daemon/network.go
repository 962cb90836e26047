package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"rouse/cmd/internal/access"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/notify"
	"rouse/cmd/internal/webhook"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/noexec"
)

const (
	// maxConnections limits network connections, so that they cannot use up the open files of the
	// daemon.
	maxConnections = 256
	// maxHeader is the maximum size of a request header in bytes.
	maxHeader = 32 << 10
	// idleFor is the timeout of idle connections.
	idleFor = 2 * time.Minute
)

// entrance is the daemon's server at a network address.
type entrance struct {
	access *access.Access
	server *server
}

// openDashboard listens at the configured address. If it fails, it logs the error and returns nil.
func (d *Daemon) openDashboard(ctx context.Context) *entrance {
	set := d.Current().Config.Dashboard
	if set.Off() {
		return nil
	}

	out, err := d.tryDashboard(ctx, set)
	if err != nil {
		why := fmt.Sprintf("nobody listens on %s: %v; give another address with dashboard: {listen: 127.0.0.1:PORT}, or off", set.Listen, err)
		d.Door.Fail(why)
		d.log.Warn("there are no pages", "error", why)
		return nil
	}
	d.Door.Open(out.access)
	return out
}

func (d *Daemon) tryDashboard(ctx context.Context, set config.Dashboard) (_ *entrance, err error) {
	if why := d.home.ReadOnly; why != nil {
		return nil, fmt.Errorf("who is let in cannot be kept: %w", why)
	}

	var certificate tls.Certificate
	if set.TLS != nil {
		if certificate, err = tls.LoadX509KeyPair(string(set.TLS.Cert), string(set.TLS.Key)); err != nil {
			return nil, fmt.Errorf("the certificate of dashboard.tls cannot be used: %w", err)
		}
	}

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", set.Listen)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, listener.Close())
		}
	}()
	options := access.Options{Dir: filepath.Join(d.home.Dir, "dashboard"), Addresses: addresses(set, listener.Addr()), Logger: d.log}
	if set.Proxy != nil {
		options.Proxy.Header = set.Proxy.UserHeader
		if options.Proxy.From, err = netip.ParseAddr(set.Proxy.From); err != nil {
			return nil, err
		}
	}
	out := &entrance{}
	if out.access, err = access.New(options); err != nil { //nolint:contextcheck // sessions outlive the request that begins them
		return nil, err
	}

	listener = netutil.LimitListener(listener, maxConnections)
	if set.TLS != nil {
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	}
	out.server = d.newServer(ctx, listener, noexec.Handler(besideWebhooks(out.access.Signed(webhook.NewHandler(d, d.log)), out.access.Guard(d.network(ctx, d.log)))))
	out.server.most = maxConnections
	out.server.http.IdleTimeout, out.server.http.MaxHeaderBytes = idleFor, maxHeader
	out.server.http.ErrorLog = slog.NewLogLogger(d.log.Handler(), slog.LevelDebug) // messages about clients that disconnect
	return out, nil
}

// besideWebhooks routes webhook requests around the ServeMux of rest, which would answer some
// paths itself.
func besideWebhooks(hooks, rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, webhook.Prefix) {
			hooks.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})
}

// network returns the handler for the network: the API, metrics, MCP and the pages.
func (e *endpoints) network(ctx context.Context, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/mcp", e.mcp(ctx, log))
	mux.Handle("/v1/", access.FromNetwork(e.Handler))
	mux.Handle("GET /metrics", e.metrics)
	mux.Handle("/", access.FromNetwork(e.Pages))
	return mux
}

// addresses returns the addresses of the daemon for browsers, the primary one first.
func addresses(set config.Dashboard, at net.Addr) []access.Address {
	scheme := "http"
	if set.TLS != nil {
		scheme = "https"
	}

	var out []access.Address
	for _, host := range set.Hosts {
		if set.Proxy != nil {
			out = append(out, access.Address{Scheme: "https", Host: host, Proxied: true})
		} else {
			out = append(out, access.Address{Scheme: scheme, Host: host})
		}
	}

	listens, ok := at.(*net.TCPAddr)
	if !ok || listens.IP.IsUnspecified() || !listens.IP.IsLoopback() && set.TLS == nil {
		return out // browsers cannot use an unspecified address, and only the proxy uses one without TLS
	}
	out = append(out, access.Address{Scheme: scheme, Host: withPort(scheme, listens.IP.String(), listens.Port)})
	if listens.IP.IsLoopback() {
		out = append(out, access.Address{Scheme: scheme, Host: withPort(scheme, "localhost", listens.Port)})
	}
	return out
}

// withPort returns a host as browsers write it, without the default port of the scheme.
func withPort(scheme, host string, port int) string {
	usual := map[string]int{"http": 80, "https": 443}[scheme]
	return strings.TrimSuffix(net.JoinHostPort(host, strconv.Itoa(port)), ":"+strconv.Itoa(usual))
}

// noticeLink returns the URL of the page about a notice, or "" if there are no pages.
func (d *Daemon) noticeLink(ctx context.Context, n ledger.Notice) string {
	switch {
	case n.ViewRef != "" && n.Agent != "":
		return d.Door.URL("/agents/" + url.PathEscape(n.Agent) + "/views?" + url.Values{"view": {n.ViewRef}}.Encode())
	case n.Run != 0:
		items, err := d.ledger.Inbox.OfRun(ctx, n.Run)
		if err != nil {
			d.log.Warn("a notice leads to its run, for what that asks could not be read", "run", n.Run, "error", err)
		}
		for _, i := range items {
			if i.State == inbox.ItemOpen {
				return d.Door.URL("/inbox/" + strconv.FormatInt(i.ID, 10))
			}
		}
		return d.Door.URL("/runs/" + strconv.FormatInt(n.Run, 10))
	case n.Job != "":
		return d.Door.URL("/jobs/" + n.Job)
	case notify.IsDigest(n):
		return d.Door.URL("/")
	}
	return d.Door.URL("/health")
}
