// Package ollama implements the adapter for Ollama servers, with Ollama's own chat API.
//
// # Design
//
// Ollama's OpenAI-compatible API cannot set the size of the context. It silently cuts off the
// beginning of a conversation that does not fit, so that an agent loses its instructions. This
// adapter sets the size, and asks the server to reject requests that are too long.
//
// The server's settings decide how long a model stays in memory (keep_alive) and whether it thinks.
// A request would override these settings, and a model without thinking rejects the option.
// Thinking is sent back, because models continue it between calls. It is stored as an opaque part.
//
// Each call arrives in one chunk, in older versions without an id. The first byte of an answer can
// take long, because the server first loads the model.
//
// Requests and answers are encoded and decoded here, as in package openai. Tests use the types of
// the public client.
package ollama
