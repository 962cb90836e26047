// Package calendars fetches the calendars that the configuration names by URL and keeps local
// copies. If a server is unavailable, jobs continue to use the copy.
//
// # Design
//
// A calendar has two files: NAME.HASH.ics with the content, and NAME.HASH.json with the metadata.
// HASH identifies the URL without revealing it, because it may be a secret. A copy from a previous
// URL is not used. It is removed when the new URL has been fetched.
//
// A copy is replaced only by a valid calendar, never by a login page. Requests follow the rules of
// web_fetch, also after redirects: they reach internet addresses, and the owner's network only if
// the configuration allows it.
package calendars
