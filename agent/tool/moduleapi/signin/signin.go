package signin

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"rouse/skills"
)

// ID identifies a sign-in.
type ID struct{ Agent, Skill, Provider string }

func (id ID) String() string { return id.Agent + "/" + id.Skill + "/" + id.Provider }

// ParseID parses the result of ID.String. Names of agents and skills have no slash.
func ParseID(text string) (ID, bool) {
	parts := strings.SplitN(text, "/", 3)
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return ID{}, false
	}
	return ID{parts[0], parts[1], parts[2]}, true
}

// Provider is a service at which a skill signs in, with the credentials of the client.
type Provider struct {
	ID
	skills.OAuth

	ClientID, ClientSecret string
	Send                   http.RoundTripper // transport to the token URL, within the agent's grants
	Resource               string            // audience of the tokens (RFC 8707), or ""
}

// AsksOwner reports whether the owner must sign in with a browser.
func (p Provider) AsksOwner() bool { return p.GrantType == skills.GrantAuthorizationCode }

// service returns a hash that identifies the service, the client and the requested access.
func (p Provider) service() string {
	what := []any{p.GrantType, p.AuthorizationURL, p.TokenURL, p.Scopes, p.ClientAuthenticationMethod, p.ClientID}
	if p.Resource != "" {
		what = append(what, p.Resource)
	}
	all, err := json.Marshal(what)
	if err != nil { // strings can always be encoded
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(all))
}

// ErrNone is returned by a Store that has no value with the name.
var ErrNone = errors.New("there is none")

// Store stores the owner's secrets. It must be safe for concurrent use.
type Store interface {
	Get(name string) (string, error)
	Set(name, value string) error
	Remove(name string) error
	Names() ([]string, error)
}

// Status is the state of a sign-in, as modules get it.
type Status string

// Values of Status.
const (
	Authorized   Status = "authorized"   // there is a token, or one can be obtained without the owner
	Expired      Status = "expired"      // the owner must sign in again
	Unauthorized Status = "unauthorized" // the owner has not signed in
)

// NeededError reports that a token cannot be obtained without the owner.
type NeededError struct {
	Provider string // display name
	Expired  bool   // true if there was a token
}

func (e *NeededError) Error() string {
	if e.Expired {
		return fmt.Sprintf("the sign-in at %s is not valid any more, and its owner has to sign in again: host.oauth.authorize asks for that", e.Provider)
	}
	return fmt.Sprintf("nobody has signed in to %s for this skill yet: host.oauth.authorize asks for that", e.Provider)
}

