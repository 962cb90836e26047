// Package modeltest is for tests that need a model: a server that answers from a script, with the
// APIs of OpenAI (chat completions and responses), Anthropic, Gemini and Ollama, and the suite
// that every adapter has to pass.
//
// # Design
//
// The path of a request decides which API it is. A script is the same for all of them: what a
// model is to answer, and what is to go wrong on the way. The server is as strict as the real ones
// where a client can get it wrong: an unknown path is 404, and a transcript with an unanswered
// call, or without the opaque data that has to be sent back, is 400. Calls are streamed in
// fragments and text rune by rune, because that is where clients break. The public clients of the
// four providers verify that its streams and its strictness are those of the real servers: they
// read what it sends, and it accepts what they send.
//
// The suite gives an adapter nothing but a Script: how it plays that is the adapter's business, and
// what it cannot play it skips, with the reason.
package modeltest
