// Package openai reaches OpenAI, and any server with an API like it: by chat completions
// (llama.cpp, vLLM, LM Studio, OpenRouter and many others) or by the Responses API.
//
// # Design
//
// A request has only the fields that every such server knows. Where servers differ (the
// name of the output limit, usage in a stream) the first guess is by the host, and a request that
// is refused for a field is repeated without it.
//
// Responses stores nothing on the server: each request has the whole conversation, and the
// reasoning between the calls goes back with it, encrypted. Chat completions lose that. Of a
// stream of Responses only finished items count, whatever their deltas were.
//
// Requests and answers are encoded and decoded here: the SDK's typed chunks would add 20 MB
// to the binary and refuse what lenient servers send. Its client is used in tests, to verify both
// directions. Transport, and the rules by which an answer is complete, are package wire's.
package openai
