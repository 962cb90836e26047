package daemon

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"

	"rouse/agent/tool/host/signin"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/secret"
	"rouse/internal/text"
)

// signInStore keeps sign-ins as the secrets of the home are kept, and apart from them: no configuration can name one.
type signInStore struct {
	home string

	mu    sync.Mutex
	store *secret.Store // nil until it is used, and after it failed: a keyring may answer later
}

// with does something with the store.
func (s *signInStore) with(do func(*secret.Store) error) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store == nil {
		if s.store, err = secret.New(secret.Options{Home: s.home, Collection: "sign-ins"}); err != nil {
			return err
		}
	}

	err = do(s.store)
	if errors.Is(err, secret.ErrNotSet) {
		return signin.ErrNone
	}
	if err != nil {
		s.store = nil
	}
	return err
}

// Get implements signin.Store.
func (s *signInStore) Get(name string) (value string, err error) {
	return value, s.with(func(store *secret.Store) (err error) {
		value, _, err = store.Get(name)
		return err
	})
}

// Set implements signin.Store.
func (s *signInStore) Set(name, value string) error {
	return s.with(func(store *secret.Store) error {
		_, _, err := store.Set(name, value, "")
		return err
	})
}

// Remove implements signin.Store.
func (s *signInStore) Remove(name string) error {
	return s.with(func(store *secret.Store) error {
		_, err := store.Remove(name)
		return err
	})
}

// Names implements signin.Store.
func (s *signInStore) Names() (names []string, err error) {
	return names, s.with(func(store *secret.Store) error {
		kept, err := store.List()
		names = slices.Sorted(maps.Keys(kept))
		return err
	})
}

// SignIns implements web.Backend.
func (d *Daemon) SignIns(context.Context) ([]api.SignIn, error) {
	kept, err := d.runner.SignIns()
	out := []api.SignIn{}
	for _, k := range kept {
		out = append(out, api.SignIn{Name: k.String(), Agent: k.Agent, Skill: k.Skill, Provider: k.Provider, Service: k.Service, Status: string(k.Status),
			Scopes: append([]string{}, k.Scopes...), Since: api.At(k.Since), ExpiresAt: api.At(k.Expires), Renews: k.Renews, Waiting: k.Waiting})
	}
	return out, err
}

// RemoveSignIn implements web.Backend.
func (d *Daemon) RemoveSignIn(ctx context.Context, name string) error {
	id, ok := signin.ParseID(name)
	if !ok {
		return &api.Error{Status: http.StatusBadRequest, Message: "a sign-in is named as AGENT/SKILL/PROVIDER; see: rouse skills sign-ins", Usage: true}
	}

	err := d.runner.RemoveSignIn(ctx, id)
	if !errors.Is(err, signin.ErrNone) {
		return err
	}
	kept, err := d.runner.SignIns()
	if err != nil {
		return err
	}
	var names []string
	for _, k := range kept {
		names = append(names, k.String())
	}
	return &api.Error{Status: http.StatusNotFound, Message: text.NoSuch("sign-in", name, names), Usage: true}
}

// SignInLink implements web.Backend.
func (d *Daemon) SignInLink(ctx context.Context, i ledger.Item) (string, error) {
	return d.runner.SignInLink(ctx, i)
}

// AnswerSignIn implements web.Backend.
func (d *Daemon) AnswerSignIn(ctx context.Context, i ledger.Item, pasted string) (taken bool, err error) {
	return d.runner.AnswerSignIn(ctx, i, pasted)
}
