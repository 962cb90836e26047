package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"rouse/agent/redact"
	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/internal/text"
)

// resolvedCommand is a command in the form in which it is executed.
type resolvedCommand struct {
	commandLine
	grant   *Grant   // covering grant; nil if there is none
	secrets []string // names of the secrets in its placeholders
}

// resolve parses a command line. It returns an error if the command could not be allowed at all.
func (f *family) resolve(command string) (resolvedCommand, error) {
	refuse := func(kind tool.Kind, format string, args ...any) (resolvedCommand, error) {
		return resolvedCommand{}, tool.Refuse(kind, format, args...).WithField("command", "")
	}
	l, err := parse(command)
	if err != nil {
		return refuse(tool.KindInvalidArgs, "%s", err.Error())
	}
	if why := destructive(l.tree, maxNested); why != "" {
		return refuse(tool.KindRejected, "the command is refused: it %s", text.Visible(why))
	}

	o := resolvedCommand{commandLine: l, secrets: tool.Placeholders(command)}
	if o.argv != nil { // use the unquoted words: quotes within a placeholder hide it in the source
		o.secrets = tool.Placeholders(strings.Join(o.argv, "\x00"))
	}

	switch {
	// In a script, the value would be shell source with interpreted quotes and dollars.
	case len(o.secrets) > 0 && o.argv == nil:
		return refuse(tool.KindInvalidArgs, "a secret can be an argument of one plain program alone, and this is %s", o.why)
	case o.argv != nil:
		if o.grant = coveringGrant(f.grants, o.argv); o.grant == nil && f.more != nil {
			o.grant = coveringGrant(f.more(), o.argv)
		}
		if o.grant != nil {
			o.argv = o.grant.named(o.argv)
		}
	}

	// Check secrets before an approval is requested for a command that cannot run.
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

// movesAway refuses an mv into a temporary folder, where the files would be lost. For other
// programs see temporaries. Without confinement there are no such folders.
func (f *family) movesAway(ctx context.Context, o resolvedCommand) error {
	if o.argv == nil || o.argv[0] != "mv" || f.host.Tier(ctx) == sandbox.TierNone {
		return nil
	}
	p, err := f.roots.Resolve(destination(o.argv), true)
	if err == nil {
		return p.Close()
	}
	bad, ok := errors.AsType[*tool.Refusal](err)
	if !ok || bad.Kind != tool.KindInvalidArgs {
		return nil // the command itself reports the error
	}
	return tool.Refuse(tool.KindRejected, "nothing was moved, for it would be lost: %s. /tmp, /dev/shm, TMPDIR and HOME are temporary: they are empty at the start of each command, and gone after it", text.Visible(bad.Message)).WithField("command", "")
}

// destination returns the destination of an mv command.
func destination(argv []string) string {
	for i, word := range argv[1:] {
		target, long := strings.CutPrefix(word, "--target-directory=")
		switch {
		case word == "--":
			return argv[len(argv)-1]
		case long:
			return target
		case (word == "-t" || word == "--target-directory") && i+2 < len(argv):
			return argv[i+2]
		}
	}
	return argv[len(argv)-1]
}

func (o resolvedCommand) network() bool { return o.grant != nil && o.grant.Network }

// argvToRun returns the argv to execute, and a redactor for its secrets in the output.
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

// script returns the argv of a shell that runs a script. With pipefail (bash), a failure anywhere
// in a pipe fails the script. sh may not support that option.
func script(text string) ([]string, error) {
	switch {
	case hasProgram("bash"):
		return []string{"bash", "-o", "pipefail", "-c", text}, nil
	case hasProgram("sh"):
		return []string{"sh", "-c", text}, nil
	}
	return nil, errors.New("there is no shell (bash, sh) among the programs of the system; write one program with its arguments, without pipes and expansions")
}

// HasProgram reports whether commands can run a program of this name.
func HasProgram(name string) bool {
	return name != "" && !strings.ContainsAny(name, `/\`) && hasProgram(name)
}
func hasProgram(name string) bool {
	return slices.ContainsFunc(filepath.SplitList(searchPath()), func(folder string) bool {
		path, err := exec.LookPath(filepath.Join(folder, name)) // LookPath also tries the system's program suffixes
		return err == nil && path != ""
	})
}

// action is the content to which an approval of a command is bound.
type action struct {
	Argv    []string     `json:"argv,omitempty"`
	Script  string       `json:"script,omitempty"`
	Dir     string       `json:"dir"`
	Network string       `json:"network"` // none, host
	Env     []string     `json:"env"`     // names
	Tier    sandbox.Tier `json:"tier"`
	Files   []*namedFile `json:"files,omitempty"` // files that an agent could change before the call
}

// action returns the action of a command, without the files that it names.
func (f *family) action(ctx context.Context, o resolvedCommand) action {
	a := action{Argv: o.argv, Dir: f.roots.Workdir(), Network: "none", Env: names(environment("", "")), Tier: f.host.Tier(ctx)}
	if o.argv == nil {
		a.Script = o.script
	}
	if o.network() {
		a.Network = "host"
	}
	return a
}

func (a action) text() (string, error) {
	text, err := json.Marshal(a)
	return string(text), err
}

// needs describes a call to the authorizer.
func (f *family) needs(ctx context.Context, command string) (tool.Access, error) {
	o, err := f.resolve(command)
	if err == nil {
		err = f.movesAway(ctx, o)
	}
	if err != nil {
		return tool.Access{}, err
	}

	// The result gets the labels of everything the command could read.
	a := f.action(ctx, o)
	n := f.roots.ProgramNeed()
	n.Tier = string(a.Tier)
	if o.network() {
		n.AddsTaint |= tool.Outward | tool.Untrusted
	}

	// Without confinement a command can send data anywhere. An irreversible change counts as an
	// external effect.
	if a.Tier == sandbox.TierNone || f.irreversible(o) {
		n.AddsTaint |= tool.Outward
	}

	for _, s := range f.secrets {
		if slices.Contains(o.secrets, s.Name) && !s.Public {
			n.AddsTaint |= tool.Private
		}
	}

	// An installer needs an approval for each call, because the installed software may change.
	n.Shown, n.NoStandingApproval = o.display(a), installsSoftware(o.tree, maxNested)
	n.MissingGrant, n.Grant = o.missingGrant(), o.grantLine()
	n.Bind = func(n tool.Access) (tool.Access, error) { return f.bind(n, o, a) }
	n.Action, err = a.text()
	return n, err
}

// missingGrant returns the reason the command is not covered by a grant, or "".
func (o resolvedCommand) missingGrant() string {
	switch {
	case o.argv == nil:
		return fmt.Sprintf("grants are for one program with its arguments, and this has %s", o.why)
	case o.grant == nil:
		return "none of the agent's grants for commands covers it"
	}
	return ""
}

// grantedFiles resolves the links of the granted program and script in a command line. It also
// returns the resolved paths, which the command may read. It does not follow links in folders that
// agents can write.
func (f *family) grantedFiles(o resolvedCommand, argv []string) (out, read []string) {
	owned := slices.ContainsFunc(f.grants, func(g Grant) bool { return o.grant != nil && slices.Equal(g.Argv, o.grant.Argv) })
	if !owned {
		return argv, nil
	}

	out = slices.Clone(argv)
	for i, word := range o.grant.Argv {
		if i >= len(out) || out[i] != word || !filepath.IsAbs(word) || IsSystemProgram(word) || !slices.Contains(Scripts(o.grant.Argv), word) {
			continue
		}
		actual, err := f.roots.Boundary().Resolve(word)
		if err != nil {
			continue // starting the command reports the error
		}
		if info, err := f.roots.Boundary().Stat(actual); err == nil && info.Mode().IsRegular() {
			out[i], read = actual, append(read, actual)
		}
	}
	return out, read
}

// grantLine returns the setting that grants exactly this command, or "".
func (o resolvedCommand) grantLine() string {
	if o.argv == nil || slices.ContainsFunc(o.argv, func(w string) bool { return strings.ContainsAny(w, "*?[") }) {
		return ""
	}
	argv, err := json.Marshal(o.argv)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("grants: {commands: [{argv: %s}]}", argv)
}

// Unknown is a placeholder in a planned command for text that is known only at the time of the
// call.
const Unknown = "\uFFFC"

// Foresee returns the need of a planned command, with the reason it is refused or the grant it
// lacks. For a command that contains Unknown it only checks whether any grant is for its program.
func Foresee(grants []Grant, secrets []tool.SecretGrant, command string) (n tool.Access) {
	f := &family{grants: grants, secrets: secrets}
	o, err := f.resolve(command)
	known := !strings.Contains(command, Unknown)
	forProgram := func(g Grant) bool {
		return len(g.Argv) > 0 && g.Argv[0] == o.argv[0] || len(g.Written) > 0 && g.Written[0] == o.argv[0]
	}
	switch refusal, refused := errors.AsType[*tool.Refusal](err); {
	case refused && known:
		n.Refused = &refusal.Envelope
	case refused || !known && (o.argv == nil || strings.Contains(o.argv[0], Unknown)):
	case known || !slices.ContainsFunc(grants, forProgram):
		n.MissingGrant = o.missingGrant()
	}
	return n
}

// bind adds the content of the named files to the action that is approved. It refuses a command
// that could not be started.
func (f *family) bind(n tool.Access, o resolvedCommand, a action) (tool.Access, error) {
	if err := f.host.cannotStart(o.commandLine, a.Tier); err != nil {
		return n, err
	}
	b, err := f.host.bindFiles(o.commandLine, "")
	if bad, ok := errors.AsType[*unapprovableError](err); ok {
		err = tool.Refuse(tool.KindRejected, "it would need an approval, and cannot be approved: %s", bad.why).WithField("command", "")
	}
	if err != nil {
		return n, err
	}

	a.Files = b.files
	n.Shown += b.shown()
	n.NoStandingApproval = n.NoStandingApproval || !b.standing()
	n.Action, err = a.text()
	return n, err
}

func names(env []string) []string {
	out := make([]string, len(env))
	for i, setting := range env {
		out[i], _, _ = strings.Cut(setting, "=")
	}
	slices.Sort(out)
	return out
}

// display formats a command for a person, with invisible characters made visible.
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

func quoted(w string) string { return text.Visible(text.ShellWord(w)) }
