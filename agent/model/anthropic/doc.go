// Package anthropic implements the adapter for Anthropic's models and servers with its Messages
// API.
//
// # Design
//
// Answers are always streamed, because a proxy could time out during a long answer. Tool results
// are sent in one user message, before its text: the API pairs them with the calls of the previous
// message. If the answer must be text, the tools are sent anyway and their use is forbidden. A
// transcript with calls needs them, and a changed prefix would not be found in the cache.
//
// A run sends its history again with each step. With tools, the request therefore marks three
// positions for the provider's cache. They are the system prompt including the tools, the end of
// this request, and the end of the previous request. The last mark is needed if more content was
// added than the provider looks back.
//
// Reasoning ("thinking") is signed or encrypted, and must be sent back unchanged and in its
// position. Other providers cannot use it, so it is stored as opaque parts (see wire.Part). If the
// server rejects it, because the key or the record has changed, the request is repeated without it.
//
// max_tokens is required. All current models accept the default. If an older model rejects it, the
// request is repeated with the limit from the error. The same happens if a long history leaves less
// of the context for the answer.
//
// Requests and answers are encoded and decoded here, as in package openai. Tests use the client of
// the SDK.
package anthropic
