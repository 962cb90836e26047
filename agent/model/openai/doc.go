// Package openai reaches OpenAI, and any server that speaks as it does: by chat completions
// (llama.cpp, vLLM, LM Studio, OpenRouter and many others) or by the Responses API.
//
// # Design
//
// A request has only the fields that every such server knows. Where servers differ (the
// name of the output limit, usage in a stream) the first guess is by the address, and a
// server that names the field it dislikes is asked once more without it.
//
// Responses keeps nothing on the server: each request has the whole conversation, and what
// the model thought between its calls goes back with it, encrypted. Chat completions lose
// that. Of a stream of Responses only items that the server ends count, whatever their
// pieces were.
//
// Requests and answers are encoded and decoded here: the SDK's typed chunks would add 20 MB
// to the binary and refuse what lenient servers send. Its client is used in tests, as the
// witness that both sides are spoken as they are meant. The way to the server and back,
// and the rule by which calls leave, is package wire's.
package openai
