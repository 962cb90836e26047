// Package wire implements the transport, stream parsing and completeness rules shared by the
// adapters of model servers.
//
// # Design
//
// An adapter describes its kind of server in a Dialect, and encodes and decodes the messages of
// each turn in an Exchange. A new adapter has four parts: New, which passes a Dialect to wire.New;
// EncodeRequest; Decode, which fills an Accumulator; and Adapt, which handles features that some
// servers do not support. Package ollama is the smallest adapter.
//
// The transport retries only before the first byte of an answer. Later failures are returned as a
// *model.Error, and the caller decides whether to repeat the turn. A turn has two timeouts: one for
// the whole turn, and one for a server that sends nothing. Error messages do not contain the key.
//
// The format of an answer is detected from its content, not from its headers. It is a stream, one
// JSON document, an error with status 200, or a login page. Text is emitted at once. Calls are
// emitted only after the server has completed the answer and all arguments were parsed.
//
// Opaque data that a provider expects back, such as reasoning signatures, is stored in
// model.Message.Raw. Its parts refer to the neutral message (see Part).
package wire
