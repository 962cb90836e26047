package web

import (
	"net/http"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

// idempotencyKey is the header by which a client names a request, so that it can send it again when it has heard no answer.
const idempotencyKey = "Idempotency-Key"

// maxKey bounds such a name, in bytes.
const maxKey = 200

// once has a route heed an Idempotency-Key.
func (r Route) once() Route {
	r.Header = append(r.Header, Param{Name: idempotencyKey, Kind: ParamText, Says: "1 to 200 plain characters: the same request with the same key is the same run, as long as that is kept"})
	return r
}

// readKey reads the Idempotency-Key of a request for a run, if it has one.
func readKey(r *http.Request, in *api.RunRequest) error {
	keys := r.Header.Values(idempotencyKey)
	if len(keys) == 0 {
		return nil
	}
	if len(keys) > 1 || keys[0] == "" || !text.IsPlain(keys[0], maxKey) {
		return usage("%s must be given once, with 1 to %d plain characters", idempotencyKey, maxKey)
	}
	in.Key = keys[0]
	return nil
}
