// Package openai implements the adapters for OpenAI and compatible servers. Its two adapters use
// the chat completions API and the Responses API. Many servers have the former, for example
// llama.cpp, vLLM, LM Studio and OpenRouter.
//
// # Design
//
// A request has only fields that every such server knows. Servers differ in the name of the output
// limit and in usage in a stream. The adapter guesses from the host, and repeats a rejected request
// without the field.
//
// Requests to the Responses API are not stored on the server. Each request has the whole
// conversation, including the encrypted reasoning between calls. Chat completions lose the
// reasoning. From a stream of the Responses API only finished items are used, regardless of their
// deltas.
//
// Requests and answers are encoded and decoded here. The SDK's typed chunks would enlarge the
// binary and reject answers of lenient servers. Tests use the SDK's client to verify both
// directions. Package wire has the transport and the rules for complete answers.
package openai
