// Package dial connects to addresses that others name: redirects, metadata of servers, calendars, skills.
//
// The address is judged when the connection is made, after its name was resolved. An earlier check would leave time to
// change the address of the name. Connections go to the public internet only. A host and port that the owner wrote into
// the configuration is the exception. Everything that such a server names is judged like any other address.
package dial
