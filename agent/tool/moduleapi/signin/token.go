package signin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"rouse/internal/text"
	"rouse/skills"
)

const (
	// asked is the timeout of a request for a token.
	asked = 15 * time.Second
	// minToken is the minimum length of a token in bytes. Shorter ones cannot be distinguished from
	// other text.
	minToken = 12
	// maxReason limits the displayed part of a server's error message, in characters.
	maxReason = 300
)

// RefusedError reports that a server refused to issue a token. Why has the server's reason if it
// gave one.
type RefusedError struct {
	Provider, Why string
	code          string // error code of RFC 6749, section 5.2
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s gives no token: %s", e.Provider, e.Why)
}

// Token returns a valid access token: the stored one, or a new one if that has expired or is about
// to. The error is a *NeededError if the owner must sign in.
func (b *Book) Token(ctx context.Context, p Provider) (string, error) {
	return b.token(ctx, p, func(k kept) bool { return k.fresh(time.Now()) })
}

// Refresh returns a token other than had, which the service rejected. If had is "", it stands for
// the stored token.
func (b *Book) Refresh(ctx context.Context, p Provider, had string) (string, error) {
	if had == "" {
		var err error
		if had, err = b.Known(p); err != nil {
			return "", err
		}
	}
	// A token that another run obtained meanwhile is used.
	return b.token(ctx, p, func(k kept) bool { return k.Access != had && k.fresh(time.Now()) })
}

// token returns the stored token if does accepts it. Otherwise it returns a new token.
func (b *Book) token(ctx context.Context, p Provider, does func(kept) bool) (string, error) {
	unlock, err := b.lock(ctx, p.ID)
	if err != nil {
		return "", err
	}
	defer unlock()

	k, err := b.readFor(p)
	if err == nil && !does(k) {
		k, err = b.refresh(ctx, p, k)
	}
	if err != nil {
		return "", err
	}
	b.tell(k)
	return k.Access, nil
}

// refresh obtains and stores a new token without the owner. The caller must hold the lock of the
// sign-in.
func (b *Book) refresh(ctx context.Context, p Provider, k kept) (kept, error) {
	switch {
	case !p.AsksOwner():
		c := clientcredentials.Config{ClientID: p.ClientID, ClientSecret: p.secret(), TokenURL: p.TokenURL, Scopes: p.Scopes, AuthStyle: p.style()}
		return b.obtain(ctx, p, k, c.Token)
	case k.Refresh == "" || k.Refused:
		return k, &NeededError{p.DisplayName, k.Access != ""}
	}

	had := &oauth2.Token{RefreshToken: k.Refresh}
	now, err := b.obtain(ctx, p, k, func(ctx context.Context) (*oauth2.Token, error) {
		return p.config("").TokenSource(ctx, had).Token()
	})

	var no *RefusedError
	if errors.As(err, &no) && no.code == "invalid_grant" {
		k.Refused = true
		if err := b.write(p.ID, k); err != nil {
			return k, err
		}
		return k, &NeededError{p.DisplayName, true}
	}
	return now, err
}

// obtain requests a token and stores it before returning it.
func (b *Book) obtain(ctx context.Context, p Provider, k kept, ask func(context.Context) (*oauth2.Token, error)) (kept, error) {
	// The request may use up a code. So it is completed even if the run ends meanwhile.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), asked)
	defer cancel()

	t, err := ask(context.WithValue(asking, oauth2.HTTPClient, p.client()))
	if err != nil {
		return k, p.failure(err)
	}
	if len(t.AccessToken) < minToken || t.RefreshToken != "" && len(t.RefreshToken) < minToken {
		return k, &RefusedError{Provider: p.DisplayName, Why: fmt.Sprintf("its token has fewer than %d characters, and could not be told from other text", minToken)}
	}

	now := kept{Service: p.service(), Name: p.DisplayName, Scopes: p.Scopes, Since: k.Since, Access: t.AccessToken, Refresh: t.RefreshToken, Expires: t.Expiry.UTC(), Waits: k.Waits}
	if now.Since.IsZero() || k.Service != now.Service {
		now.Since = time.Now().UTC()
	}
	b.tell(now)
	return now, b.write(p.ID, now)
}

// client returns a client for the token server. It does not follow redirects, so that credentials
// reach only that server.
func (p Provider) client() *http.Client {
	send := p.Send
	if p.Resource != "" {
		send = forResource{p.Send, p.Resource}
	}
	return &http.Client{Transport: send, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// forResource adds the resource to each token request, because the oauth2 library does not add it
// when it refreshes.
type forResource struct {
	send     http.RoundTripper
	resource string
}

func (f forResource) RoundTrip(r *http.Request) (*http.Response, error) {
	form, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	r.Body.Close()
	if err != nil {
		return nil, err
	}
	body := string(form) + "&" + url.Values{"resource": {f.resource}}.Encode()
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
	return f.send.RoundTrip(r)
}

// style returns how the client authenticates. It is never detected automatically, because a failed
// try would use up a code.
func (p Provider) style() oauth2.AuthStyle {
	if p.ClientAuthenticationMethod == skills.AuthenticationBasic {
		return oauth2.AuthStyleInHeader
	}
	return oauth2.AuthStyleInParams
}

func (p Provider) config(redirect string) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.secret(), RedirectURL: redirect, Scopes: p.Scopes,
		Endpoint: oauth2.Endpoint{AuthURL: p.AuthorizationURL, TokenURL: p.TokenURL, AuthStyle: p.style()},
	}
}

func (p Provider) secret() string {
	if p.ClientAuthenticationMethod == skills.AuthenticationNone {
		return ""
	}
	return p.ClientSecret
}

// failure returns an error with the reason why a token was not issued. It does not include the
// whole response, which the errors of the library quote.
func (p Provider) failure(err error) error {
	var said *oauth2.RetrieveError
	if !errors.As(err, &said) {
		return fmt.Errorf("%s gives no token: %w", p.DisplayName, err)
	}

	why := fmt.Sprintf("its server answered %d", said.Response.StatusCode)
	if said.ErrorCode != "" {
		why += ": " + said.ErrorCode
	}
	if said.ErrorDescription != "" {
		why += " (" + said.ErrorDescription + ")"
	}
	return &RefusedError{Provider: p.DisplayName, Why: text.Truncate(text.OneLine(why), maxReason), code: said.ErrorCode}
}
