// Package ollama reaches models on an Ollama server by its own chat API.
//
// # Design
//
// Its OpenAI-compatible API cannot set the size of the context, and silently cuts off the
// beginning of a conversation that does not fit: an agent forgets its instructions. Here the size
// is set, and the server is told to refuse rather than to truncate, so that too long a request
// is an error with its reason.
//
// How long a model stays in memory (keep_alive) and whether it thinks are left to the
// server, whose owner is the same person: what a request says would overrule the settings
// there, and a model that cannot think refuses to be asked to. Thinking goes back to the model,
// since such models go on from there between calls; it is stored as an opaque part.
//
// Calls come whole, in older versions without ids. The first byte of an answer can take long: the
// model is loaded first.
//
// Requests and answers are encoded and decoded here, as in package openai. The public
// client's types are used in tests.
package ollama
