// Package anthropic reaches Anthropic's models, and servers that speak its Messages API.
//
// # Design
//
// An answer is always streamed, since long ones outlive what stands between. Results of
// tools go back in one message of the user, before anything else that it says, because the
// API pairs them with the calls of the message before. Where the answer must be text, the
// tools are sent all the same and forbidden: a transcript with calls needs them, and a
// prefix that changes is not read from the cache.
//
// A run sends its history again with each step, so the prefix is marked for the provider's
// cache wherever there are tools: the system prompt with the tools before it, the end of
// this request, which the next step begins with, and that of the last one, in case more
// came between than the provider looks back.
//
// What the model thought comes signed or encrypted, has to go back as it was, in its
// place, and is nothing that anybody else reads: it is kept as opaque parts (see
// wire.Part). Should it be refused nevertheless, because another key or a changed record
// stands between, the request is sent without it.
//
// max_tokens is required. The default is what all current models can write; an older one
// says how much less it takes, and is asked again; so is one that counts the answer to its
// context, which a long history leaves less of.
//
// Requests and answers are encoded and decoded here, as in package openai. The SDK's client
// is used in tests.
package anthropic
