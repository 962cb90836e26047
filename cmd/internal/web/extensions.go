package web

import (
	"context"
	"net/http"
	"slices"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/control"
	"rouse/skills/install"
)

// extensions handles requests about skills, MCP servers, sign-ins and webhooks.
type extensions struct {
	*responder
	parts   *control.Extensions
	actions *control.Runs
}

func (s *extensions) routes() []Route {
	return slices.Concat(s.skillRoutes(), s.signInRoutes(), s.mcpRoutes(), s.webhookRoutes())
}

func (s *extensions) webhookRoutes() []Route {
	return []Route{get[[]api.Webhook]("/v1/webhooks", "The webhooks of jobs, with what each started last.", s.answer(asked(s.actions.Webhooks)))}
}

func (s *extensions) skillRoutes() []Route {
	return []Route{
		get[install.Inventory]("/v1/skills", "The skills of the configuration, and why others are not loaded.", s.answer(asked(s.parts.Skills))),
		get[install.Detail]("/v1/skills/{name}", "A skill: what it asks for, its instructions and docs.", s.answer(func(r *http.Request) (any, error) {
			return s.parts.Skill(r.Context(), r.PathValue("name"))
		})),
	}
}

// mcpRoutes returns the routes of MCP servers. All except the listing are local, because they
// start programs and decide which tools agents may call.
func (s *extensions) mcpRoutes() []Route {
	const base = "/v1/mcp-servers/{name}"
	return append([]Route{get[[]api.MCPServer]("/v1/mcp-servers", "The MCP servers, with their tools as they were seen last; none is started.", s.answer(func(r *http.Request) (any, error) {
		return s.parts.MCPServers(r.Context())
	}))}, local(
		post[api.MCPLook, api.MCPServer](base+"/look", "Starts an MCP server, or asks at its address, to see which tools it has. A program gets no folders and no network unless the request names an agent that has both.", s.answer(withBody(func(r *http.Request, how api.MCPLook) (any, error) {
			return s.parts.LookAtMCPServer(r.Context(), r.PathValue("name"), how)
		}))),
		post[api.MCPApproval, api.MCPApproved](base+"/approve", "Approves tools of an MCP server as they were seen last.", s.answer(withBody(func(r *http.Request, in api.MCPApproval) (any, error) {
			return s.parts.ApproveMCPTools(r.Context(), r.PathValue("name"), in)
		}))),
		post[api.MCPApproval, api.MCPApproved](base+"/revoke", "Takes approvals of tools of an MCP server back.", s.answer(withBody(func(r *http.Request, in api.MCPApproval) (any, error) {
			return s.parts.RevokeMCPTools(r.Context(), r.PathValue("name"), in)
		}))),
		post[api.MCPReply, api.MCPSignIn](base+"/sign-in", "Tells where the owner signs in at an MCP server, or takes the address that their browser was sent to.", s.answer(withBody(func(r *http.Request, in api.MCPReply) (any, error) {
			return s.parts.SignInAtMCPServer(r.Context(), r.PathValue("name"), in)
		}))),
	)...)
}

// asked wraps a handler of requests without parameters.
func asked[T any](answer func(context.Context) (T, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) { return answer(r.Context()) }
}

// withBody wraps a handler of requests with a JSON body.
func withBody[In any](answer func(*http.Request, In) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var in In
		if err := read(r, &in); err != nil {
			return nil, err
		}
		return answer(r, in)
	}
}

func (s *extensions) signInRoutes() []Route {
	return []Route{
		get[[]api.SignIn]("/v1/sign-ins", "The sign-ins of skills; never a token.", s.answer(asked(s.parts.SignIns))),
		post[api.SignInName, api.SignInName]("/v1/sign-ins/remove", "Forgets a sign-in of a skill.", s.answer(withBody(func(r *http.Request, in api.SignInName) (any, error) {
			return in, s.parts.RemoveSignIn(r.Context(), in.Name)
		}))),
	}
}
