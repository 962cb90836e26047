// Package gemini reaches Google's Gemini models by generateContent, streamed.
//
// # Design
//
// Arguments are described in the API's subset of OpenAPI's schema where that can say what
// the tool means. It has no free objects and no values of any type, and a request with a keyword
// that it does not know is refused; such tools are described in JSON Schema instead, which the
// API also accepts, each tool in one of the two.
//
// Calls and results are paired by their order and number, and by an id, which the API may
// leave out: the one that package wire generates is sent with both. Results are objects; one that
// contains what looks like a reference of a schema goes as text, because the API would follow it.
//
// Parts carry a thought signature, and have to go back with it, part by part: signatures are
// stored as opaque parts (see wire.Part). A call of another model has none; where the API insists
// on one, it gets the placeholder that the API has for this.
//
// A call comes whole or not at all. A retry delay is in the body of the error, where package wire
// finds it. The key goes in a header, never in the URL.
//
// Requests and answers are encoded and decoded here, as in package openai. The SDK's client
// is used in tests; it would bring gRPC and Google's authentication with it.
package gemini
