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

// ID names a sign-in.
type ID struct{ Agent, Skill, Provider string }

func (id ID) String() string { return id.Agent + "/" + id.Skill + "/" + id.Provider }

// ParseID reads what String writes. Neither agents nor skills have a slash in their names.
func ParseID(text string) (ID, bool) {
	parts := strings.SplitN(text, "/", 3)
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return ID{}, false
	}
	return ID{parts[0], parts[1], parts[2]}, true
}

// Provider is where a skill signs in, and as what.
type Provider struct {
	ID
	skills.OAuth

	ClientID, ClientSecret string
	Send                   http.RoundTripper // to its token URL, and no further than the agent's grants
	Resource               string            // whom the tokens are for (RFC 8707); "": whoever takes them
}

// AsksOwner says whether its owner has to sign in, with a browser.
func (p Provider) AsksOwner() bool { return p.GrantType == skills.GrantAuthorizationCode }

// service is a text that is the same for the same service, asked for the same by the same client.
func (p Provider) service() string {
	what := []any{p.GrantType, p.AuthorizationURL, p.TokenURL, p.Scopes, p.ClientAuthenticationMethod, p.ClientID}
	if p.Resource != "" {
		what = append(what, p.Resource)
	}
	all, err := json.Marshal(what)
	if err != nil { // texts can always be written
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(all))
}

// ErrNone is the error of a Store that has no value of a name.
var ErrNone = errors.New("there is none")

// Store keeps the owner's secrets. It may be used by several goroutines.
type Store interface {
	Get(name string) (string, error)
	Set(name, value string) error
	Remove(name string) error
	Names() ([]string, error)
}

// Status is how it stands with a sign-in, in the words that modules get.
type Status string

// The states of a sign-in.
const (
	Authorized   Status = "authorized"   // there is a token, or one can be had without its owner
	Expired      Status = "expired"      // there was one, and its owner has to sign in again
	Unauthorized Status = "unauthorized" // nobody has signed in
)

// NeededError says that there is no token without the owner.
type NeededError struct {
	Provider string // as people know it
	Expired  bool   // nobody could sign in again for them
}

func (e *NeededError) Error() string {
	if e.Expired {
		return fmt.Sprintf("the sign-in at %s is not valid any more, and its owner has to sign in again: host.oauth.authorize asks for that", e.Provider)
	}
	return fmt.Sprintf("nobody has signed in to %s for this skill yet: host.oauth.authorize asks for that", e.Provider)
}

// kept is what the store has of a sign-in.
type kept struct {
	Service string    `json:"service"` // of the Provider that it is of
	Name    string    `json:"name"`    // of the service, for people
	Scopes  []string  `json:"scopes,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Access  string    `json:"access,omitempty"`
	Refresh string    `json:"refresh,omitempty"`
	Expires time.Time `json:"expires,omitzero"`  // of Access; zero: it does not say
	Refused bool      `json:"refused,omitempty"` // the server takes it no more
	Waits   *waiting  `json:"waits,omitempty"`
}

// waiting is a sign-in that its owner was given the link for.
type waiting struct {
	Service  string    `json:"service"`
	State    string    `json:"state"`
	Verifier string    `json:"verifier"`
	Redirect string    `json:"redirect"` // where the browser is sent at the end
	Since    time.Time `json:"since"`
}

const (
	// early is how long before its end a token is not used any more.
	early = 30 * time.Second
	// linkHolds is how long a link can be used.
	linkHolds = 24 * time.Hour
)

// fresh says whether the access token can be used.
func (k kept) fresh(now time.Time) bool {
	return k.Access != "" && !k.Refused && (k.Expires.IsZero() || now.Add(early).Before(k.Expires))
}

// status is how it stands, as far as the store knows.
func (k kept) status(now time.Time) Status {
	switch {
	case k.fresh(now), k.Refresh != "" && !k.Refused:
		return Authorized
	case k.Access != "":
		return Expired
	}
	return Unauthorized
}

// Book has the sign-ins of a home.
type Book struct {
	store Store
	learn func(values ...string)

	mu    sync.Mutex
	locks map[ID]chan struct{} // each of capacity 1
}

// New is the book of a store. learn is told every token before anybody gets it, so that none reaches a record.
func New(store Store, learn func(values ...string)) (*Book, error) {
	if store == nil || learn == nil {
		return nil, errors.New("signin: a store is needed, and who is told of tokens")
	}
	return &Book{store: store, learn: learn, locks: map[ID]chan struct{}{}}, nil
}

// lock waits until nobody else works on a sign-in.
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

// read is what is kept of a sign-in, nothing where there is none.
func (b *Book) read(id ID) (k kept, err error) {
	text, err := b.store.Get(id.String())
	if errors.Is(err, ErrNone) {
		return k, nil
	}
	if err != nil {
		return k, fmt.Errorf("the sign-in %s cannot be read: %w", id, err)
	}
	if err := json.Unmarshal([]byte(text), &k); err != nil { // the error of json could quote it
		return kept{}, fmt.Errorf("what is kept of the sign-in %s is damaged; remove it with: rouse skills sign-ins --remove %[1]s", id)
	}
	return k, nil
}

// readFor is read for a provider: a token of another service is none.
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

// Entry is a sign-in as its owner is shown it.
type Entry struct {
	ID
	Service string // its name for people
	Status  Status
	Scopes  []string
	Since   time.Time // zero: nobody has signed in yet
	Expires time.Time // of the token that is there; zero: it does not say
	Renews  bool      // by itself
	Waiting bool      // its owner was given a link
}

// List lists all sign-ins, sorted as their store does.
func (b *Book) List() (out []Entry, err error) {
	return out, b.each(func(id ID, k kept) {
		now := time.Now()
		out = append(out, Entry{ID: id, Service: k.Name, Status: k.status(now), Scopes: k.Scopes, Since: k.Since, Expires: k.Expires,
			Renews: k.Refresh != "" && !k.Refused, Waiting: k.Waits.holds(now)})
	})
}

// each does something with every sign-in that can be read; the error is of those that cannot.
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

// Tell has every token that is kept told to who has to know them.
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

// Remove forgets a sign-in; ErrNone where there is none. The service itself is not told.
func (b *Book) Remove(ctx context.Context, id ID) error {
	unlock, err := b.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return b.store.Remove(id.String())
}

// Status is how it stands with a sign-in. A token that has expired is refreshed to find out.
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

// IsThere says, without asking anybody, whether a sign-in has what a run can go on with.
func (b *Book) IsThere(p Provider) (bool, error) {
	k, err := b.readFor(p)
	return k.status(time.Now()) == Authorized, err
}

// Known is the access token that is kept, whether it can be used or not; "" where there is none.
func (b *Book) Known(p Provider) (string, error) {
	k, err := b.readFor(p)
	b.tell(k)
	return k.Access, err
}
