// Package modeltest is for tests that need a model: a server that speaks from a script, in
// the words of OpenAI's chat completions and responses, Anthropic's messages, Gemini's generateContent or
// Ollama's chat, and the suite that every adapter has to pass.
//
// # Design
//
// The path of a request says which words are spoken. A script is the same for all of them:
// what a model is to answer, and what is to go wrong on the way. The server is as strict as
// the real ones where a client can be wrong about it: another path is 404, and a transcript
// with an unanswered call, or without what it gave along to be sent back, is 400. Calls are
// streamed in fragments and text rune by rune, because that is where clients break. That
// its streams and its strictness are those of the real ones, the public clients of the four
// bear witness: they read what it sends, and it takes what they send.
//
// The suite knows an adapter only by its Script: how the adapter comes to play it is the
// adapter's business, and what it cannot play it skips, saying why.
package modeltest
