package web

import (
	"context"
	"errors"
	"net/http"

	"rouse/cmd/internal/api"
	"rouse/internal/ledger"
)

// mcpRoutes are all local but the listing: they start programs, and decide what agents may call.
func (s *Server) mcpRoutes() []Route {
	const base = "/v1/mcp-servers/{name}"
	return append([]Route{get[[]api.MCPServer]("/v1/mcp-servers", "The MCP servers, with their tools as they were seen last; none is started.", s.answer(func(r *http.Request) (any, error) {
		return s.backend.MCPServers(r.Context())
	}))}, local(
		post[api.MCPLook, api.MCPServer](base+"/look", "Starts an MCP server, or asks at its address, to see which tools it has. A program gets no folders and no network unless the request names an agent that has both.", s.answer(withBody(func(r *http.Request, how api.MCPLook) (any, error) {
			return s.backend.LookAtMCPServer(r.Context(), r.PathValue("name"), how)
		}))),
		post[api.MCPApproval, api.MCPApproved](base+"/approve", "Approves tools of an MCP server as they were seen last.", s.answer(withBody(func(r *http.Request, in api.MCPApproval) (any, error) {
			return s.backend.ApproveMCPTools(r.Context(), r.PathValue("name"), in)
		}))),
		post[api.MCPApproval, api.MCPApproved](base+"/revoke", "Takes approvals of tools of an MCP server back.", s.answer(withBody(func(r *http.Request, in api.MCPApproval) (any, error) {
			return s.backend.RevokeMCPTools(r.Context(), r.PathValue("name"), in)
		}))),
		post[api.MCPReply, api.MCPSignIn](base+"/sign-in", "Tells where the owner signs in at an MCP server, or takes the address that their browser was sent to.", s.answer(withBody(func(r *http.Request, in api.MCPReply) (any, error) {
			return s.backend.SignInAtMCPServer(r.Context(), r.PathValue("name"), in)
		}))),
	)...)
}

// asked answers a request without parameters.
func asked[T any](answer func(context.Context) (T, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) { return answer(r.Context()) }
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

func (s *Server) signInRoutes() []Route {
	return []Route{
		get[[]api.SignIn]("/v1/sign-ins", "The sign-ins of skills; never a token.", s.answer(asked(s.backend.SignIns))),
		post[api.SignInName, api.SignInName]("/v1/sign-ins/remove", "Forgets a sign-in of a skill.", s.answer(withBody(func(r *http.Request, in api.SignInName) (any, error) {
			return in, s.backend.RemoveSignIn(r.Context(), in.Name)
		}))),
	}
}

// withLink adds the sign-in link to an item that asks for a sign-in. The link is not recorded.
func (s *Server) withLink(ctx context.Context, out api.Item, i ledger.Item) api.Item {
	link, err := s.backend.SignInLink(ctx, i)
	out.Link = link
	if err != nil {
		out.LinkProblem = err.Error()
	}
	return out
}

// takeSignIn completes a sign-in with an answer, if an item asks for a sign-in.
func (s *Server) takeSignIn(ctx context.Context, i ledger.Item, pasted string) (taken bool, err error) {
	taken, err = s.backend.AnswerSignIn(ctx, i, pasted)
	if err != nil && !errors.As(err, new(*api.Error)) {
		err = &api.Error{Status: http.StatusUnprocessableEntity, Message: err.Error()}
	}
	return taken, err
}
