package signin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"

	"golang.org/x/oauth2"
)

// redirectPath is the form of the paths to which a browser is sent back.
var redirectPath = regexp.MustCompile(`^/[A-Za-z0-9._~/-]*$`)

// CheckLink says why no link could be made for a provider that asks its owner.
func (p Provider) CheckLink() error {
	u, err := url.Parse(p.AuthorizationURL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" || strings.ContainsFunc(p.AuthorizationURL, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return fmt.Errorf("the authorizationUrl of %s in the skill's manifest is no address that a browser could be sent to", p.ID)
	case !redirectPath.MatchString(p.RedirectPath) || strings.Contains(p.RedirectPath, ".."):
		return fmt.Errorf("the redirectPath %q of %s in the skill's manifest cannot be used; it has to be a plain path like /callback", p.RedirectPath, p.ID)
	}
	return nil
}

// Site is the host at which the owner signs in, "" where that is not known.
func (p Provider) Site() string {
	if u, err := url.Parse(p.AuthorizationURL); err == nil {
		return u.Host
	}
	return ""
}

// holds says whether a link can still be used.
func (w *waiting) holds(now time.Time) bool { return w != nil && now.Before(w.Since.Add(linkHolds)) }

// Link is where the owner signs in. At the end their browser is sent to base, like http://127.0.0.1:4711, with the path of the
// manifest. The same link is given until it is used, or too old.
func (b *Book) Link(ctx context.Context, p Provider, base string) (string, error) {
	unlock, err := b.lock(ctx, p.ID)
	if err != nil {
		return "", err
	}
	defer unlock()

	k, err := b.read(p.ID)
	if err != nil {
		return "", err
	}
	redirect := base + p.RedirectPath
	if w := k.Waits; !w.holds(time.Now()) || w.Service != p.service() || w.Redirect != redirect {
		k.Name = p.DisplayName
		k.Waits = &waiting{Service: p.service(), State: rand.Text(), Verifier: oauth2.GenerateVerifier(), Redirect: redirect, Since: time.Now().UTC()}
		if err := b.write(p.ID, k); err != nil {
			return "", err
		}
	}
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(k.Waits.Verifier)}
	if p.Resource != "" {
		options = append(options, oauth2.SetAuthURLParam("resource", p.Resource))
	}
	return p.config(redirect).AuthCodeURL(k.Waits.State, options...), nil
}

// Redirects are the addresses to which browsers are sent at the end of the sign-ins that wait.
func (b *Book) Redirects() (out []string, err error) {
	return out, b.each(func(_ ID, k kept) {
		if k.Waits.holds(time.Now()) {
			out = append(out, k.Waits.Redirect)
		}
	})
}

// Reply is what a browser was sent back with.
type Reply struct {
	State string // "": the owner gave the code alone
	Code  string
	Error string // of the service, "" where there is a code
	Path  string // to which it was sent; "" where nobody knows
}

// maxCode is how long a code may be, in bytes.
const maxCode = 4096

// ParseReply reads what an owner pasted: the address that their browser was sent to, or the code in it.
func ParseReply(pasted string) (Reply, error) {
	pasted = strings.TrimSpace(pasted)
	if !strings.Contains(pasted, "://") && !strings.Contains(pasted, "code=") && !strings.Contains(pasted, "error=") {
		if pasted == "" || len(pasted) > maxCode || strings.ContainsFunc(pasted, unicode.IsSpace) {
			return Reply{}, errors.New("this is neither the address that the browser was sent to, nor the code in it")
		}
		return Reply{Code: pasted}, nil
	}

	// A service may have put it behind a #, which no browser sends.
	for part := range strings.FieldsFuncSeq(pasted, func(r rune) bool { return r == '?' || r == '#' }) {
		if values, err := url.ParseQuery(part); err == nil && values.Has("state") {
			return ReplyOf("", values)
		}
	}
	return ReplyOf("", nil)
}

// ReplyOf is the reply in the query of a request for a path.
func ReplyOf(path string, values url.Values) (Reply, error) {
	r := Reply{State: values.Get("state"), Code: values.Get("code"), Error: values.Get("error"), Path: path}
	switch {
	case r.State == "":
		return r, errors.New("the address has no state; copy all of it")
	case r.Error == "" && (r.Code == "" || len(r.Code) > maxCode):
		return r, errors.New("the address has no code; copy all of it")
	}
	return r, nil
}

// ErrNoState says that nobody waits for a reply: its state is unknown, used, or too old.
var ErrNoState = errors.New("nobody waits for this sign-in any more; take the link of rouse inbox, and sign in with that")

// Find finds the sign-in that waits for the state of a reply.
func (b *Book) Find(r Reply) (found ID, err error) {
	err = b.each(func(id ID, k kept) {
		if k.Waits.takes(r) {
			found = id
		}
	})
	switch {
	case found != ID{}:
		return found, nil
	case err != nil:
		return found, err
	}
	return found, ErrNoState
}

// takes says whether a reply is the one that is waited for.
func (w *waiting) takes(r Reply) bool {
	if !w.holds(time.Now()) || r.State == "" || subtle.ConstantTimeCompare([]byte(w.State), []byte(r.State)) != 1 {
		return false
	}
	u, err := url.Parse(w.Redirect)
	return err == nil && (r.Path == "" || r.Path == u.Path)
}

// Redeem trades the code of a reply for a token, and keeps that. Whatever comes of it, the reply cannot be used again. A code without a
// state is one that the owner gave for this very sign-in: without the verifier of its link no server takes it.
func (b *Book) Redeem(ctx context.Context, p Provider, r Reply) error {
	unlock, err := b.lock(ctx, p.ID)
	if err != nil {
		return err
	}
	defer unlock()

	k, err := b.read(p.ID)
	if err != nil {
		return err
	}
	w := k.Waits
	if !w.holds(time.Now()) || w.Service != p.service() || r.State != "" && !w.takes(r) {
		return ErrNoState
	}

	// Before the code is sent: a process that dies now has used it, and another link is needed.
	k.Waits = nil
	if err := b.write(p.ID, k); err != nil {
		return err
	}
	if r.Error != "" {
		return &RefusedError{Provider: p.DisplayName, Why: "the sign-in was refused there"}
	}

	_, err = b.obtain(ctx, p, kept{}, func(ctx context.Context) (*oauth2.Token, error) {
		return p.config(w.Redirect).Exchange(ctx, r.Code, oauth2.VerifierOption(w.Verifier))
	})
	return err
}
