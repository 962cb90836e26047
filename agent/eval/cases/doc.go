// Package cases runs the test cases of an executable skill (`rouse skills test`). A case is a JSON
// file beside the module, with its input and the expected results.
//
// # Design
//
// A case is run by the production runner in a world (eval.World), with its own ledger and working
// folder. The case contains the answers of the model, selected by texts in the request. It also
// contains the owner's replies, selected by the title of the inbox item. The agent has access only
// to the files of the case, and no network. The result therefore does not depend on the machine,
// and cases from untrusted sources can be run. The exception are programs listed in a case: they
// are executed, but only if the caller allows it (Options.Commands).
package cases
