package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"rouse/agent/redact"
	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/internal/text"
)

// resolvedCommand is a command as it will be executed.
type resolvedCommand struct {
	commandLine
	grant   *Grant   // the one that covers it; nil when none does
	secrets []string // names of the secrets that its arguments ask for
}

// resolve parses a command line, or refuses a call that nobody could allow.
func (f *family) resolve(command string) (resolvedCommand, *tool.Envelope) {
	refuse := func(kind tool.Kind, format string, args ...any) (resolvedCommand, *tool.Envelope) {
		e := tool.Failure(kind, format, args...).WithField("command", "")
		return resolvedCommand{}, &e
	}
	l, err := parse(command)
	if err != nil {
		return refuse(tool.KindInvalidArgs, "%s", err.Error())
	}
	if why := destructive(l.tree); why != "" {
		return refuse(tool.KindRejected, "the command is refused: it %s", text.Visible(why))
	}

	o := resolvedCommand{commandLine: l, secrets: tool.Placeholders(command)}
	if o.argv != nil { // as unquoted: quotes in the middle of a placeholder hide it in the source
		o.secrets = tool.Placeholders(strings.Join(o.argv, "\x00"))
	}

	switch {
	// Filled into a script, a value would be shell source: its quotes and dollars would be interpreted.
	case len(o.secrets) > 0 && o.argv == nil:
		return refuse(tool.KindInvalidArgs, "a secret can be an argument of one plain program alone, and this is %s", o.why)
	case o.argv != nil:
		if o.grant = coveringGrant(f.grants, o.argv); o.grant == nil && f.more != nil {
			o.grant = coveringGrant(f.more(), o.argv)
		}
	}

	// Refused here, before anybody is asked to approve a command that could not run anyway.
	for _, name := range o.secrets {
		i := slices.IndexFunc(f.secrets, func(s tool.SecretGrant) bool { return s.Name == name && s.OnlyTo == "" })
		switch {
		case i < 0:
			return refuse(tool.KindRejected, "the secret %s is not granted for commands; its owner can grant it, under grants: secrets, without only_to", name)
		case f.secrets[i].Value == "":
			return refuse(tool.KindRejected, "the secret %s is not set any more; its owner sets it with: rouse secrets set %[1]s", name)
		}
	}

	return o, nil
}

func (o resolvedCommand) network() bool { return o.grant != nil && o.grant.Network }

// argvToRun is the argv that is executed, and a redactor for the values of its secrets in the output.
func (o resolvedCommand) argvToRun(secrets []tool.SecretGrant) (argv []string, hide *redact.Redactor, err error) {
	if o.argv == nil {
		if argv, err = script(o.script); err != nil {
			return nil, nil, err
		}
		return argv, redact.New(nil), nil
	}

	values := map[string]string{}
	for _, s := range secrets {
		if s.OnlyTo == "" && slices.Contains(o.secrets, s.Name) {
			values[s.Name] = s.Value
		}
	}

	for _, a := range o.argv {
		argv = append(argv, tool.FillPlaceholders(a, func(name string) string { return values[name] }))
	}

	return argv, redact.Named(values), nil
}

// script is the argv of a shell that runs a script, passed whole as one argument. With pipefail a failure
// anywhere in a pipe is the script's exit status, where bash is installed; sh may not know the option.
func script(text string) ([]string, error) {
	for _, folder := range filepath.SplitList(searchPath()) {
		if isRegularFile(filepath.Join(folder, "bash")) {
			return []string{"bash", "-o", "pipefail", "-c", text}, nil
		}
	}

	for _, folder := range filepath.SplitList(searchPath()) {
		if isRegularFile(filepath.Join(folder, "sh")) {
			return []string{"sh", "-c", text}, nil
		}
	}
	return nil, errors.New("there is no shell (bash, sh) among the programs of the system; write one program with its arguments, without pipes and expansions")
}

func isRegularFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// action is what an approval of a command is bound to.
type action struct {
	Argv    []string     `json:"argv,omitempty"`
	Script  string       `json:"script,omitempty"`
	Dir     string       `json:"dir"`
	Network string       `json:"network"` // none, host
	Env     []string     `json:"env"`     // names
	Tier    sandbox.Tier `json:"tier"`
}

// needs tells the authorizer what a call would do (UNI-06).
func (f *family) needs(ctx context.Context, command string) (tool.Need, error) {
	o, refused := f.resolve(command)
	if refused != nil {
		return tool.Need{Refused: refused}, nil
	}

	tier := f.host.Tier(ctx)
	a := action{Argv: o.argv, Dir: f.roots.Workdir(), Network: "none", Env: names(environment("", "")), Tier: tier}
	if o.argv == nil {
		a.Script = o.script
	}

	// What a command reads is not known before: it gets the labels of everything that it could read.
	labels, err := f.roots.Taint(ctx)
	if err != nil {
		return tool.Need{}, err
	}

	n := tool.Need{Tier: string(tier), AddsTaint: labels, WritesMemory: true}
	if o.network() {
		a.Network = "host"
		n.AddsTaint |= tool.Outward | tool.Untrusted
	}

	// Unconfined, a command can send data anywhere; and what cannot be undone counts as an outward effect.
	if tier == sandbox.TierD || f.irreversible(o) {
		n.AddsTaint |= tool.Outward
	}

	for _, s := range f.secrets {
		if slices.Contains(o.secrets, s.Name) && !s.Public {
			n.AddsTaint |= tool.Private
		}
	}

	text, err := json.Marshal(a)
	if err != nil {
		return tool.Need{}, err
	}

	// An approval of an installer cannot stand: what it installs is another thing tomorrow.
	n.Action, n.Shown, n.NoStandingApproval = string(text), o.display(a), installsSoftware(o.tree)
	switch {
	case o.argv == nil:
		n.MissingGrant = fmt.Sprintf("grants are for one program with its arguments, and this has %s", o.why)
	case o.grant == nil:
		n.MissingGrant = "none of the agent's grants for commands covers it"
	}

	return n, nil
}

func names(env []string) []string {
	out := make([]string, len(env))
	for i, setting := range env {
		out[i], _, _ = strings.Cut(setting, "=")
	}
	slices.Sort(out)
	return out
}

// irreversible reports whether a command removes something that no undo would restore.
func (f *family) irreversible(o resolvedCommand) bool {
	if o.argv == nil {
		return calls(o.tree, "rm", "rmdir", "shred", "truncate")
	}

	switch filepath.Base(o.argv[0]) {
	case "rm":
		_, why := predict(f.roots, o.argv)
		// A path such as ./rm may be any program: nothing is predicted for it.
		return why != "" || o.argv[0] != "rm"
	case "shred", "truncate":
		return true
	}

	return false
}

// calls reports whether a script calls one of the programs, as far as it is written plainly.
func calls(tree *syntax.File, programs ...string) (found bool) {
	syntax.Walk(tree, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			found = found || slices.Contains(programs, filepath.Base(staticWord(call.Args[0])))
		}
		return !found
	})
	return found
}

// display is a command as a person reads it: nothing in it can hide anything else.
func (o resolvedCommand) display(a action) string {
	shown := text.Visible(o.script)
	if o.argv != nil {
		words := make([]string, len(o.argv))
		for i, w := range o.argv {
			words[i] = quoted(w)
		}
		shown = strings.Join(words, " ")
	}

	what := "one program, without a shell"
	if o.argv == nil {
		what = "a script for bash"
	}

	return fmt.Sprintf("%s\n(%s; in %s; network: %s; tier %s)", shown, what, text.Visible(a.Dir), a.Network, a.Tier)
}

func quoted(w string) string {
	q, err := syntax.Quote(w, syntax.LangBash)
	if err != nil {
		return text.Visible(fmt.Sprintf("%q", w))
	}
	return text.Visible(q)
}
