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

// redirectPath matches the paths to which a browser may be redirected.
var redirectPath = regexp.MustCompile(`^/[A-Za-z0-9._~/-]*$`)

// CheckLink returns an error if the provider's sign-in link cannot be built.
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

// Site returns the host at which the owner signs in, or "" if it is unknown.
func (p Provider) Site() string {
	if u, err := url.Parse(p.AuthorizationURL); err == nil {
		return u.Host
	}
	return ""
}

// holds reports whether the link is still valid.
func (w *waiting) holds(now time.Time) bool { return w != nil && now.Before(w.Since.Add(linkHolds)) }

// Link returns the link with which the owner signs in. At the end, the provider redirects the
// browser to base, such as http://127.0.0.1:4711, followed by the redirect path of the manifest.
// Link returns the same link until the link is used or expires.
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

// Redirects returns the redirect addresses of all pending sign-ins.
func (b *Book) Redirects() (out []string, err error) {
	return out, b.each(func(_ ID, k kept) {
		if k.Waits.holds(time.Now()) {
			out = append(out, k.Waits.Redirect)
		}
	})
}

// Reply is the data with which a browser was redirected.
type Reply struct {
	State string // "" if the owner entered only the code
	Code  string
	Error string // error from the service, or ""
	Path  string // path of the redirect, or "" if unknown
}

// maxCode limits the length of a code, in bytes.
const maxCode = 4096

// ParseReply parses the text that an owner pasted: the redirect address, or the code in it.
func ParseReply(pasted string) (Reply, error) {
	pasted = strings.TrimSpace(pasted)
	if !strings.Contains(pasted, "://") && !strings.Contains(pasted, "code=") && !strings.Contains(pasted, "error=") {
		if pasted == "" || len(pasted) > maxCode || strings.ContainsFunc(pasted, unicode.IsSpace) {
			return Reply{}, errors.New("this is neither the address that the browser was sent to, nor the code in it")
		}
		return Reply{Code: pasted}, nil
	}

	// A service may put the values in the fragment, which browsers do not send.
	for part := range strings.FieldsFuncSeq(pasted, func(r rune) bool { return r == '?' || r == '#' }) {
		if values, err := url.ParseQuery(part); err == nil && values.Has("state") {
			return ReplyOf("", values)
		}
	}
	return ReplyOf("", nil)
}

// ReplyOf returns the reply in the query of a request. path is the path of the request.
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

// ErrNoState is returned for a reply if its state is unknown, used or expired.
var ErrNoState = errors.New("nobody waits for this sign-in any more; take the link of rouse inbox, and sign in with that")

// Find returns the id of the pending sign-in with the state of a reply. It returns ErrNoState if
// there is none.
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

// takes reports whether a reply belongs to the pending sign-in.
func (w *waiting) takes(r Reply) bool {
	if !w.holds(time.Now()) || r.State == "" || subtle.ConstantTimeCompare([]byte(w.State), []byte(r.State)) != 1 {
		return false
	}
	u, err := url.Parse(w.Redirect)
	return err == nil && (r.Path == "" || r.Path == u.Path)
}

// Redeem exchanges the code of a reply for a token and stores the token. The reply cannot be used
// again, even if Redeem fails. A code without a state is accepted, because the owner entered it for
// this sign-in. The server checks that it belongs to the verifier of the link.
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

	// Removed before the code is sent. If the process crashes now, a new link is needed.
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
