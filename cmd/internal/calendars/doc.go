// Package calendars fetches the calendars of a configuration that have an address, and keeps what came: whatever becomes of their
// servers, jobs go on by the copy that is kept.
//
// # Design
//
// A calendar has two files in the folder of a store: NAME.HASH.ics, as it came, and NAME.HASH.json, which says when. The hash is that of
// its address, which may be a secret: what came from another one does not count, and is removed when the new one has come. Only what was
// understood replaces a copy, so that a page that asks for a login never does. Requests go out as those of web_fetch do: to addresses of the internet, or of the owner's network where
// the configuration says so, whatever a name or a redirect leads to.
package calendars
