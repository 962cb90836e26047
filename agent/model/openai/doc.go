// Package openai reaches any server that speaks OpenAI's chat completions: OpenAI itself,
// and llama.cpp, vLLM, LM Studio, OpenRouter and many others.
//
// # Design
//
// A request has only the fields that every such server knows. Where servers differ (the
// name of the output limit, usage in a stream) the first guess is by the address, and a
// server that names the field it dislikes is asked once more without it.
//
// Requests and answers are encoded and decoded here: the SDK's typed chunks would add 20 MB
// to the binary and refuse what lenient servers send. Its client is used in tests, as the
// witness that both sides are spoken as they are meant. The way to the server and back,
// and the rule by which calls leave, is package wire's.
package openai
