// Package signin signs skills in to services with OAuth and stores their tokens. It supports
// authorization_code with PKCE (RFC 7636), for which the owner signs in with a browser, and
// client_credentials.
//
// A sign-in belongs to one agent, one skill and one provider of the manifest. It is stored as one
// value among the owner's secrets. Ledgers, logs and records never contain a token, a state or a
// verifier. A sign-in is valid only for the addresses, scopes and client that it was made with. If
// the manifest changes them, a new sign-in is needed, so that tokens are not sent to another
// service.
//
// Operations on one sign-in are serialized, so that concurrent runs refresh an expired token only
// once. A state is removed from the store before its code is sent, and a token is stored before it
// is used. So a code is never used twice, even after a crash.
package signin
