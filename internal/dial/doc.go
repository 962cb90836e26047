// Package dial connects to addresses from untrusted sources: redirects, server metadata, calendars
// and skills. It allows only the public internet and addresses from the configuration.
//
// The address is checked when connecting, after the name was resolved. An earlier check could be
// bypassed by changing the name's address in between. Addresses named by a configured server are
// checked like any other.
package dial
