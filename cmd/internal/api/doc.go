// Package api is the one protocol of rouse as a client sees it: the types of HTTP /v1 and a client
// that speaks it with a daemon, or with a handler of the same process (InProcess), so that every
// verb has one code path.
//
// The types are what `--json` prints: ids are strings, times RFC 3339 UTC with milliseconds, a
// time that has not come is null. cmd/internal/web serves them.
package api
