// Package gemini implements the adapter for Google's Gemini models, with streamed generateContent
// requests.
//
// # Design
//
// The arguments of a tool are described in the API's subset of the OpenAPI schema if possible. The
// subset has no objects without properties and no values of any type, and the API rejects unknown
// keywords. Other tools are described in JSON Schema, which the API also accepts. Each tool uses
// one of the two formats.
//
// Calls and results are matched by order, number and id. The API may omit the id. In that case
// package wire generates one, which is sent with the call and its result. Results are objects. A
// result that looks like a schema reference is sent as text, because the API would resolve it.
//
// Parts have a thought signature, and must be sent back with it, part by part. Signatures are
// stored as opaque parts (see wire.Part). Calls of other models have no signature. If the API
// insists on one, they get the API's placeholder.
//
// A call always arrives in one chunk. The retry delay is in the body of an error, and package wire
// reads it there. The key is sent in a header, never in the URL.
//
// Requests and answers are encoded and decoded here, as in package openai. The client of the SDK is
// used only in tests, because it depends on gRPC and Google's authentication.
package gemini
