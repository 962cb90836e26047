package daemon

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rouse/cmd/internal/access"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/buildinfo"
	"rouse/cmd/internal/mcpserver"
)

// mcpIdle is how long a client of the protocol may say nothing before its session is forgotten.
const mcpIdle = 30 * time.Minute

// mcp serves the Model Context Protocol on the network. Its calls count as calls from the network.
func (e *endpoints) mcp(ctx context.Context, log *slog.Logger) http.Handler {
	client := api.InProcess(access.FromNetwork(e.Handler))
	// With its tools and their schemas, which many daemons are never asked for.
	server := sync.OnceValue(func() *mcp.Server {
		return mcpserver.New(mcpserver.Options{Version: buildinfo.Version(), Logger: log, Done: ctx, Connect: func(context.Context) (mcpserver.Connection, error) {
			return mcpserver.Connection{Client: client, Close: func() {}, Executes: true}, nil
		}}).Server
	})

	// Whom the request is for, and from whom it comes, is looked at before (access.Guard).
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server() }, &mcp.StreamableHTTPOptions{Logger: log, SessionTimeout: mcpIdle, MaxRequestBodyBytes: 1 << 20, DisableLocalhostProtection: true})
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
