package moduleapi

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/moduleapi/signin"
	"rouse/agent/tool/web"
	"rouse/internal/text"
	"rouse/skills"
)

// The tools of host.oauth.
var (
	authorizeSpec = changing("host_oauth_authorize", "Signs a module in to a service; its owner is asked to, where that needs one.", tool.Spec{Ends: true, Waits: true})
	refreshSpec   = changing("host_oauth_refresh", "Gets a module another token of a service; the record never has it.", tool.Spec{})
	tokenSpec     = reading("host_oauth_token", "Gives a module the token of a service that it is signed in to; the record never has it.", tool.Spec{})
	statusSpec    = reading("host_oauth_status", "Tells a module how it stands with its sign-in to a service.", tool.Spec{})
)

// AuthorizeName returns the name of the tool that asks an owner to sign in.
func AuthorizeName() string { return authorizeSpec.Name }

type providerArgs struct {
	ProviderID string `json:"providerId"`
}

// signInQuestion asks an owner to sign in. Runs with the same SignIn wait for the same answer.
type signInQuestion struct {
	Question string `json:"question"`
	SignIn   string `json:"sign_in"`
	Waiting  bool   `json:"waiting"`
}

func signsIn(m *skills.Manifest, c Capabilities) bool {
	return c.SignIns && c.Network && len(m.OAuth) > 0
}

// oauthTool returns a tool whose calls refer to one provider of the manifest.
func oauthTool(s tool.Spec, do func(*Host, context.Context, signin.Provider) (any, error)) member {
	s.Args = reflect.TypeFor[providerArgs]()
	return member{s, func(h *Host, s tool.Spec) (tool.Tool, error) {
		s.Access = tool.AccessOf(func(_ context.Context, _ tool.Invocation, a providerArgs) (tool.Access, error) {
			_, client, err := h.provider(a.ProviderID)
			// The token server gets no data of the run.
			return tool.Access{AddsTaint: privateUnless(client.Public)}, err
		})
		return tool.Define(s, func(ctx context.Context, _ tool.Invocation, a providerArgs) (tool.Envelope, error) {
			p, _, err := h.provider(a.ProviderID)
			if err != nil {
				return tool.Envelope{}, err
			}
			result, err := do(h, ctx, p)
			if err != nil {
				return tool.Envelope{}, signInFailure(err)
			}
			return tool.Success(result), nil
		})
	}}
}

func privateUnless(public bool) tool.Taint {
	if public {
		return 0
	}
	return tool.Private
}

// authorize asks the owner to sign in, unless a token is available without the owner.
func (h *Host) authorize(ctx context.Context, p signin.Provider) (any, error) {
	_, err := h.o.SignIns.Token(ctx, p)
	if !errors.As(err, new(*signin.NeededError)) || !p.AsksOwner() {
		return value{signin.Authorized}, err
	}
	if h.o.Capabilities.Within { // the caller of the skill waits for a result
		return nil, err
	}

	asks := ""
	if len(p.Scopes) > 0 {
		asks = " It asks for: " + text.OneLine(strings.Join(p.Scopes, ", ")) + "."
	}
	return signInQuestion{Waiting: true, SignIn: p.String(), Question: fmt.Sprintf(
		"The skill %s wants to use %s for the agent %s, for which you have to sign in at %s.%s\nrouse inbox has the link. Open it in a browser on this machine, and the run goes on by itself. On another machine the browser ends with an address that it cannot open: give that as the answer, in quotes.",
		p.Skill, text.OneLine(p.DisplayName), p.Agent, text.OneLine(p.Site()), asks)}, nil
}

// token returns the placeholder of a token. The module gets the value only after the placeholder
// was recorded.
func (h *Host) token(ctx context.Context, p signin.Provider) (any, error) {
	_, err := h.o.SignIns.Token(ctx, p)
	return value{tool.Placeholder(tool.TokenName(p.Provider))}, err
}

func (h *Host) refresh(ctx context.Context, p signin.Provider) (any, error) {
	_, err := h.o.SignIns.Refresh(ctx, p, h.latest[tool.TokenName(p.Provider)])
	return value{tool.Placeholder(tool.TokenName(p.Provider))}, err
}

func (h *Host) status(ctx context.Context, p signin.Provider) (any, error) {
	status, err := h.o.SignIns.Status(ctx, p)
	return value{status}, err
}

// signInFailure returns the refusal of a call that could not get a token.
func signInFailure(err error) *tool.Refusal {
	kind := tool.KindUnavailable
	switch {
	case web.WasRefused(err) != "":
		return tool.Refuse(tool.KindRejected, "%s", web.WasRefused(err))
	case errors.As(err, new(*signin.NeededError)):
		kind = tool.KindNotFound
	case errors.As(err, new(*signin.RefusedError)):
		kind = tool.KindExecutionError
	}
	return tool.Refuse(kind, "%v", err)
}

// provider returns a provider of the manifest and the grant of its client.
func (h *Host) provider(id string) (signin.Provider, tool.SecretGrant, error) {
	p, client, err := SignInProvider(h.o.Manifest, signin.ID{Agent: h.o.Agent, Skill: h.o.Skill, Provider: id}, h.o.Network)
	if err != nil {
		err = tool.Refuse(tool.KindRejected, "%v", err).WithField("providerId", "a provider of the manifest")
	}
	return p, client, err
}

