// Package openai reaches any server that speaks OpenAI's chat completions: OpenAI itself,
// and llama.cpp, vLLM, LM Studio, OpenRouter and many others.
//
// # Design
//
// A request has only the fields that every such server knows. Where servers differ (the
// name of the output limit, usage in a stream) the first guess is by the address, and a
// server that names the field it dislikes is asked once more without it.
//
// An answer is read by what it is, not by what its headers say: a stream, one JSON
// document from a server that does not stream, an error inside a 200, or somebody's login
// page. Text goes on at once. Calls are put together from their fragments and go on only
// after the server has said that the answer is complete and every argument can be read:
// half a call never leaves this package.
//
// Transport retries are go-retryablehttp's, and happen before the first byte of an answer;
// what breaks later is a *model.Error, and repeating the turn is its reader's decision.
// Two clocks bound a turn: one for the whole, and one for silence, which runs only while
// the server is waited for. Nothing that is said of a failure holds the key.
//
// Of the SDK only the decoder of event streams is used: its typed chunks would add 20 MB
// to the binary and refuse what lenient servers send.
package openai
