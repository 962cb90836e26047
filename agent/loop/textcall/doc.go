// Package textcall parses tool calls that a model wrote as text.
//
// # Design
//
// Local models, and servers without a parser for the model's chat template, return calls as text.
// Read accepts a text as calls only if the whole answer consists of calls in a known form. The tool
// must exist and the arguments must be a JSON object. A text that ends in a call but cannot be
// parsed this strictly is a fault. The caller then asks the model again. If text follows a call,
// the answer is a normal one, for example documentation.
//
// The package is pure.
package textcall
