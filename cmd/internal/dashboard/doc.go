// Package dashboard serves the web pages of a home: past and future runs, waiting items, and the
// details of each run.
//
// # Design
//
// Pages are rendered on the server from the same data as the API /v1 (web.Server), so the two
// cannot differ. The templates use templ. The generated files are committed, and .ci/run checks
// that they are current.
//
// Forms are plain HTML forms. A successful post redirects with 303 to the result; otherwise a page
// shows the errors. Forms need no CSRF token because the caller of New accepts only same-origin
// requests.
//
// The only script (assets/app.js) handles keys and live updates. /live signals that something has
// happened. The script then fetches the current page again and replaces the parts that changed.
//
// Texts from models, files and rows are untrusted. Templates escape them, isolate their writing
// direction with <bdi>, make control characters visible, and truncate them. A truncated text has a
// link to the full text as text/plain. Pages contain no inline scripts, styles or handlers, so a
// strict Content-Security-Policy applies.
package dashboard
