// Package gemini reaches Google's Gemini models by generateContent, streamed.
//
// # Design
//
// Arguments are described in the API's subset of OpenAPI's schema where that can say what
// the tool means. It knows no free objects and no values of any type, and refuses a request
// with a word that it does not know; such tools are described in JSON Schema instead, which
// the API also takes, and each tool in one of the two.
//
// Calls and results are paired by their order and number, and by an id, which the API may
// leave out: the one that is made up here goes back with both. Results are objects; one
// that holds what looks like a reference of a schema goes as text, because the API would
// follow it.
//
// Parts are signed by what the model thought, and have to go back with their signature,
// part by part: those are kept as opaque parts (see wire.Part). A call that another model
// made has none; where the API insists, it gets the value that the API has for this.
//
// A call comes whole or not at all. A pause that is asked for stands in the body, where
// package wire finds it. The key goes in a header, never in the address.
//
// Requests and answers are encoded and decoded here, as in package openai. The SDK's client
// is used in tests; it would bring gRPC and Google's authentication with it.
package gemini
