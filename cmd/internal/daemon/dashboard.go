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
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/net/netutil"

	"rouse/cmd/internal/access"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/buildinfo"
	"rouse/cmd/internal/config"
	pages "rouse/cmd/internal/dashboard"
	"rouse/cmd/internal/mcpserver"
	"rouse/cmd/internal/notify"
	"rouse/cmd/internal/webhook"
	"rouse/internal/ledger"
	"rouse/internal/noexec"
)

const (
	// maxConnections bounds those of the network: others must not take the files that the daemon needs.
	maxConnections = 256
	// maxHeader bounds the header of a request, in bytes.
	maxHeader = 32 << 10
	// idleFor is how long a connection is kept for the next request.
	idleFor = 2 * time.Minute
)

// dashboard is the daemon at an address of the network.
type dashboard struct {
	access *access.Access
	server *server
}

// openDashboard listens at the configured address; where that cannot be, it says why, and the daemon goes on without.
func (d *Daemon) openDashboard(ctx context.Context) *dashboard {
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

func (d *Daemon) tryDashboard(ctx context.Context, set config.Dashboard) (_ *dashboard, err error) {
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
	out := &dashboard{}
	if out.access, err = access.New(options); err != nil { //nolint:contextcheck // sessions outlive the request that begins them
		return nil, err
	}

	listener = netutil.LimitListener(listener, maxConnections)
	if set.TLS != nil {
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	}
	out.server = d.newServer(ctx, listener, noexec.Handler(besideWebhooks(out.access.Signed(webhook.NewHandler(d, d.log)), out.access.Guard(d.network(ctx)))))
	out.server.most = maxConnections
	out.server.http.IdleTimeout, out.server.http.MaxHeaderBytes = idleFor, maxHeader
	out.server.http.ErrorLog = slog.NewLogLogger(d.log.Handler(), slog.LevelDebug) // of strangers who break off
	return out, nil
}

// besideWebhooks separates requests to webhooks. A ServeMux would answer some paths by itself.
func besideWebhooks(hooks, rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, webhook.Prefix) {
			hooks.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})
}

// network is what is answered on the network: the API, the numbers, other agent programs, the pages.
func (d *Daemon) network(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/mcp", d.mcp(ctx))
	mux.Handle("/v1/", access.FromNetwork(d.Handler))
	mux.Handle("GET /metrics", d.metrics)
	mux.Handle("/", access.FromNetwork(d.Pages))
	return mux
}

// addresses returns the addresses of the daemon in browsers, the one for people first.
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
		return out // an address that means all, or one that others can listen to, so that it is for the proxy
	}
	out = append(out, access.Address{Scheme: scheme, Host: withPort(scheme, listens.IP.String(), listens.Port)})
	if listens.IP.IsLoopback() {
		out = append(out, access.Address{Scheme: scheme, Host: withPort(scheme, "localhost", listens.Port)})
	}
	return out
}

// withPort returns a host as browsers write it: without the port of the scheme.
func withPort(scheme, host string, port int) string {
	usual := map[string]int{"http": 80, "https": 443}[scheme]
	return strings.TrimSuffix(net.JoinHostPort(host, strconv.Itoa(port)), ":"+strconv.Itoa(usual))
}

// noticeLink is the page of what a notice is about, "" where there are none.
func (d *Daemon) noticeLink(ctx context.Context, n ledger.Notice) string {
	switch {
	case n.ViewRef != "" && n.Agent != "":
		return d.Door.URL("/agents/" + url.PathEscape(n.Agent) + "/views?" + url.Values{"view": {n.ViewRef}}.Encode())
	case n.Run != 0:
		items, err := d.ledger.ItemsOf(ctx, n.Run)
		if err != nil {
			d.log.Warn("a notice leads to its run, for what that asks could not be read", "run", n.Run, "error", err)
		}
		for _, i := range items {
			if i.State == ledger.ItemOpen {
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

// newPages makes the pages of the home, which ask what the API asks.
func (d *Daemon) newPages() (http.Handler, error) {
	return pages.New(pages.Options{API: d.answers, Version: buildinfo.Version()})
}

// mcpIdle is how long a client of the protocol may say nothing before its session is forgotten.
const mcpIdle = 30 * time.Minute

// mcp serves the Model Context Protocol on the network. Its calls count as calls from the network.
func (d *Daemon) mcp(ctx context.Context) http.Handler {
	client := api.InProcess(access.FromNetwork(d.Handler))
	// With its tools and their schemas, which many daemons are never asked for.
	server := sync.OnceValue(func() *mcp.Server {
		return mcpserver.New(mcpserver.Options{Version: buildinfo.Version(), Logger: d.log, Done: ctx, Connect: func(context.Context) (mcpserver.Connection, error) {
			return mcpserver.Connection{Client: client, Close: func() {}, Executes: true}, nil
		}}).Server
	})

	// Whom the request is for, and from whom it comes, is looked at before (access.Guard).
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server() }, &mcp.StreamableHTTPOptions{Logger: d.log, SessionTimeout: mcpIdle, MaxRequestBodyBytes: 1 << 20, DisableLocalhostProtection: true})
	sessions := mcpSessions{of: map[string][]string{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		if begun := w.Header().Get(mcpSession); begun != "" && r.Header.Get(mcpSession) == "" {
			sessions.begin(server(), access.Caller(r.Context()), begun)
		}
	})
}

// mcpSession is the header that names a session.
const mcpSession = "Mcp-Session-Id"

// maxMCPSessions bounds the sessions of one caller, each of which holds memory.
const maxMCPSessions = 16

// mcpSessions are the sessions of each caller, the oldest first.
type mcpSessions struct {
	mu sync.Mutex
	of map[string][]string
}

// begin records a new session, and closes the oldest session of a caller that has too many.
func (m *mcpSessions) begin(server *mcp.Server, caller, session string) {
	open := map[string]*mcp.ServerSession{}
	for s := range server.Sessions() {
		open[s.ID()] = s
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	for name, ids := range m.of {
		if m.of[name] = slices.DeleteFunc(ids, func(id string) bool { return open[id] == nil }); len(m.of[name]) == 0 {
			delete(m.of, name)
		}
	}
	m.of[caller] = append(m.of[caller], session)
	for len(m.of[caller]) > maxMCPSessions {
		if oldest := open[m.of[caller][0]]; oldest != nil {
			_ = oldest.Close() // its client is told at its next request
		}
		m.of[caller] = m.of[caller][1:]
	}
}
