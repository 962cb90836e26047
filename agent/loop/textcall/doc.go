// Package textcall reads tool calls that a model wrote as text.
//
// # Design
//
// Local models and servers without a parser for the chat template of a model return calls as text. Read takes such a
// text for calls only if the whole answer is calls in a known form: the tool exists and the arguments are a JSON object.
// A text that ends in a call, but cannot be read so strictly, is a fault: the caller asks the model again. Text that
// follows a call makes the answer a normal one, for example documentation.
//
// The package is pure.
package textcall
