package shell

import (
	"fmt"
	"path"
	"strings"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/internal/text"
)

// maxName is how much of a name is shown, in characters.
const maxName = 40

// name returns what runs, in a word: the script of an interpreter, the program behind its wrappers,
// or the beginning of a script.
func (l commandLine) name() string {
	if l.argv == nil {
		return text.Truncate(text.Collapse(text.OneLine(l.script)), maxName)
	}

	name := l.argv[min(wrapperWords(l.argv), len(l.argv)-1)]
	if scripts := Scripts(l.argv); len(scripts) > 0 {
		name = scripts[len(scripts)-1]
	}
	return text.Truncate(text.OneLine(path.Base(name)), maxName)
}

// envelope returns the answer of a call. result is r in one of its forms.
func (r runResult) envelope(result any, mustSucceed bool, warnings []string) tool.Envelope {
	done := tool.Success(result, warnings...)
	if !mustSucceed || r.ExitCode == 0 && r.KilledBy == "" {
		return done
	}

	kind := tool.KindExecutionError
	if r.KilledBy == sandbox.KilledByIdle || r.KilledBy == sandbox.KilledByWall {
		kind = tool.KindTimeout
	}

	e := tool.Failure(kind, "%s", r.failure())
	e.Result, e.Warnings = done.Result, done.Warnings
	return e
}

// failure describes how a program failed, with the end of its output.
func (r runResult) failure() string {
	ending := fmt.Sprintf("exit %d", r.ExitCode)
	switch {
	case r.KilledBy != "":
		ending = "ended by " + strings.ReplaceAll(r.KilledBy, "_", " ")
	case r.Signal != "":
		ending = "ended by the signal " + r.Signal
	}

	failure := fmt.Sprintf("%s: %s, %s", r.Program, ending, text.Plural(r.Lines, "line")) + text.LastOf(r.Stdout, r.Stderr)
	if r.hint != "" {
		failure += "; " + r.hint
	}
	return failure
}
