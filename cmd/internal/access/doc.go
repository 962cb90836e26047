// Package access lets in who may ask rouse over a network address, and nobody else: programs by a token, browsers
// by a session that a one-time link has begun. It knows nothing of what is asked behind it.
//
// # Design
//
// A page of a stranger can have a browser send requests to an address of this machine. So each request is looked at in
// this order, whatever it asks for, and the first thing that is wrong ends it:
//
//  1. Host must be one of the addresses by which browsers know rouse, with its port: else a name that a stranger lets
//     lead here (DNS rebinding) would make his page one of ours. 421.
//  2. Where that address is a proxy's, the request comes from the proxy and carries its header. 403.
//  3. Origin and Sec-Fetch-Site must say that no other page sends it. 403.
//  4. The token or a session must be there. 401. Nothing in a query counts but the code of /login, which is used up
//     by its first use.
//
// Both the token and the sessions lie in one folder of the home, which the daemon alone writes: the token as it is,
// for its owner to read, of sessions only hashes.
package access
