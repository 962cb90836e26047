package daemon

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/mcpserver"
	"rouse/cmd/internal/web"
)

// mcpIdle is how long a client of the protocol may say nothing before its session is forgotten.
const mcpIdle = 30 * time.Minute

// mcp answers clients of the Model Context Protocol on the network, behind whoever lets them in. What they ask for is asked as from
// the network.
func (d *Daemon) mcp(ctx context.Context) http.Handler {
	client := api.InProcess(web.FromNetwork(d.Handler))
	// With its tools and their schemas, which many daemons are never asked for.
	server := sync.OnceValue(func() *mcp.Server {
		return mcpserver.New(mcpserver.Options{Version: Version(), Logger: d.log, Done: ctx, Connect: func(context.Context) (mcpserver.Connection, error) {
			return mcpserver.Connection{Client: client, Close: func() {}, Executes: true}, nil
		}}).Server
	})

	// Whom the request is for, and from whom it comes, is looked at before (access.Guard).
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server() }, &mcp.StreamableHTTPOptions{Logger: d.log, SessionTimeout: mcpIdle, MaxRequestBodyBytes: 1 << 20, DisableLocalhostProtection: true})
}
