// Package anthropic reaches Anthropic's models, and servers that speak its Messages API.
//
// # Design
//
// Answers are always streamed, since a proxy in between would time out during a long one. Tool
// results go back in one user message, before its text, because the API pairs them with the
// calls of the message before. Where the answer must be text, the tools are sent all the same
// and forbidden: a transcript with calls needs them, and a prefix that changes is not read from
// the cache.
//
// A run sends its history again with each step, so the prefix is marked for the provider's
// cache wherever there are tools: the system prompt with the tools before it, the end of
// this request, which the next step begins with, and that of the last one, in case more
// came between than the provider looks back.
//
// Thinking comes signed or encrypted, has to go back unchanged and in its place, and is of use to
// nobody else: it is stored as opaque parts (see wire.Part). If it is refused nevertheless,
// because the key or the record has changed, the request is sent without it.
//
// max_tokens is required. The default is what all current models accept. An older one names its
// limit in the error, and the request is repeated with that; so it is where a long history leaves
// less of the context for the answer.
//
// Requests and answers are encoded and decoded here, as in package openai. The SDK's client
// is used in tests.
package anthropic
