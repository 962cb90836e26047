package access

import (
	"context"
	"net/http"

	"rouse/cmd/internal/api"
	"rouse/internal/noexec"
)

type fromNetwork struct{}

// FromNetwork marks the requests of a handler as requests that did not use the socket of the home.
func FromNetwork(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(noexec.With(context.WithValue(r.Context(), fromNetwork{}, true))))
	})
}

// OnNetwork reports whether a request came by FromNetwork.
func OnNetwork(ctx context.Context) bool { return ctx.Value(fromNetwork{}) != nil }

// LocalPath returns a path at which the daemon reads or writes a file. Only requests on the socket
// of the home, which come from the owner's commands, can name such a path.
func LocalPath(ctx context.Context, path api.Path) (string, error) {
	if path == "" || !OnNetwork(ctx) {
		return string(path), nil
	}
	return "", &api.Error{Status: http.StatusForbidden, Message: "a path of the machine of rouse is given on that machine alone: rouse db, rouse ledger"}
}
