package signin_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"rouse/agent/tool/moduleapi/signin"
	"rouse/agent/tool/moduleapi/signin/signintest"
	"rouse/skills"
)

const base = "http://127.0.0.1:47111"

// desk is a Book with a server to sign in to.
type desk struct {
	t      *testing.T
	server *signintest.Server
	shelf  *signintest.Store
	book   *signin.Book
	at     signin.Provider

	mu      sync.Mutex
	learned []string
	sending func(*http.Request) // called before a request is sent; optional
}

// RoundTrip implements http.RoundTripper.
func (d *desk) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.sending != nil {
		d.sending(r)
	}
	return http.DefaultTransport.RoundTrip(r)
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, server: signintest.New(t), shelf: &signintest.Store{}}
	d.at = signin.Provider{
		ID: signin.ID{Agent: "clerk", Skill: "mail", Provider: "acme/eu"}, ClientID: signintest.ClientID, ClientSecret: signintest.ClientSecret, Send: d,
		OAuth: skills.OAuth{ProviderID: "acme/eu", DisplayName: "Acme", GrantType: skills.GrantAuthorizationCode, AuthorizationURL: d.server.URL + "/authorize", TokenURL: d.server.URL + "/token",
			Scopes: []string{"read"}, RedirectPath: "/callback", ClientAuthenticationMethod: skills.AuthenticationBasic},
	}
	var err error
	d.book, err = signin.New(d.shelf, func(values ...string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.learned = append(d.learned, values...)
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// reply opens the link and returns the reply of the browser.
func (d *desk) reply() signin.Reply {
	d.t.Helper()
	link, err := d.book.Link(d.t.Context(), d.at, base)
	if err != nil {
		d.t.Fatal(err)
	}
	r, err := signin.ParseReply(d.server.SignIn(d.t, link))
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

func (d *desk) signIn() {
	d.t.Helper()
	if err := d.book.Redeem(d.t.Context(), d.at, d.reply()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) token() string {
	d.t.Helper()
	token, err := d.book.Token(d.t.Context(), d.at)
	if err != nil {
		d.t.Fatal(err)
	}
	return token
}

// A state is removed before its code is sent. A token is stored and passed to learn before it is
// returned. So a crash never uses a code twice (OSL-33).
func TestRedeem(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r := d.reply()
	if !d.shelf.Holds(r.State) {
		t.Fatal("the state is not kept")
	}
	d.sending = func(*http.Request) {
		if d.shelf.Holds(r.State) {
			t.Error("the code is sent while its state could be used again")
		}
	}
	if err := d.book.Redeem(t.Context(), d.at, r); err != nil {
		t.Fatal(err)
	}

	learned := slices.Clone(d.learned)
	if token := d.token(); !d.shelf.Holds(token) || !slices.Contains(learned, token) || len(learned) != 2 {
		t.Errorf("kept %v, learned %d", d.shelf.Holds(token), len(learned))
	}
	if err := d.book.Redeem(t.Context(), d.at, r); !errors.Is(err, signin.ErrNoState) || d.server.Requests() != "authorization_code" {
		t.Errorf("again: %v, asked %s", err, d.server.Requests())
	}

	// If the state cannot be removed, the code is not sent.
	r = d.reply()
	d.shelf.Fail = errors.New("the disk is full")
	if err := d.book.Redeem(t.Context(), d.at, r); err == nil || d.server.Requests() != "authorization_code" {
		t.Errorf("%v, asked %s", err, d.server.Requests())
	}
}

// A token request is completed even if the run ends meanwhile. Otherwise the token would be lost.
func TestTokenIsWaitedFor(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.server.Lifetime = 10
	d.signIn()
	ctx, cancel := context.WithCancel(t.Context())
	d.sending = func(*http.Request) { cancel() }
	token, err := d.book.Token(ctx, d.at)
	if err != nil || !d.shelf.Holds(token) {
		t.Errorf("%v", err)
	}
}

// Concurrent callers that find an expired token wait for a single refresh (OSL-33).
func TestRefreshedOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.server.Lifetime = 10
	d.signIn()
	old, err := d.book.Known(d.at)
	if err != nil {
		t.Fatal(err)
	}
	d.server.Lifetime = 3600

	var all sync.WaitGroup
	got := make([]string, 8)
	for i := range got {
		all.Go(func() {
			var err error
			if i%2 == 0 {
				got[i], err = d.book.Token(t.Context(), d.at)
			} else {
				got[i], err = d.book.Refresh(t.Context(), d.at, old)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if slices.Sort(got); got[0] == old || got[0] != got[len(got)-1] || d.server.Requests() != "authorization_code, refresh_token" {
		t.Errorf("%v after %s, asked %s", got, old, d.server.Requests())
	}
}

// Redirects of a token server are not followed. A token that is too short to be redacted is
// refused.
func TestTokenServers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"leads elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "answered 307"},
		"a short token": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"access_token":"success","token_type":"Bearer"}`))
		}, "fewer than 12 characters"},
		"words of its own": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"invalid_scope","error_description":"line\none \u001b[31m"}`))
		}, "answered 400: invalid_scope (line one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			var asked []string
			other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.URL.Path)
				c.answer(w, r)
			}))
			defer other.Close()
			d.at.GrantType, d.at.TokenURL = skills.GrantClientCredentials, other.URL+"/token"
			_, err := d.book.Token(t.Context(), d.at)
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.ContainsAny(err.Error(), "\n\x1b") || !slices.Equal(asked, []string{"/token"}) || len(d.learned) > 0 {
				t.Errorf("%v, asked %v, learned %v", err, asked, d.learned)
			}
		})
	}
}

