package servers

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	agentplan "rouse/agent/plan"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/moduleapi"
	"rouse/agent/tool/moduleapi/signin"
	"rouse/agent/tool/web"
	"rouse/internal/ledger/inbox"
	"rouse/skills"
)

// SignInOptions configures sign-ins.
type SignInOptions struct {
	Store signin.Store
	// Listen returns the base URL to which browsers are redirected, such as http://127.0.0.1:4711.
	Listen func(ctx context.Context) (string, error)
}

// SignIns manages the sign-ins of skills, and the sign-ins of the owner at MCP servers.
type SignIns struct {
	servers *Catalog
	book    *signin.Book // nil if sign-ins are not stored
	listen  func(ctx context.Context) (string, error)
}

func openSignIns(c *Catalog, o *SignInOptions) (*SignIns, error) {
	if o == nil {
		return &SignIns{servers: c}, nil
	}
	if o.Listen == nil {
		return nil, errors.New("agent: with sign-ins somebody has to listen for browsers")
	}

	book, err := signin.New(o.Store, func(values ...string) {
		for _, one := range values {
			c.plan.Learn(one)
		}
	})
	if err != nil {
		return nil, err
	}
	// Tokens that another process stored may be in a file or a transcript, so they must be redacted
	// too.
	if err := book.Tell(); err != nil {
		c.log.Warn("the sign-ins of skills cannot be read, so that none can be used", "error", err)
	}
	return &SignIns{c, book, o.Listen}, nil
}

// signedInWord is the answer that closes an inbox item after its sign-in.
const signedInWord = "signed in"

var errNoSignIns = errors.New("no sign-ins are kept here")

// signInOf returns the sign-in that an inbox item asks for. It returns false for any other item.
func signInOf(i inbox.Item) (signin.ID, bool) {
	if i.Kind != inbox.KindInput || i.Action.Tool != moduleapi.AuthorizeName() {
		return signin.ID{}, false
	}
	return signin.ParseID(i.Action.Description)
}

// signInProvider returns the provider of a sign-in according to the current configuration.
func (r *SignIns) signInProvider(id signin.ID) (signin.Provider, error) {
	if r.book == nil {
		return signin.Provider{}, errNoSignIns
	}

	if id.Agent == serverSignIns {
		st, ok := r.servers.Get(id.Skill)
		if !ok {
			return signin.Provider{}, &agentplan.NotConfiguredError{Kind: "MCP server", Name: id.Skill}
		}
		p, ok, err := serverProvider(st.Server, st.Record.Client)
		if err == nil && !ok {
			err = signin.ErrNoState
		}
		return p, err
	}

	plan := r.servers.plan.Load()
	a, ok := plan.Agents[id.Agent]
	if !ok {
		return signin.Provider{}, &agentplan.NotConfiguredError{Kind: "agent", Name: id.Agent}
	}
	s := plan.ModuleFor(id)
	if s == nil {
		return signin.Provider{}, &agentplan.NotConfiguredError{Kind: "skill", Name: id.Skill}
	}
	p, _, err := moduleapi.SignInProvider(s.Manifest, id, web.Options{Grants: a.Network, Secrets: a.Secrets, Redact: r.servers.plan.Redact})
	return p, err
}

// Link returns the sign-in link of an inbox item, or "" if the item does not ask for a sign-in. The
// link is not recorded.
func (r *SignIns) Link(ctx context.Context, i inbox.Item) (string, error) {
	id, ok := signInOf(i)
	if !ok || i.State != inbox.ItemOpen {
		return "", nil
	}

	p, err := r.signInProvider(id)
	if err != nil {
		return "", err
	}
	base, err := r.listen(ctx)
	if err != nil {
		return "", err
	}
	return r.book.Link(ctx, p, base)
}

// Answer signs in with the address that the user pasted as the answer to an inbox item. It returns
// false if the item does not ask for a sign-in.
func (r *SignIns) Answer(ctx context.Context, i inbox.Item, pasted string) (taken bool, err error) {
	id, ok := signInOf(i)
	if !ok {
		return false, nil
	}
	reply, err := signin.ParseReply(pasted)
	if err != nil {
		return true, err
	}
	return true, r.redeem(ctx, id, reply)
}

// Finish signs in with the reply that a browser delivered. It returns signin.ErrNoState if no
// sign-in waits for this reply.
func (r *SignIns) Finish(ctx context.Context, reply signin.Reply) error {
	if r.book == nil {
		return errNoSignIns
	}
	id, err := r.book.Find(reply)
	if err != nil {
		return err
	}
	return r.redeem(ctx, id, reply)
}

func (r *SignIns) redeem(ctx context.Context, id signin.ID, reply signin.Reply) error {
	p, err := r.signInProvider(id)
	if err != nil {
		return err
	}
	if err := r.book.Redeem(ctx, p, reply); err != nil {
		return err
	}
	return r.Settle(ctx)
}

