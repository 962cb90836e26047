// Package wire is what the adapters of model servers share: the transport, the reading of
// streams, and the rules by which an answer is complete.
//
// # Design
//
// An adapter describes its kind of server (a Dialect), and encodes and decodes its messages (an
// Exchange for each turn). A new adapter is four things: New, which gives a Dialect to wire.New;
// EncodeRequest; Decode, which fills an Accumulator; and Adapt, for what some servers of the kind
// do not support. Package ollama is the smallest one.
//
// Transport retries happen before the first byte of an answer. What breaks later is a
// *model.Error, and the caller decides whether to repeat the turn. Two timeouts bound a turn: one
// for the whole, and one for a server that sends nothing. No error message holds the key.
//
// An answer is read by what it is, not by what its headers say: a stream, one JSON document, an
// error inside a 200, or a login page. Text is emitted at once. Calls are emitted only after the
// server has said that the answer is complete and all arguments could be parsed.
//
// What a provider wants back with its answer (signatures of its reasoning) is stored in
// model.Message.Raw, as parts that refer to the neutral message (Part).
package wire
