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

// mcpIdle is the idle timeout of an MCP session.
const mcpIdle = 30 * time.Minute

// mcp serves the Model Context Protocol on the network. Its calls count as calls from the network.
func (e *endpoints) mcp(ctx context.Context, log *slog.Logger) http.Handler {
	client := api.InProcess(access.FromNetwork(e.Handler))
	// Build the tools and their schemas on first use, because many daemons do not need them.
	server := sync.OnceValue(func() *mcp.Server {
		return mcpserver.New(mcpserver.Options{Version: buildinfo.Version(), Logger: log, Done: ctx, Connect: func(context.Context) (mcpserver.Connection, error) {
			return mcpserver.Connection{Client: client, Close: func() {}, Executes: true}, nil
		}}).Server
	})

	// access.Guard has checked the host and the caller of the request.
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server() }, &mcp.StreamableHTTPOptions{Logger: log, SessionTimeout: mcpIdle, MaxRequestBodyBytes: 1 << 20, DisableLocalhostProtection: true})
	sessions := mcpSessions{of: map[string][]string{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		if begun := w.Header().Get(mcpSession); begun != "" && r.Header.Get(mcpSession) == "" {
			sessions.begin(server(), access.Caller(r.Context()), begun)
		}
	})
}

// mcpSession is the header with the session id.
const mcpSession = "Mcp-Session-Id"

// maxMCPSessions is the maximum number of sessions per caller, because each session needs memory.
const maxMCPSessions = 16

// mcpSessions holds the session ids of each caller, oldest first.
type mcpSessions struct {
	mu sync.Mutex
	of map[string][]string
}

// begin records a new session. It closes the oldest session of the caller if there are too many.
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
			_ = oldest.Close() // its client gets an error at its next request
		}
		m.of[caller] = m.of[caller][1:]
	}
}
