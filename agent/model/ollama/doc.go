// Package ollama reaches models on an Ollama server by its own chat API.
//
// # Design
//
// Its OpenAI-compatible API cannot set the size of the context, and cuts off the beginning
// of a conversation that does not fit without a word: an agent forgets its orders. Here the
// size is set, and the server is told to refuse rather than to cut, so that too long a
// request is an error with its reason.
//
// How long a model stays in memory (keep_alive) and whether it thinks are left to the
// server, whose owner is the same person: what a request says would overrule the settings
// there, and a model that cannot think refuses to be asked to. What it thought goes back to
// it, since such models go on from there between calls; it is kept as an opaque part.
//
// Calls come whole, in older versions without ids. The first byte of an answer can be long
// in coming: the model is loaded first.
//
// Requests and answers are encoded and decoded here, as in package openai. The public
// client's types are used in tests.
package ollama