// The reply that an owner pasted is parsed in every form.
func TestParseReply(t *testing.T) {
	t.Parallel()
	for pasted, want := range map[string]string{
		base + "/callback?code=c1&state=s1":            "s1 c1 ",
		" " + base + "/callback?state=s1&code=4%2F0A ": "s1 4/0A ",
		base + "/callback#code=c1&state=s1":            "s1 c1 ",
		base + "/callback?x=1#code=c1&state=s1":        "s1 c1 ",
		"?code=c1&state=s1":                            "s1 c1 ",
		"code=c1&state=s1":                             "s1 c1 ",
		base + "/callback?error=no&state=s1":           "s1  no",
		"4/0AbCd-_e":                                   " 4/0AbCd-_e ",
		base + "/callback?code=c1":                     "has no state",
		base + "/callback?state=s1":                    "has no code",
		base + "/callback":                             "has no state",
		"c1 c2":                                        "neither the address",
		"":                                             "neither the address",
		strings.Repeat("c", 5000):                      "neither the address",
	} {
		r, err := signin.ParseReply(pasted)
		got := strings.Join([]string{r.State, r.Code, r.Error}, " ")
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%q is %q, want %q", pasted, got, want)
		}
	}
}

// The link has the parameters of the manifest and a challenge. A new link is made if the manifest
// or the redirect address changes.
func TestLink(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	of := func(change func(p *signin.Provider), at string) url.Values {
		p := d.at
		change(&p)
		link, err := d.book.Link(t.Context(), p, at)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(link)
		if err != nil {
			t.Fatal(err)
		}
		return u.Query()
	}
	same := func(*signin.Provider) {}

	first := of(same, base)
	if first.Get("scope") != "read" || first.Get("redirect_uri") != base+"/callback" || first.Get("code_challenge_method") != "S256" || first.Get("client_secret") != "" {
		t.Errorf("%v", first)
	}
	if again := of(same, base); again.Encode() != first.Encode() {
		t.Errorf("%v is not %v", again, first)
	}
	for name, other := range map[string]url.Values{
		"another port":  of(same, base+"2"),
		"another scope": of(func(p *signin.Provider) { p.Scopes = []string{"write"} }, base),
	} {
		if other.Get("state") == first.Get("state") || other.Get("code_challenge") == first.Get("code_challenge") {
			t.Errorf("%s: %v", name, other)
		}
	}

	id, ok := signin.ParseID(d.at.String())
	if !ok || id != d.at.ID {
		t.Errorf("%v", id)
	}
}

// A sign-in that cannot be read is reported, and does not affect the others.
func TestDamagedSignIn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if err := d.shelf.Set("clerk/other/acme", `{"access":"half-a-secr`); err != nil {
		t.Fatal(err)
	}
	r := d.reply()
	if id, err := d.book.Find(r); err != nil || id != d.at.ID {
		t.Errorf("%v %v", id, err)
	}
	if err := d.book.Redeem(t.Context(), d.at, r); err != nil {
		t.Fatal(err)
	}
	entries, err := d.book.List()
	if err == nil || !strings.Contains(err.Error(), "rouse skills sign-ins --remove clerk/other/acme") || strings.Contains(err.Error(), "half-a-secr") || len(entries) != 1 {
		t.Errorf("%+v %v", entries, err)
	}
	if err := d.book.Remove(t.Context(), signin.ID{Agent: "clerk", Skill: "other", Provider: "acme"}); err != nil {
		t.Error(err)
	}
}
