package agent

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"rouse/agent/tool/host/signin"
	"rouse/agent/tool/mcp"
	"rouse/skills"
)

// The sign-ins at MCP servers are kept beside those of skills. No agent has the name under which they are: a server is signed in to for all
// agents that its owner gives it to.
const serverSignIns = "@mcp"

// serverCallback is the path to which browsers are sent from a sign-in at an MCP server.
const serverCallback = "/mcp/callback"

func serverSignInID(server string) signin.ID {
	return signin.ID{Agent: serverSignIns, Skill: server, Provider: "oauth"}
}

// serverProvider is where the owner signs in at a server, as it was found; false where they never have.
func serverProvider(s mcp.Server, c *mcp.Client) (signin.Provider, bool, error) {
	if c == nil || !s.IsIssuer(c.Issuer) { // it was found when the owner named another
		return signin.Provider{}, false, nil
	}
	send := mcp.SignInTransport(s)
	for _, address := range []string{c.TokenURL, c.AuthorizationURL} { // which the server named, perhaps for an earlier version
		u, err := url.Parse(address)
		if err == nil {
			err = send.Refuses(u)
		}
		if err != nil {
			return signin.Provider{}, false, fmt.Errorf("the MCP server %s names an address for its sign-in that is not used: %w", s.Name, err)
		}
	}

	p := signin.Provider{ID: serverSignInID(s.Name), ClientID: c.ID, Send: send, Resource: c.Resource, OAuth: skills.OAuth{
		ProviderID: "oauth", DisplayName: "the MCP server " + s.Name, GrantType: skills.GrantAuthorizationCode, AuthorizationURL: c.AuthorizationURL, TokenURL: c.TokenURL,
		Scopes: c.Scopes, PKCERequired: true, RedirectPath: serverCallback, ClientAuthenticationMethod: skills.AuthenticationNone,
	}}
	if s.OAuth != nil && s.OAuth.ClientSecret != "" {
		p.ClientSecret, p.ClientAuthenticationMethod = s.OAuth.ClientSecret, skills.AuthenticationBasic
	}
	return p, true, nil
}

// withSignIn is a server with what it means that its owner is signed in there: what it shows is theirs, unless they say otherwise.
func (r *Runner) withSignIn(s mcp.Server, rec mcp.Record) mcp.Server {
	s.Private = s.Private || rec.Client != nil && !s.Public
	return s
}

// serverTokens give the tokens for a server, nil where no sign-ins are kept.
func (r *Runner) serverTokens(s mcp.Server) mcp.Tokens {
	if r.signIns == nil || s.URL == "" {
		return nil
	}
	return func(ctx context.Context, had string) (string, error) {
		rec, err := r.servers.Of(s)
		if err != nil {
			return "", err
		}
		p, ok, err := serverProvider(s, rec.Client)
		if err != nil || !ok {
			return "", err
		}

		var token string
		if had == "" {
			token, err = r.signIns.book.Token(ctx, p)
		} else {
			token, err = r.signIns.book.Refresh(ctx, p, had)
		}
		if errors.As(err, new(*signin.NeededError)) { // asked without one, the server says that it wants one
			return "", nil
		}
		return token, err
	}
}

// ServerSignInLink is where the owner signs in at a server. What the server says of that is found now, and kept.
func (r *Runner) ServerSignInLink(ctx context.Context, name string) (string, error) {
	st, ok := r.Server(name)
	switch {
	case !ok:
		return "", &notConfiguredError{"MCP server", name}
	case st.Err != nil:
		return "", st.Err
	case st.URL == "":
		return "", fmt.Errorf("the MCP server %s is a program; give it its keys under env", name)
	case r.signIns == nil:
		return "", errNoSignIns
	}

	base, err := r.signIns.listen(ctx)
	if err != nil {
		return "", err
	}
	client, err := mcp.Discover(ctx, st.Server, base+serverCallback, st.Record.Client)
	if err != nil {
		return "", fmt.Errorf("the MCP server %s: %w", name, err)
	}
	p, _, err := serverProvider(st.Server, client)
	if err == nil {
		err = p.CheckLink()
	}
	if err == nil {
		err = r.servers.KeepClient(st.Server, client)
	}
	if err != nil {
		return "", err
	}
	return r.signIns.book.Link(ctx, p, base)
}

// AnswerServerSignIn signs in at a server with what the owner pasted: the address that their browser was sent to.
func (r *Runner) AnswerServerSignIn(ctx context.Context, name, pasted string) error {
	reply, err := signin.ParseReply(pasted)
	if err != nil {
		return err
	}
	if r.signIns == nil {
		return errNoSignIns
	}
	return r.redeem(ctx, serverSignInID(name), reply)
}

// ServerSignInStatus is how it stands with the sign-in at a server, as far as the store knows; "" where there is none.
func (r *Runner) ServerSignInStatus(st ServerState) signin.Status {
	if r.signIns == nil {
		return ""
	}
	p, ok, err := serverProvider(st.Server, st.Record.Client)
	if err != nil || !ok {
		return ""
	}
	there, err := r.signIns.book.IsThere(p)
	switch {
	case err != nil:
		return ""
	case there:
		return signin.Authorized
	}
	return signin.Unauthorized
}
