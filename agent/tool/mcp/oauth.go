package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"rouse/internal/dial"
	"rouse/internal/text"
)

// Client is rouse's registration at a server's authorization server, with the endpoints of that
// server.
type Client struct {
	ID               string   `json:"id"`
	Issuer           string   `json:"issuer"`
	AuthorizationURL string   `json:"authorization_url"`
	TokenURL         string   `json:"token_url"`
	Scopes           []string `json:"scopes,omitempty"`
	Resource         string   `json:"resource"`           // audience of the tokens (RFC 8707)
	Redirect         string   `json:"redirect,omitempty"` // registered redirect URL; empty if the owner registered the client
}

// ErrNoSignIn is returned if a server answers without a sign-in.
var ErrNoSignIn = errors.New("it does not ask for a sign-in")

// discoverWithin is the timeout of Discover.
const discoverWithin = 30 * time.Second

// Discover finds the authorization server of a server (RFC 9728, RFC 8414). It registers rouse
// there unless the owner has configured a client (RFC 7591). had is the result of an earlier
// discovery; its registration is reused if it is still valid.
//
// The server names the addresses. Discover only uses https addresses on the public internet, unless
// the owner configured the same host and port.
func Discover(ctx context.Context, s Server, redirect string, had *Client) (*Client, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, discoverWithin, fmt.Errorf("it took more than %s", discoverWithin))
	defer cancel()

	asks, err := challenge(ctx, s)
	if err != nil {
		return nil, err
	}
	resource, err := findResource(ctx, s, asks)
	if err != nil {
		return nil, err
	}

	i := slices.IndexFunc(resource.AuthorizationServers, s.IsIssuer)
	if i < 0 {
		return nil, fmt.Errorf("it has people sign in at %s, and its oauth.issuer is %s: nothing was sent there", text.OneLine(resource.AuthorizationServers[0]), s.OAuth.Issuer)
	}
	issuer := resource.AuthorizationServers[i]
	meta, err := findIssuer(ctx, s, issuer)
	if err != nil {
		return nil, err
	}

	c := &Client{Issuer: issuer, AuthorizationURL: meta.AuthorizationEndpoint, TokenURL: meta.TokenEndpoint, Resource: resource.Resource, Scopes: resource.ScopesSupported}
	if scope := asks["scope"]; scope != "" {
		c.Scopes = strings.Fields(scope)
	}
	if s.OAuth != nil && len(s.OAuth.Scopes) > 0 {
		c.Scopes = s.OAuth.Scopes
	}

	switch {
	case s.OAuth != nil && s.OAuth.ClientID != "":
		c.ID = s.OAuth.ClientID
	case had != nil && had.Issuer == issuer && had.Redirect == redirect && had.ID != "":
		c.ID, c.Redirect = had.ID, redirect
	default:
		if err := register(ctx, s, c, meta, redirect); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// challenge returns the parameters with which a server asks for a bearer token.
func challenge(ctx context.Context, s Server) (map[string]string, error) {
	s.Start = discoverWithin
	t, err := newTransport(s, nil)
	if err != nil {
		return nil, err
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := t.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
		return nil, ErrNoSignIn
	}
	if !errors.As(err, new(*unauthorizedError)) {
		return nil, err
	}

	challenges, err := oauthex.ParseWWWAuthenticate([]string{t.asks})
	if err != nil { // a header that cannot be parsed: try the well-known addresses
		return map[string]string{}, nil //nolint:nilerr // as the comment says
	}
	for _, c := range challenges {
		if c.Scheme == "bearer" {
			return c.Params, nil
		}
	}
	return map[string]string{}, nil
}

// findResource returns the protected-resource metadata of a server.
func findResource(ctx context.Context, s Server, asks map[string]string) (*oauthex.ProtectedResourceMetadata, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	root := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	type place struct{ at, of string }
	places := []place{{root + "/.well-known/oauth-protected-resource" + u.EscapedPath(), s.URL}, {root + "/.well-known/oauth-protected-resource", root}}
	if at := asks["resource_metadata"]; at != "" {
		places = append([]place{{at, s.URL}, {at, root}}, places...)
	}

	var failed error
	for _, p := range places {
		meta, err := oauthex.GetProtectedResourceMetadata(ctx, p.at, p.of, signInClient(s))
		if err != nil || meta == nil {
			failed = errors.Join(failed, err)
			continue
		}
		if len(meta.AuthorizationServers) == 0 {
			return nil, errors.New("it does not say who signs people in for it")
		}
		return meta, nil
	}
	return nil, fmt.Errorf("it does not say where one signs in: %w", failed)
}

// findIssuer returns the metadata of an authorization server.
func findIssuer(ctx context.Context, s Server, issuer string) (*oauthex.AuthServerMeta, error) {
	u, err := url.Parse(issuer)
	if err != nil || u.Host == "" {
		return nil, errors.New("the address of who signs people in for it is none")
	}
	root, path := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String(), strings.TrimSuffix(u.EscapedPath(), "/")
	places := []string{root + "/.well-known/oauth-authorization-server" + path, root + "/.well-known/openid-configuration" + path}
	if path != "" {
		places = append(places, root+path+"/.well-known/openid-configuration")
	}

	var failed error
	for _, at := range places {
		meta, err := oauthex.GetAuthServerMeta(ctx, at, issuer, signInClient(s))
		if err == nil && meta != nil {
			if meta.AuthorizationEndpoint == "" || meta.TokenEndpoint == "" || !slices.Contains(meta.CodeChallengeMethodsSupported, "S256") {
				return nil, fmt.Errorf("%s does not say where one signs in, or knows no PKCE (S256)", u.Host)
			}
			return meta, nil
		}
		failed = errors.Join(failed, err)
	}
	if failed == nil {
		failed = errors.New("it has no metadata")
	}
	return nil, fmt.Errorf("%s, which signs people in for it, does not say how: %w", u.Host, failed)
}

// register registers rouse as a public client, which has no secret.
func register(ctx context.Context, s Server, c *Client, meta *oauthex.AuthServerMeta, redirect string) error {
	const instead = "register rouse there, and give the client under oauth: {issuer, client_id, client_secret}"
	if meta.RegistrationEndpoint == "" {
		return fmt.Errorf("%s lets no program register itself; %s", c.Issuer, instead)
	}

	as := &oauthex.ClientRegistrationMetadata{
		RedirectURIs: []string{redirect}, ClientName: "rouse", TokenEndpointAuthMethod: "none", ApplicationType: "native",
		GrantTypes: []string{"authorization_code", "refresh_token"}, ResponseTypes: []string{"code"}, Scope: strings.Join(c.Scopes, " "),
	}
	known, err := oauthex.RegisterClient(ctx, meta.RegistrationEndpoint, as, signInClient(s))
	switch {
	case err != nil:
		return fmt.Errorf("%s did not register rouse: %w; %s", c.Issuer, err, instead)
	case known.ClientSecret != "" && known.TokenEndpointAuthMethod != "none":
		return fmt.Errorf("%s wants programs to keep a secret; %s", c.Issuer, instead)
	}
	c.ID, c.Redirect = known.ClientID, redirect
	return nil
}

// signInClient returns the client for the addresses that a server names for its sign-in.
func signInClient(s Server) *http.Client { return withoutRedirects(boundedAnswers{SignInTransport(s)}) }

// SignInTransport returns the transport for the requests of a sign-in. Because the server chooses
// the addresses, it refuses addresses of this machine and its network, including IP addresses.
// Addresses configured by the owner are allowed.
func SignInTransport(s Server) *dial.Transport { return dial.New(dial.Options{Own: s.own()}) }

// boundedAnswers limits the size of each response.
type boundedAnswers struct{ http.RoundTripper }

func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: 1 << 20, over: func(error) {}}
	}
	return resp, err
}
