// Package cases plays the cases of an executable skill: files of JSON beside its module that say what it is given, and what has to
// come of it (`rouse skills test`).
//
// # Design
//
// A case is played as a run: by the production runner, with a ledger, a machine and a working folder of its own, in a world (eval.World).
// What the skill asks of its model the case answers, by what the request contains; what it asks of its owner the case answers, by
// the title. The agent is granted the files of the case and nothing else, no network above all: so what is played does not depend
// on the machine, and may be written by a stranger. Programs that a case lists are another matter: they are run, and only
// where the caller has allowed it (Options.Commands).
package cases