// kept is the stored form of a sign-in.
type kept struct {
	Service string    `json:"service"` // result of Provider.service
	Name    string    `json:"name"`    // display name of the service
	Scopes  []string  `json:"scopes,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Access  string    `json:"access,omitempty"`
	Refresh string    `json:"refresh,omitempty"`
	Expires time.Time `json:"expires,omitzero"`  // expiry of Access; zero means unknown
	Refused bool      `json:"refused,omitempty"` // the server rejected the refresh token
	Waits   *waiting  `json:"waits,omitempty"`
}

// waiting is a pending sign-in for which the owner was given a link.
type waiting struct {
	Service  string    `json:"service"`
	State    string    `json:"state"`
	Verifier string    `json:"verifier"`
	Redirect string    `json:"redirect"` // redirect address of the browser
	Since    time.Time `json:"since"`
}

const (
	// early is how long before its expiry a token is no longer used.
	early = 30 * time.Second
	// linkHolds is how long a link is valid.
	linkHolds = 24 * time.Hour
)

// fresh reports whether the access token can be used.
func (k kept) fresh(now time.Time) bool {
	return k.Access != "" && !k.Refused && (k.Expires.IsZero() || now.Add(early).Before(k.Expires))
}

// status returns the status according to the store, without a request to the service.
func (k kept) status(now time.Time) Status {
	switch {
	case k.fresh(now), k.Refresh != "" && !k.Refused:
		return Authorized
	case k.Access != "":
		return Expired
	}
	return Unauthorized
}

// Book manages the sign-ins in a store.
type Book struct {
	store Store
	learn func(values ...string)

	mu    sync.Mutex
	locks map[ID]chan struct{} // each of capacity 1
}

// New returns a Book with the sign-ins in store. It passes every token to learn before the token is
// used, so that tokens can be redacted in records.
func New(store Store, learn func(values ...string)) (*Book, error) {
	if store == nil || learn == nil {
		return nil, errors.New("signin: a store is needed, and who is told of tokens")
	}
	return &Book{store: store, learn: learn, locks: map[ID]chan struct{}{}}, nil
}

// lock waits for exclusive access to a sign-in.
func (b *Book) lock(ctx context.Context, id ID) (unlock func(), err error) {
	b.mu.Lock()
	one, ok := b.locks[id]
	if !ok {
		one = make(chan struct{}, 1)
		b.locks[id] = one
	}
	b.mu.Unlock()

	select {
	case one <- struct{}{}:
		return func() { <-one }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// read returns the stored sign-in, or the zero value if there is none.
func (b *Book) read(id ID) (k kept, err error) {
	text, err := b.store.Get(id.String())
	if errors.Is(err, ErrNone) {
		return k, nil
	}
	if err != nil {
		return k, fmt.Errorf("the sign-in %s cannot be read: %w", id, err)
	}
	if err := json.Unmarshal([]byte(text), &k); err != nil { // the error of json could quote a token
		return kept{}, fmt.Errorf("what is kept of the sign-in %s is damaged; remove it with: rouse skills sign-ins --remove %[1]s", id)
	}
	return k, nil
}

// readFor returns the stored sign-in of a provider. It drops the token if the token is for another
// service.
func (b *Book) readFor(p Provider) (kept, error) {
	k, err := b.read(p.ID)
	if err != nil || k.Service == p.service() {
		return k, err
	}
	return kept{Waits: k.Waits}, nil
}

func (b *Book) write(id ID, k kept) error {
	text, err := json.Marshal(k)
	if err == nil {
		err = b.store.Set(id.String(), string(text))
	}
	if err != nil {
		return fmt.Errorf("the sign-in %s cannot be kept: %w", id, err)
	}
	return nil
}

// Entry is a sign-in as shown to its owner.
type Entry struct {
	ID
	Service string // display name
	Status  Status
	Scopes  []string
	Since   time.Time // zero if the owner has not signed in yet
	Expires time.Time // expiry of the current token; zero means unknown
	Renews  bool      // the token is refreshed automatically
	Waiting bool      // the owner was given a link
}

// List returns all sign-ins, in the order of the store.
func (b *Book) List() (out []Entry, err error) {
	return out, b.each(func(id ID, k kept) {
		now := time.Now()
		out = append(out, Entry{ID: id, Service: k.Name, Status: k.status(now), Scopes: k.Scopes, Since: k.Since, Expires: k.Expires,
			Renews: k.Refresh != "" && !k.Refused, Waiting: k.Waits.holds(now)})
	})
}

// each calls do for every sign-in that can be read. The error joins those of the unreadable
// sign-ins.
func (b *Book) each(do func(id ID, k kept)) error {
	names, err := b.store.Names()
	if err != nil {
		return fmt.Errorf("the sign-ins cannot be listed: %w", err)
	}

	var unread []error
	for _, name := range names {
		id, ok := ParseID(name)
		if !ok {
			continue
		}
		k, err := b.read(id)
		if err != nil {
			unread = append(unread, err)
			continue
		}
		do(id, k)
	}
	return errors.Join(unread...)
}

// Tell passes every stored token to the learn function of the Book.
func (b *Book) Tell() error {
	return b.each(func(_ ID, k kept) { b.tell(k) })
}

func (b *Book) tell(k kept) {
	for _, one := range []string{k.Access, k.Refresh} {
		if one != "" {
			b.learn(one)
		}
	}
}

// Remove deletes a sign-in. It returns ErrNone if there is none. It does not revoke the token at
// the service.
func (b *Book) Remove(ctx context.Context, id ID) error {
	unlock, err := b.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return b.store.Remove(id.String())
}

// Status returns the status of a sign-in. It refreshes an expired token.
func (b *Book) Status(ctx context.Context, p Provider) (Status, error) {
	unlock, err := b.lock(ctx, p.ID)
	if err != nil {
		return "", err
	}
	defer unlock()

	k, err := b.readFor(p)
	if err != nil {
		return "", err
	}
	if now := time.Now(); k.fresh(now) || k.status(now) != Authorized {
		return k.status(now), nil
	}

	k, err = b.refresh(ctx, p, k)
	if errors.As(err, new(*NeededError)) {
		return Expired, nil
	}
	return k.status(time.Now()), err
}

// IsThere reports, without a request to the service, whether a run can continue with a sign-in.
func (b *Book) IsThere(p Provider) (bool, error) {
	k, err := b.readFor(p)
	return k.status(time.Now()) == Authorized, err
}

// Known returns the stored access token, usable or not, or "" if there is none.
func (b *Book) Known(p Provider) (string, error) {
	k, err := b.readFor(p)
	b.tell(k)
	return k.Access, err
}
