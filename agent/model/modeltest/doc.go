// Package modeltest is for tests that need a model: a server that speaks OpenAI's chat
// completions from a script, and the suite that every adapter has to pass.
//
// # Design
//
// The server is as strict as the real ones where a client can be wrong about it: another
// path is 404, and a transcript with an unanswered call is 400. Calls are streamed in
// fragments and text rune by rune, because that is where clients break.
//
// The suite knows an adapter only by its Script: how the adapter comes to play it is the
// adapter's business, and what it cannot play it skips, saying why.
package modeltest
