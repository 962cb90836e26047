// Package signin signs skills in where their owner lets them, and keeps what came of it: with a code that the owner's browser brings
// (authorization_code with PKCE, RFC 7636), or with the client's own secret (client_credentials) (OSL-33).
//
// # Design
//
// A sign-in belongs to one agent, one skill and one provider of its manifest. It is kept as one value in the store of the
// owner's secrets, and nowhere else: no ledger, log or record has a token, a state or a verifier. It holds for the service it was
// made with (addresses, scopes, client): a manifest that names another one begins without it, so that no token goes to
// whom it is not from.
//
// All that is done with one sign-in is done one after the other: runs that find an expired token at the same time
// refresh it once. A state is gone from the store before its code is sent, and a token is there before anybody goes on with it, so that a
// process which dies in between has spent nothing twice.
package signin
