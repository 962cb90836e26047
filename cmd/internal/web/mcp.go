package web

import (
	"context"
	"net/http"

	"rouse/cmd/internal/api"
)

// MCPServers are the servers of the Model Context Protocol that agents may have.
type MCPServers interface {
	MCPServers(ctx context.Context) ([]api.MCPServer, error)
	LookAtMCPServer(ctx context.Context, name string, how api.MCPLook) (api.MCPServer, error)
	ApproveMCPTools(ctx context.Context, name string, in api.MCPApproval) (api.MCPApproved, error)
	RevokeMCPTools(ctx context.Context, name string, in api.MCPApproval) (api.MCPApproved, error)
	SignInAtMCPServer(ctx context.Context, name string, in api.MCPReply) (api.MCPSignIn, error)
}

// mcpRoutes are all local but the listing: they start programs, and decide what agents may call.
func (s *server) mcpRoutes() []Route {
	const base = "/v1/mcp-servers/{name}"
	b := func() MCPServers { return s.backend.MCPServers }
	return append([]Route{get[[]api.MCPServer]("/v1/mcp-servers", "The MCP servers, with their tools as they were seen last; none is started.", s.answer(func(r *http.Request) (any, error) {
		return b().MCPServers(r.Context())
	}))}, local(
		post[api.MCPLook, api.MCPServer](base+"/look", "Starts an MCP server, or asks at its address, to see which tools it has. A program gets no folders and no network unless the request names an agent that has both.", s.answer(withBody(func(r *http.Request, how api.MCPLook) (any, error) {
			return b().LookAtMCPServer(r.Context(), r.PathValue("name"), how)
		}))),
		post[api.MCPApproval, api.MCPApproved](base+"/approve", "Approves tools of an MCP server as they were seen last.", s.answer(withBody(func(r *http.Request, in api.MCPApproval) (any, error) {
			return b().ApproveMCPTools(r.Context(), r.PathValue("name"), in)
		}))),
		post[api.MCPApproval, api.MCPApproved](base+"/revoke", "Takes approvals of tools of an MCP server back.", s.answer(withBody(func(r *http.Request, in api.MCPApproval) (any, error) {
			return b().RevokeMCPTools(r.Context(), r.PathValue("name"), in)
		}))),
		post[api.MCPReply, api.MCPSignIn](base+"/sign-in", "Tells where the owner signs in at an MCP server, or takes the address that their browser was sent to.", s.answer(withBody(func(r *http.Request, in api.MCPReply) (any, error) {
			return b().SignInAtMCPServer(r.Context(), r.PathValue("name"), in)
		}))),
	)...)
}

// withBody reads what is sent before it is answered.
func withBody[In any](answer func(*http.Request, In) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var in In
		if err := read(r, &in); err != nil {
			return nil, err
		}
		return answer(r, in)
	}
}
