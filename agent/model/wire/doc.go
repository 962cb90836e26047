// Package wire is what the adapters of model servers share: the transport, the reading of
// streams, and the rules by which an answer is complete.
//
// # Design
//
// An adapter describes its kind of server (a Dialect) and encodes and decodes its messages (an
// Exchange for each turn); everything that is the same for all of them is here, and nothing
// else. A new adapter is four things: New, which gives a Dialect to wire.New; EncodeRequest,
// with a BodyBuilder; Decode, which fills an Accumulator; and Adapt, for what some servers of
// the kind do not support. Package ollama is the smallest one.
//
// Transport retries are go-retryablehttp's, and happen before the first byte of an answer;
// what breaks later is a *model.Error, and repeating the turn is the caller's decision. Two
// timeouts bound a turn: one for the whole, and one for a server that sends nothing, which runs
// only while the server is awaited. No error message holds the key.
//
// An answer is read by what it is, not by what its headers say: a stream, one JSON document from
// a server that does not stream, an error inside a 200, or somebody's login page. Text is emitted
// at once. Calls are put together from their fragments and emitted only after the server has said
// that the answer is complete and all arguments could be parsed: half a call never leaves this
// package. Usage is reported for a complete answer, also if it cannot be used.
//
// What a provider wants back with its answer (signatures of its reasoning) is stored in
// model.Message.Raw beside the neutral message, as parts that refer to it (Part): whoever
// shortens or redacts the message does so for every adapter.
package wire
