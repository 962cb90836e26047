// Package api defines the types of the HTTP API /v1 and a client for it. The client calls a daemon,
// or a handler in the same process (InProcess), so that commands need only one code path.
//
// The types are also the output of `--json`. IDs are strings. Times are RFC 3339 in UTC with
// milliseconds, or null if not set. Package cmd/internal/web implements the API.
package api
