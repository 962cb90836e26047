package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/text"
)

// expectedTimeout is how long the command of an expectation may take if nothing else is configured.
const expectedTimeout = 10 * time.Minute

// Of the output of a failed command the last lines stand in the error: test programs sum up at their end.
const (
	expectedOutput = 64 << 10
	expectedLines  = 40
	expectedTail   = 4_000 // bytes
)

// commandUnmet says why the command of an expectation does not hold, "" if it does. It runs where the run has worked, confined as the
// agent's own commands are, and without a network: it may be a test that the agent has written.
func (r *Runner) commandUnmet(ctx context.Context, t *attempt, e Expectation) (string, error) {
	least := t.minTier()
	if least == "" && t.authorizer != nil && t.authorizer.taint&tool.Untrusted != 0 {
		least = string(sandbox.TierA)
	}
	t.authorizer = nil // what the command writes is what the run wrote
	roots, err := r.roots(t)
	if err != nil {
		return "", err
	}
	launcher, err := r.programs.host(t, roots)
	if err != nil {
		return "", err
	}
	launcher.MinTier = sandbox.Tier(least)

	ctx, stop := context.WithTimeout(ctx, cmp.Or(e.Timeout, expectedTimeout))
	defer stop()
	out := shell.NewOutput(expectedOutput) // one for both, which keeps their order
	ended, err := launcher.Run(ctx, shell.Program{Argv: e.Command, Stdout: out, Stderr: out})
	name := text.Visible(strings.Join(e.Command, " "))
	if err != nil {
		envelope, failure := shell.StartFailure(ctx, err)
		return fmt.Sprintf("%s could not be started: %s", name, envelope.Message), failure
	}
	record := context.WithoutCancel(ctx)
	if err := errors.Join(ended.Unkept, r.recordDisarmed(record, t.run, ended.Disarmed), r.recordKept(record, t.run, ended.Kept)); err != nil {
		return "", err
	}

	how := fmt.Sprintf("ended with exit code %d", ended.Exit)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		how = fmt.Sprintf("took longer than %s", cmp.Or(e.Timeout, expectedTimeout))
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case ended.KilledBy != "":
		how = fmt.Sprintf("went beyond a limit (%s)", ended.KilledBy)
	case ended.Exit < 0:
		how = fmt.Sprintf("was ended from outside (signal: %s)", ended.Signal)
	case ended.Exit == 0:
		return "", nil
	}
	if said := lastLines(out); said != "" {
		how += ":\n" + said
	}
	return name + " " + how, nil
}

// lastLines are the last lines of an output.
func lastLines(out *shell.Output) string {
	raw, _ := out.Raw()
	lines := strings.Split(strings.TrimRight(text.Clean(string(raw)), "\n"), "\n")
	lines = lines[max(0, len(lines)-expectedLines):]
	said := strings.Join(lines, "\n")
	if cut := len(said) - expectedTail; cut > 0 {
		said = "…" + strings.ToValidUTF8(said[cut:], "")
	}
	return said
}
