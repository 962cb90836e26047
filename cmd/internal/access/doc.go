// Package access authenticates requests over the network: programs use a token, browsers a session
// that starts with a one-time link.
//
// # Design
//
// A web page of a stranger can make a browser send requests to this machine. Every request is
// therefore checked in this order, and the first failure ends it:
//
//  1. Host must be one of the configured addresses, including the port. Otherwise a DNS name that
//     points here (DNS rebinding) could make the stranger's page appear to be ours. 421.
//  2. If the address belongs to a proxy, the request must come from the proxy with its header. 403.
//  3. Origin and Sec-Fetch-Site must show that no other site caused the request. 403.
//  4. The request must have the token or a session. 401. Query parameters do not count, except the
//     code of /login, which works only once.
//
// The token and the sessions are stored in one directory of the home that only the daemon writes
// to. The token is stored in plain text for its owner; of a session, only a hash of its cookie is
// stored.
package access
