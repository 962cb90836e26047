package executor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/agent/sandbox"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// Limits of the stored output.
const (
	maxAnswer = 64 << 10 // characters
	maxStderr = 8 << 10
)

// geminiTurnLimit is the exit code with which Gemini CLI reports that its turns are used up.
const geminiTurnLimit = 53

// ending holds everything that is known about the end of a program.
type ending struct {
	reading        Reading
	final          bool // the final result arrived before the program ended
	ended          shell.Ended
	over           *bound // bound of the run for which the host stopped the program, or nil
	asJSON         bool
	network        bool
	argv0          string
	idle           time.Duration
	stdout, stderr string
	hint           string // access that the sandbox may have refused, or ""
	refused        string // access that git was refused in a program that did not fail, or ""
}

// conclude returns the result of a program according to the table in docs/guides/coding-agents.md.
// A success needs a result that is not empty and reports no failure, and an exit code of 0. After a
// final result, the way in which the program ends does not matter.
func (e ending) conclude() Result {
	r := e.reading
	if !e.asJSON {
		r.Dialect, r.Done = "text", true
		r.Text, r.Outcome, r.Question = splitWords(e.stdout, "", "")
		if r.Text != "" {
			r.Turns = 1
		}
	}

	res := Result{
		Program: e.argv0, Form: r.Dialect, Model: r.Model, Session: r.Session, Answer: clip(strings.TrimSpace(r.Text), maxAnswer), Turns: r.Turns, Calls: r.Calls,
		TokensIn: r.Usage.Input, TokensOut: r.Usage.Output, ExitCode: e.ended.Exit, Signal: e.ended.Signal, KilledBy: e.ended.KilledBy,
		Tier: e.ended.Tier, Stderr: e.stderr, Unavailable: r.Unavailable, RetryAt: r.RetryAt, Reported: e.final,
	}
	if e.final && (e.ended.KilledBy != "" || e.ended.Signal != "") {
		e.ended.KilledBy, e.ended.Signal, e.ended.Exit = "", "", 0
	}
	res.Outcome, res.Error = e.judge(r, res.Answer)
	if res.Outcome.Done() { // a temporary limit did not prevent the result
		res.Unavailable, res.RetryAt = false, time.Time{}
		if e.ended.Exit == 0 && r.Question != "" {
			res.Question = clip(r.Question, 4000)
		}
	}
	return res
}

// judge returns the outcome of a program, and a message to the owner unless it is a success.
func (e ending) judge(r Reading, answer string) (domain.Outcome, string) {
	k := e.ended
	switch {
	case e.over != nil:
		return domain.OutcomeBudget, e.over.reason
	case k.KilledBy == sandbox.KilledByIdle:
		return domain.OutcomeTimeout, fmt.Sprintf("%s wrote nothing for %s (bounds.idle), and was ended%s", e.argv0, e.idle, e.quietHint(r))
	case k.KilledBy == shell.KilledByOutput:
		return domain.OutcomeBudget, fmt.Sprintf("%s wrote without end, and was ended", e.argv0)
	case k.KilledBy == sandbox.KilledByMemory:
		return domain.OutcomeError, fmt.Sprintf("%s and what it started took more memory than they may, and were ended; executor.memory raises it", e.argv0)
	case k.KilledBy != "":
		return domain.OutcomeError, fmt.Sprintf("%s was ended by the host (%s)", e.argv0, strings.ReplaceAll(k.KilledBy, "_", " "))
	case r.Limit == "turns" || r.Dialect == "gemini" && k.Exit == geminiTurnLimit:
		return domain.OutcomeBudget, e.said(r, "its own limit of turns was used up")
	case r.Limit == "cost":
		return domain.OutcomeBudget, e.said(r, "its own limit of cost was used up")
	case k.Signal != "":
		return domain.OutcomeError, fmt.Sprintf("%s was ended by the signal %s%s", e.argv0, k.Signal, e.lastWords())
	case k.Exit != 0:
		return domain.OutcomeError, e.said(r, fmt.Sprintf("exit %d", k.Exit)) + cmp.Or(e.hint, e.networkHint())
	case r.Failed:
		return domain.OutcomeError, e.said(r, "it says that it failed") + e.networkHint()
	case r.Dialect == "":
		return domain.OutcomeError, fmt.Sprintf("%s printed no JSON that is known (docs/guides/coding-agents.md has the forms); let it print JSON (%s), or write output: text%s", e.argv0, flagsOf(e.argv0), e.lastWords())
	case !r.Done:
		return domain.OutcomeError, fmt.Sprintf("%s ended without its result: what it printed breaks off%s", e.argv0, e.lastWords())
	case answer == "" && r.Question == "" && chosen(r.Outcome) == "":
		return domain.OutcomeError, fmt.Sprintf("%s ended well and said nothing, so that nobody knows what it did%s", e.argv0, e.lastWords())
	}
	return e.judgeDone(r)
}

// judgeDone returns the outcome of a program that ended with a result.
func (e ending) judgeDone(r Reading) (domain.Outcome, string) {
	switch o := chosen(r.Outcome); {
	case o == domain.OutcomeError:
		return o, e.said(r, "it says that it could not do it")
	case o == domain.OutcomePartial:
		return o, "the program says that a part of it is missing"
	case len(r.Refused) > 0:
		names := slices.Compact(slices.Sorted(slices.Values(r.Refused)))
		return domain.OutcomePartial, fmt.Sprintf("the program's own permissions refused %s (%s); its flags or its settings allow them, and nobody can answer while it runs",
			text.Plural(len(r.Refused), "call"), text.List(names, 5))
	case o != "":
		return o, ""
	}
	return domain.OutcomeSuccess, ""
}

// said returns a description of a failure, with the reason that the program reported.
func (e ending) said(r Reading, what string) string {
	why := cmp.Or(r.Why, text.Collapse(text.Clean(r.Text)))
	if why == "" {
		return fmt.Sprintf("%s: %s%s", e.argv0, what, e.lastWords())
	}
	return fmt.Sprintf("%s: %s: %s", e.argv0, what, text.Truncate(why, 1000))
}

// lastWords returns the last lines of the program's output.
func (e ending) lastWords() string {
	if strings.TrimSpace(e.stderr) != "" {
		return text.LastOf("", e.stderr)
	}
	return text.LastOf(e.stdout)
}

func (e ending) networkHint() string {
	if e.network {
		return ""
	}
	return " (it has no network; where its model is elsewhere, write executor.network: host)"
}

// quietHint explains why a working program may have printed no output.
func (e ending) quietHint(r Reading) string {
	if r.Turns > 0 {
		return ""
	}
	return "; a program that prints only at its end needs a longer one, or a form that is printed on the way (" + flagsOf(e.argv0) + ")"
}

// flagsOf returns the flags with which a known program prints events in JSON.
func flagsOf(name string) string {
	switch name {
	case "claude":
		return "claude -p --output-format stream-json --verbose"
	case "codex":
		return "codex exec --json"
	case "gemini":
		return "gemini --output-format stream-json"
	}
	return "as its manual says"
}