// Settle continues the runs that wait for a sign-in that now exists.
func (r *SignIns) Settle(ctx context.Context) error {
	if r.book == nil {
		return nil
	}
	items, err := r.servers.ledger.Inbox.List(ctx)
	if err != nil {
		return err
	}

	var failed []error
	for _, i := range items {
		id, ok := signInOf(i)
		if !ok {
			continue
		}
		p, err := r.signInProvider(id)
		if err != nil {
			continue // the item stays open until it expires or the provider is configured again; its link reports the error
		}
		if there, err := r.book.IsThere(p); err != nil || !there {
			failed = append(failed, err)
			continue
		}
		if _, err := r.servers.ledger.Answer(ctx, i.ID, signedInWord); err != nil && !errors.Is(err, inbox.ErrClosed) {
			failed = append(failed, fmt.Errorf("the run %d cannot go on: %w", i.Run, err))
		}
	}
	return errors.Join(failed...)
}

// List returns the stored sign-ins.
func (r *SignIns) List() ([]signin.Entry, error) {
	if r.book == nil {
		return nil, nil
	}
	return r.book.List()
}

// Remove deletes a sign-in. It returns signin.ErrNone if the sign-in does not exist.
func (r *SignIns) Remove(ctx context.Context, id signin.ID) error {
	if r.book == nil {
		return signin.ErrNone
	}
	return r.book.Remove(ctx, id)
}

// Redirects returns the redirect URLs of links that have not been used yet.
func (r *SignIns) Redirects() ([]string, error) {
	if r.book == nil {
		return nil, nil
	}
	return r.book.Redirects()
}

// serverSignIns is the agent name of sign-ins at MCP servers. No agent can have this name. All
// agents share these sign-ins.
const serverSignIns = "@mcp"

// serverCallback is the redirect path of a sign-in at an MCP server.
const serverCallback = "/mcp/callback"

func serverSignInID(server string) signin.ID {
	return signin.ID{Agent: serverSignIns, Skill: server, Provider: "oauth"}
}

// serverProvider returns the provider of the owner's sign-in at a server. It returns false if the
// owner has never signed in there.
func serverProvider(s mcp.Server, c *mcp.Client) (signin.Provider, bool, error) {
	if c == nil || !s.IsIssuer(c.Issuer) { // the provider was discovered with another issuer
		return signin.Provider{}, false, nil
	}
	send := mcp.SignInTransport(s)
	for _, address := range []string{c.TokenURL, c.AuthorizationURL} { // the server reported these addresses, perhaps to an earlier version
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

// tokens returns a function that returns the access token for a server. It returns nil if sign-ins
// are not stored or the server has no URL.
func (r *SignIns) tokens(s mcp.Server) mcp.Tokens {
	if r.book == nil || s.URL == "" {
		return nil
	}
	return func(ctx context.Context, had string) (string, error) {
		rec, err := r.servers.book.Of(s)
		if err != nil {
			return "", err
		}
		p, ok, err := serverProvider(s, rec.Client)
		if err != nil || !ok {
			return "", err
		}

		var token string
		if had == "" {
			token, err = r.book.Token(ctx, p)
		} else {
			token, err = r.book.Refresh(ctx, p, had)
		}
		if errors.As(err, new(*signin.NeededError)) { // without a token, the server responds that it requires one
			return "", nil
		}
		return token, err
	}
}

// ServerLink returns the link with which the owner signs in at a server. It discovers the provider
// and stores it.
func (r *SignIns) ServerLink(ctx context.Context, name string) (string, error) {
	st, ok := r.servers.Get(name)
	switch {
	case !ok:
		return "", &agentplan.NotConfiguredError{Kind: "MCP server", Name: name}
	case st.Err != nil:
		return "", st.Err
	case st.URL == "":
		return "", fmt.Errorf("the MCP server %s is a program; give it its keys under env", name)
	case r.book == nil:
		return "", errNoSignIns
	}

	base, err := r.listen(ctx)
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
		err = r.servers.book.KeepClient(st.Server, client)
	}
	if err != nil {
		return "", err
	}
	return r.book.Link(ctx, p, base)
}

// AnswerServer signs in at a server with the address that the owner pasted. Their browser was
// redirected to that address.
func (r *SignIns) AnswerServer(ctx context.Context, name, pasted string) error {
	reply, err := signin.ParseReply(pasted)
	if err != nil {
		return err
	}
	if r.book == nil {
		return errNoSignIns
	}
	return r.redeem(ctx, serverSignInID(name), reply)
}

// ServerStatus returns the stored state of the sign-in at a server. It returns "" if the owner has
// never signed in there. It does not ask the server.
func (r *SignIns) ServerStatus(st State) signin.Status {
	if r.book == nil {
		return ""
	}
	p, ok, err := serverProvider(st.Server, st.Record.Client)
	if err != nil || !ok {
		return ""
	}
	there, err := r.book.IsThere(p)
	switch {
	case err != nil:
		return ""
	case there:
		return signin.Authorized
	}
	return signin.Unauthorized
}

// Book returns the stored sign-ins, or nil if sign-ins are not stored.
func (r *SignIns) Book() *signin.Book { return r.book }
