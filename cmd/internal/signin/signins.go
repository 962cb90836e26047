// Package signin stores the sign-ins of skills as secrets of the home. It also receives the
// browsers that return from a sign-in.
package signin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"rouse/agent"
	"rouse/agent/tool/moduleapi/signin"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/secret"
)

// Store stores sign-ins like the secrets of the home, but in a separate collection. The
// configuration cannot refer to them.
type Store struct {
	Home string

	mu    sync.Mutex
	store *secret.Store // nil before the first use and after an error, because a keyring may answer later
}

// with opens the store if necessary and calls do with it.
func (s *Store) with(do func(*secret.Store) error) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store == nil {
		if s.store, err = secret.New(secret.Options{Home: s.Home, Collection: "sign-ins"}); err != nil {
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
func (s *Store) Get(name string) (value string, err error) {
	return value, s.with(func(store *secret.Store) (err error) {
		value, _, err = store.Get(name)
		return err
	})
}

// Set implements signin.Store.
func (s *Store) Set(name, value string) error {
	return s.with(func(store *secret.Store) error {
		_, _, err := store.Set(name, value, "")
		return err
	})
}

// Remove implements signin.Store.
func (s *Store) Remove(name string) error {
	return s.with(func(store *secret.Store) error {
		_, err := store.Remove(name)
		return err
	})
}

// Names implements signin.Store.
func (s *Store) Names() (names []string, err error) {
	return names, s.with(func(store *secret.Store) error {
		kept, err := store.List()
		names = slices.Sorted(maps.Keys(kept))
		return err
	})
}

// stopFor is the timeout for running requests when Redirects stops.
const stopFor = 2 * time.Second

// settleEvery is the interval of checks for runs that wait for a completed sign-in.
const settleEvery = time.Minute

// Redirects listens on this machine for browsers that return from a sign-in. It starts listening
// with the first link.
type Redirects struct {
	Listens bool               // this process is a daemon, which can wait for browsers
	Setup   func() *plan.Setup // returns the current configuration
	Runner  *agent.Runner      // must be set before Run and before the first link
	Logger  *slog.Logger

	mu     sync.Mutex
	base   string // for example http://127.0.0.1:4711; empty before the first use
	host   string // host of base
	server *http.Server
}

// Address returns the URL that browsers are redirected to. In a command, the owner pastes the
// browser's address as the answer.
func (r *Redirects) Address(ctx context.Context) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.base != "" {
		return r.base, nil
	}

	listener, port, err := r.open(ctx)
	if err != nil {
		return "", err
	}
	r.host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	r.base = "http://" + r.host
	switch {
	case listener == nil:
		r.Logger.Warn("nobody can listen for browsers that come back from a sign-in, so the address that they are sent to has to be given as the answer", "address", r.base)
	case !r.Listens:
		return r.base, listener.Close() // only the port is needed
	default:
		r.server = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, MaxHeaderBytes: 32 << 10}
		go func(server *http.Server) {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				r.Logger.Error("browsers that come back from a sign-in are not heard any more", "error", err)
			}
		}(r.server)
	}
	return r.base, nil
}

// open listens on the configured port, on a port of earlier links, or on any port. If the
// configured port is in use, it returns a nil listener.
func (r *Redirects) open(ctx context.Context) (net.Listener, int, error) {
	configured := r.Setup().Config.Skills.Port()
	ports := []int{configured}
	if configured == 0 {
		ports = append(r.given(), 0)
	}
	for _, port := range ports {
		var l net.ListenConfig
		if listener, err := l.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return listener, listener.Addr().(*net.TCPAddr).Port, nil
		}
	}
	if configured != 0 {
		return nil, configured, nil // the owner can paste the answer
	}
	return nil, 0, errors.New("no port of this machine is free for a sign-in")
}

// given returns the ports of unused links.
func (r *Redirects) given() (ports []int) {
	all, err := r.Runner.SignIns.Redirects()
	if err != nil {
		r.Logger.Warn("the sign-ins that wait cannot be read", "error", err)
	}
	for _, one := range all {
		if u, err := url.Parse(one); err == nil {
			if port, err := strconv.Atoi(u.Port()); err == nil {
				ports = append(ports, port)
			}
		}
	}
	return ports
}

// Run listens for browsers if there are unused links. It also resumes runs if their sign-in was
// completed without a notification. It returns when ctx is done.
func (r *Redirects) Run(ctx context.Context) error {
	if len(r.given()) > 0 {
		if _, err := r.Address(ctx); err != nil {
			r.Logger.Error("browsers that come back from a sign-in are not heard", "error", err)
		}
	}

	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for {
		if err := r.Runner.SignIns.Settle(ctx); err != nil && ctx.Err() == nil {
			r.Logger.Error("runs that wait for a sign-in may wait on", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return r.Stop(ctx)
		}
	}
}

// Stop shuts down the server after the running requests.
func (r *Redirects) Stop(ctx context.Context) error {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopFor)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server == nil {
		return nil
	}
	if err := r.server.Shutdown(closing); err != nil {
		return r.server.Close()
	}
	return nil
}

// Pages for the browser. They contain no part of a request.
const (
	page          = `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>rouse</title><p>%s</p></html>` + "\n"
	pageSignedIn  = "You are signed in, and the run goes on. You can close this page."
	pageNobody    = "Nobody waits for this. The link in rouse inbox is the one to open."
	pageNotSigned = "The sign-in did not succeed. The log of rouse says why; rouse inbox has a new link."
)

// ServeHTTP answers browsers that return from a sign-in, and rejects all other requests.
func (r *Redirects) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	say := func(status int, text string) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, fmt.Sprintf(page, text)) // ignore the error of a closed page
	}
	for name, value := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
	} {
		w.Header().Set(name, value)
	}

	// Another host name indicates DNS rebinding. A subresource request is not a redirected browser.
	dest := q.Header.Get("Sec-Fetch-Dest")
	if q.Host != r.host || q.Method != http.MethodGet || dest != "" && dest != "document" {
		say(http.StatusForbidden, pageNobody)
		return
	}
	reply, err := signin.ReplyOf(q.URL.Path, q.URL.Query())
	if err != nil {
		say(http.StatusNotFound, pageNobody)
		return
	}

	// If the browser disconnects, the state is used up nevertheless.
	err = r.Runner.SignIns.Finish(context.WithoutCancel(q.Context()), reply)
	switch {
	case errors.Is(err, signin.ErrNoState):
		say(http.StatusNotFound, pageNobody)
	case err != nil:
		r.Logger.Warn("a sign-in for a skill did not succeed", "error", err)
		say(http.StatusBadGateway, pageNotSigned)
	default:
		say(http.StatusOK, pageSignedIn)
	}
}
