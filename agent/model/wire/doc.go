// Package wire is what the adapters of model servers share: the way to a server and back.
//
// # Design
//
// An adapter says what its kind of server wants to be told (a Dialect, and for each turn an
// Exchange); everything that is the same for all of them is here, and nothing else.
//
// Transport retries are go-retryablehttp's, and happen before the first byte of an answer;
// what breaks later is a *model.Error, and repeating the turn is its reader's decision.
// Two clocks bound a turn: one for the whole, and one for silence, which runs only while
// the server is waited for. Nothing that is said of a failure holds the key.
//
// An answer is read by what it is, not by what its headers say: a stream, one JSON
// document from a server that does not stream, an error inside a 200, or somebody's login
// page. Text goes on at once. Calls are put together from their fragments and go on only
// after the server has said that the answer is complete and every argument can be read:
// half a call never leaves this package. What an answer cost is told when it is complete,
// also when it cannot be used.
//
// A request holds the whole conversation, so what was written for the last one is kept in
// the conversation's model.Draft and sent again: a step writes only what is new (Draft, Body).
//
// What a provider wants back with its own words (signatures of what it thought) is kept in
// model.Message.Raw beside the neutral message, as a list that points into it: whoever
// shortens or cleans the message does so for every adapter.
package wire
