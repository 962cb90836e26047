// Package noexec marks requests that must not start programs: read-only requests, and all requests
// from the network.
//
// The daemon sets the mark when it accepts a request, and the sandbox checks it before it starts a
// program. So the rule also applies to handlers that are added later.
package noexec

import (
	"context"
	"errors"
	"net/http"
)

// Err is returned if a marked request would start a program.
var Err = errors.New("a request that only looks, or that came over the network, starts no program; use a command of rouse on its machine")

type key struct{}

// With returns a context that must not start programs.
func With(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Is reports whether the context must not start programs.
func Is(ctx context.Context) bool { return ctx.Value(key{}) != nil }

// Handler marks all requests to next.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r.WithContext(With(r.Context()))) })
}

// Gets marks GET and HEAD requests to next.
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
