// Package modeltest provides a scripted model server for tests, and the suite that every adapter
// must pass. The server has the APIs of OpenAI (chat completions and responses), Anthropic, Gemini
// and Ollama.
//
// # Design
//
// The path of a request selects the API. A script works with all of them: it contains the answers
// of a model and the faults on the way. The server is as strict as the real ones. An unknown path
// is 404. A transcript with an unanswered call, or without the opaque data that must be sent back,
// is 400. Calls are streamed in fragments and text rune by rune, because clients often fail there.
// Tests with the public clients of the four providers verify the streams and the strictness in both
// directions.
//
// An adapter gets a Script from the suite and decides how to play it. It skips scripts that it
// cannot play, and gives the reason.
package modeltest
