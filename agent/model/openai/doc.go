// Package openai reaches any server that speaks OpenAI's chat completions: OpenAI itself,
// and llama.cpp, vLLM, LM Studio, OpenRouter and others.
//
// # Design
//
// The request is encoded here, with the fields that every such server knows; the stream is
// decoded with the SDK's types. Transport retries are go-retryablehttp's, before the first
// byte of an answer only; a stream that breaks later is an error that the loop may retry.
// Calls are put together from their fragments and are sent on only after the server said
// that the answer is complete, so half a call is never executed.
//
// Two clocks bound a turn: one for the whole, and one that starts anew with every byte.
package openai
