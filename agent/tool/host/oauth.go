package host

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/host/signin"
	"rouse/agent/tool/web"
	"rouse/internal/domain"
	"rouse/internal/text"
	"rouse/skills"
)

// The tools of host.oauth. To ask for a sign-in again, or to refresh once more, does no harm; a token is looked up in each attempt.
var (
	authorizeSpec = asking(changing("host_oauth_authorize", "Signs a module in to a service; its owner is asked to, where that needs one.", domain.EffectDatabase, reflect.TypeFor[providerArgs]()))
	refreshSpec   = changing("host_oauth_refresh", "Gets a module another token of a service; the record never has it.", domain.EffectDatabase, reflect.TypeFor[providerArgs]())
	tokenSpec     = reading("host_oauth_token", "Gives a module the token of a service that it is signed in to; the record never has it.", reflect.TypeFor[providerArgs]())
	statusSpec    = reading("host_oauth_status", "Tells a module how it stands with its sign-in to a service.", reflect.TypeFor[providerArgs]())
)

// asking is a spec whose call may be answered with a question: then the attempt ends, and the run waits.
func asking(s tool.Spec) tool.Spec {
	s.Ends, s.Waits = true, true
	return s
}

// AuthorizeName is the tool that asks an owner to sign in.
func AuthorizeName() string { return authorizeSpec.Name }

type providerArgs struct {
	ProviderID string `json:"providerId"`
}

// signInQuestion is what an owner is asked. SignIn names it: each run that asks the same waits for the same.
type signInQuestion struct {
	Question string `json:"question"`
	SignIn   string `json:"sign_in"`
	Waiting  bool   `json:"waiting"`
}

func signsIn(m *skills.Manifest, c Capabilities) bool {
	return c.SignIns && c.Network && len(m.OAuth) > 0
}

// oauthTool is a tool whose calls are about one provider of the manifest.
func (h *Host) oauthTool(s tool.Spec, do func(context.Context, signin.Provider) (any, error)) func() (tool.Tool, error) {
	return func() (tool.Tool, error) {
		s.Needs = tool.Needs(func(_ context.Context, _ tool.Invocation, a providerArgs) (tool.Need, error) {
			_, client, refused := h.provider(a.ProviderID)
			if refused != nil {
				return tool.Need{Refused: refused}, nil
			}
			// To the token server go its own fields alone: nothing of what the run knows is sent there.
			return tool.Need{AddsTaint: privateUnless(client.Public)}, nil
		})
		return tool.Define(s, func(ctx context.Context, _ tool.Invocation, a providerArgs) (tool.Envelope, error) {
			p, _, refused := h.provider(a.ProviderID)
			if refused != nil {
				return *refused, nil
			}
			result, err := do(ctx, p)
			if err != nil {
				return signInFailure(err), nil
			}
			return tool.Success(result), nil
		})
	}
}

func privateUnless(public bool) tool.Taint {
	if public {
		return 0
	}
	return tool.Private
}

// authorize asks the owner, unless there is a token or the module can have one without them.
func (h *Host) authorize(ctx context.Context, p signin.Provider) (any, error) {
	_, err := h.o.SignIns.Token(ctx, p)
	if !errors.As(err, new(*signin.NeededError)) || !p.AsksOwner() {
		return value{signin.Authorized}, err
	}
	if h.o.Capabilities.Within { // whoever called it waits for an answer: its owner signs in when the skill is run by itself
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

// token gives the name of a token. Its value is put in for the module alone, after the answer was recorded.
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

// signInFailure is why there is no token, for the module.
func signInFailure(err error) tool.Envelope {
	switch why := web.WasRefused(err); {
	case why != "":
		return tool.Failure(tool.KindRejected, "%s", why)
	case errors.As(err, new(*signin.NeededError)):
		return tool.Failure(tool.KindNotFound, "%v", err)
	case errors.As(err, new(*signin.RefusedError)):
		return tool.Failure(tool.KindExecutionError, "%v", err)
	}
	return tool.Failure(tool.KindUnavailable, "%v", err)
}

// provider is a provider of the manifest with the grant of its client, or why the module cannot sign in there.
func (h *Host) provider(id string) (signin.Provider, tool.SecretGrant, *tool.Envelope) {
	p, client, err := SignInProvider(h.o.Manifest, signin.ID{Agent: h.o.Agent, Skill: h.o.Skill, Provider: id}, h.o.Network)
	if err != nil {
		e := tool.Failure(tool.KindRejected, "%v", err).WithField("providerId", "a provider of the manifest")
		return p, client, &e
	}
	return p, client, nil
}

// SignInProvider is where a skill signs in, with the grant of the client that it does that as: a provider of its manifest, whose token URL
// and client the agent is granted.
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

// Unreachable lists why a skill could not sign in where it wants to, in words, with what its agent is granted.
func Unreachable(m *skills.Manifest, o web.Options) (out []string) {
	for _, a := range m.OAuth {
		if _, _, err := SignInProvider(m, signin.ID{Provider: a.ProviderID}, o); err != nil {
			out = append(out, err.Error())
		}
	}
	return out
}

// clientGrant is the secret that a binding of a client stands for. It names the host of the token URL, to which alone it is sent.
func clientGrant(m *skills.Manifest, secrets []tool.SecretGrant, name string) (tool.SecretGrant, error) {
	s, err := secretOf(m, secrets, name)
	if err == nil && s.OnlyTo == "" {
		err = fmt.Errorf("the secret %s names no host that it may be sent to; its owner adds only_to, the host of the token URL", name)
	}
	return s, err
}

// The tokens that requests may have.

// tokenGrants are the tokens of the manifest, as secrets that requests may hold.
func (h *Host) tokenGrants() (out []tool.SecretGrant) {
	for _, a := range h.o.Manifest.OAuth {
		if _, client, refused := h.provider(a.ProviderID); refused == nil {
			out = append(out, tool.SecretGrant{Name: tool.TokenName(a.ProviderID), Token: true, Public: client.Public})
		}
	}
	return out
}

// tokenValue is a token as it is now, for a request.
func (h *Host) tokenValue(ctx context.Context, name string) (string, *tool.Envelope) {
	p, _, refused := h.provider(providerOf(name))
	if refused != nil {
		return "", refused
	}
	token, err := h.o.SignIns.Token(ctx, p)
	if err != nil {
		e := signInFailure(err)
		return "", &e
	}
	h.o.Learn(token)
	return token, nil
}

// outsideTokenRules says why no token is sent to a URL: no rule of the manifest covers it that says which host it is about.
func (h *Host) outsideTokenRules(url string) string {
	for _, r := range h.o.Manifest.Sandbox.NetworkRules {
		if web.NamesHost(r.URLPattern) && web.MatchesPattern(r.URLPattern, url) {
			return ""
		}
	}
	return fmt.Sprintf("no token is sent to %s: none of the networkRules of the skill's manifest names that host%s", url, web.AmbiguousPath(url))
}

// providerOf is the provider whose token has a name, "" where it is the name of a secret.
func providerOf(name string) string {
	_, provider, _ := strings.Cut(name, ":")
	return provider
}

// boundProvider is the provider whose token a binding stands for, where it is no secret that the agent is granted.
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

// standsForToken says whether a binding is the token of a provider, and not what the client signs in as.
func standsForToken(m *skills.Manifest, b skills.Binding) bool {
	return b.OAuthProviderID != "" && !slices.ContainsFunc(m.OAuth, func(a skills.OAuth) bool {
		return a.ClientIDBinding == b.Name || a.ClientSecretBinding == b.Name
	})
}
