// Package dashboard shows a home as pages: what ran and what will, what waits for a person, and what became of
// each run.
//
// # Design
//
// A page is made on the server from the same answers that /v1 gives (web.Server), so the two never differ. Its
// templates are templ's, whose generated files are committed; .ci/run compares them. A form is a real form: it
// posts, and is answered with 303 to the page that shows what came of it, or with a page that says what was
// wrong. No token is in a form, because whoever mounts the pages lets only requests of their own origin in.
//
// The one script (assets/app.js) is for keys, and for live parts: /live says that something has happened, and
// nothing else; the script then asks for the page that it is on, and replaces those parts of it that changed.
//
// What models, files and rows say is data. A template escapes it, <bdi> keeps the direction of its writing to
// itself, control characters are made visible, and it is cut: beside a text that was cut stands a link to all of
// it, as text/plain. There is no script, style or handler within a page, so the strictest policy holds for it.
package dashboard