// SignInProvider returns the provider at which a skill signs in, and the grant of its client. It
// returns an error unless the manifest declares the provider and the agent is granted its token URL
// and client.
func SignInProvider(m *skills.Manifest, id signin.ID, o web.Options) (p signin.Provider, client tool.SecretGrant, err error) {
	at := slices.IndexFunc(m.OAuth, func(a skills.OAuth) bool { return a.ProviderID == id.Provider })
	switch {
	case at < 0:
		return p, client, fmt.Errorf("%q is not among the providers that the skill's manifest signs in to (oauth)", id.Provider)
	case tool.TokenName(id.Provider) == "":
		return p, client, fmt.Errorf("%q cannot be the id of a provider here: letters, digits, _, - and . are allowed", id.Provider)
	}

	p = signin.Provider{ID: id, OAuth: m.OAuth[at]}
	if err := p.CheckLink(); p.AsksOwner() && err != nil {
		return p, client, err
	}
	if client, err = clientGrant(m, o.Secrets, p.ClientIDBinding); err != nil {
		return p, client, err
	}
	sent := []tool.SecretGrant{client}
	p.ClientID = client.Value
	if p.ClientSecretBinding != "" && p.ClientAuthenticationMethod != skills.AuthenticationNone {
		secret, err := clientGrant(m, o.Secrets, p.ClientSecretBinding)
		if err != nil {
			return p, client, err
		}
		p.ClientSecret, sent = secret.Value, append(sent, secret)
		client.Public = client.Public && secret.Public
	}

	send, err := web.NewTransport(o)
	if err != nil {
		return p, client, err
	}
	if err := send.Refuses("POST", p.TokenURL, sent...); err != nil {
		return p, client, fmt.Errorf("%s cannot be asked for tokens: %w", text.OneLine(p.DisplayName), err)
	}
	p.Send = send
	return p, client, nil
}

// Unreachable returns the reasons why a skill could not sign in with the grants of its agent.
func Unreachable(m *skills.Manifest, o web.Options) (out []string) {
	for _, a := range m.OAuth {
		if _, _, err := SignInProvider(m, signin.ID{Provider: a.ProviderID}, o); err != nil {
			out = append(out, err.Error())
		}
	}
	return out
}

// clientGrant returns the secret for a client's binding. The secret must be restricted to one host
// with only_to.
func clientGrant(m *skills.Manifest, secrets []tool.SecretGrant, name string) (tool.SecretGrant, error) {
	s, err := secretOf(m, secrets, name)
	if err == nil && s.OnlyTo == "" {
		err = fmt.Errorf("the secret %s names no host that it may be sent to; its owner adds only_to, the host of the token URL", name)
	}
	return s, err
}

// tokenGrants returns the tokens of the manifest as secrets that requests may contain.
func (h *Host) tokenGrants() (out []tool.SecretGrant) {
	for _, a := range h.o.Manifest.OAuth {
		if _, client, err := h.provider(a.ProviderID); err == nil {
			out = append(out, tool.SecretGrant{Name: tool.TokenName(a.ProviderID), Token: true, Public: client.Public})
		}
	}
	return out
}

// tokenValue returns the current value of a token, for use in a request.
func (h *Host) tokenValue(ctx context.Context, name string) (string, error) {
	p, _, err := h.provider(providerOf(name))
	if err != nil {
		return "", err
	}
	token, err := h.o.SignIns.Token(ctx, p)
	if err != nil {
		return "", signInFailure(err)
	}
	h.o.Learn(token)
	return token, nil
}

// outsideTokenRules returns the reason why a token must not be sent to a URL, or "". A rule of the
// manifest must cover the URL and name its host.
func (h *Host) outsideTokenRules(url string) string {
	for _, r := range h.o.Manifest.Sandbox.NetworkRules {
		if web.NamesHost(r.URLPattern) && web.MatchesPattern(r.URLPattern, url) {
			return ""
		}
	}
	return fmt.Sprintf("no token is sent to %s: none of the networkRules of the skill's manifest names that host%s", url, web.AmbiguousPath(url))
}

// providerOf returns the provider of a token name, or "" for the name of a secret.
func providerOf(name string) string {
	_, provider, _ := strings.Cut(name, ":")
	return provider
}

// boundProvider returns the provider of the token that a binding refers to. It returns false if
// there is no such token, or if the agent has a secret with the name of the binding.
func (h *Host) boundProvider(binding string) (string, bool) {
	if !h.has("oauth.getToken") || slices.ContainsFunc(h.o.Secrets, func(s tool.SecretGrant) bool { return s.Name == binding }) {
		return "", false
	}
	at := slices.IndexFunc(h.o.Manifest.RequiredBindings, func(b skills.Binding) bool { return b.Name == binding })
	if at < 0 || !standsForToken(h.o.Manifest, h.o.Manifest.RequiredBindings[at]) {
		return "", false
	}
	return h.o.Manifest.RequiredBindings[at].OAuthProviderID, true
}

// standsForToken reports whether a binding refers to the token of a provider, not to a credential
// of the client.
func standsForToken(m *skills.Manifest, b skills.Binding) bool {
	return b.OAuthProviderID != "" && !slices.ContainsFunc(m.OAuth, func(a skills.OAuth) bool {
		return a.ClientIDBinding == b.Name || a.ClientSecretBinding == b.Name
	})
}
