// Package noexec marks work that must start no program: answering a request that only looks, or any request that came over the
// network.
//
// The mark is set in one place, where a daemon takes requests, and is read in one place, where the sandbox starts a program
// (agent/sandbox). A handler that is added later is held by it without knowing of it.
package noexec

import (
	"context"
	"errors"
	"net/http"
)

// Err is why a program was not started.
var Err = errors.New("a request that only looks, or that came over the network, starts no program; use a command of rouse on its machine")

type key struct{}

// With returns a context in which no program is started.
func With(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Is reports whether no program may be started.
func Is(ctx context.Context) bool { return ctx.Value(key{}) != nil }

// Handler marks all requests that next answers.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r.WithContext(With(r.Context()))) })
}

// Gets marks the requests that only look.
func Gets(next http.Handler) http.Handler {
	marked := Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			marked.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
