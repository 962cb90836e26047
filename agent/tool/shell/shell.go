package shell

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/internal/domain"
	"rouse/internal/ledger/fileop"
	"rouse/internal/text"
)

//go:embed run.md
var runText string

const bashText = "Run a command in the working folder, for at most two minutes. The first line of the answer is its exit code. What your owner has not granted is put before them first."

// Limits of a command.
const (
	defaultIdle  = 120 * time.Second // without output
	maxIdle      = 3600              // seconds
	runMaxChars  = 10_000            // characters of a stream
	bashWall     = 120 * time.Second
	bashMaxChars = 256 << 10 // characters of a stream
)

// The specs of the tools. They have no timeout, because commands have their own.
var (
	runSpec = tool.Spec{
		Name: "shell_run", Description: strings.TrimSpace(runText), Effect: domain.EffectExternal, Class: tool.ClassExec, Scope: tool.ScopeOutside, Writes: tool.WritesPlanned,
		Example: `{"command":"pandoc report.md -o report.html"}`, Args: reflect.TypeFor[runArgs](), Requires: tool.RequiresCommands, SummaryArg: "command", Reports: tool.ReportsExit, Timeout: -1, Core: true,
	}
	bashSpec = tool.Spec{
		Name: "bash", Description: bashText, Effect: domain.EffectExternal, Class: tool.ClassExec, Scope: tool.ScopeOutside, Writes: tool.WritesPlanned,
		Example: `{"command":"wc -l *.csv"}`, Args: reflect.TypeFor[bashArgs](), Requires: tool.RequiresCommands, AliasOf: runSpec.Name, SummaryArg: "command", Timeout: -1, Core: true,
	}
)

// Specs returns the specs of all tools in this package.
func Specs() tool.Specs { return tool.Specs{runSpec, bashSpec} }

// Options configures the tools of one run.
type Options struct {
	Launcher   *Launcher
	Log        *fileop.FileOps // records the data for undo
	Grants     []Grant
	MoreGrants func() []Grant     // further grants, which may change during the run; optional
	Allow      []string           // the agent's globs of tools
	Secrets    []tool.SecretGrant // secrets with OnlyTo are not for commands
	Redact     func(text string) string
	Idle       time.Duration // limit of time without output; zero means 120 s
}

// family is the state that the tools of one run share.
type family struct {
	host    *Launcher
	roots   *tool.Roots
	log     *fileop.FileOps
	grants  []Grant
	more    func() []Grant
	secrets []tool.SecretGrant
	redact  func(string) string
	idle    time.Duration
}

// Tools returns shell_run and bash. An agent gets shell_run if it has a grant for a command or may
// get one during the run. It also gets shell_run if its list of tools names it. It gets bash only
// if its list names it.
func Tools(o Options) ([]tool.Tool, error) {
	if err := o.Launcher.check(); err != nil {
		return nil, err
	}
	if o.Log == nil || o.Idle < 0 {
		return nil, errors.New("shell: a log of changes and a time of 0 or more are needed")
	}

	for _, g := range o.Grants {
		if err := g.Check(); err != nil {
			return nil, fmt.Errorf("the grant of the command %q: %w", g.Argv, err)
		}
	}

	f := &family{o.Launcher, o.Launcher.Roots, o.Log, o.Grants, o.MoreGrants, o.Secrets, o.Redact, o.Idle}
	if f.redact == nil {
		f.redact = func(text string) string { return text }
	}

	if f.idle == 0 {
		f.idle = defaultIdle
	}

	var out []tool.Tool
	if len(o.Grants) > 0 || o.MoreGrants != nil || tool.IsNamed(o.Allow, runSpec.Name) {
		t, err := f.runTool()
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}

	if tool.IsNamed(o.Allow, bashSpec.Name) {
		t, err := f.bashTool()
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}

	return out, nil
}

type runArgs struct {
	Command string `json:"command" jsonschema:"one program with its arguments; or a script for bash, which is asked about"`
	Timeout int    `json:"timeout,omitempty" jsonschema:"seconds without output after which it is ended, 1 to 3600; default 120"`
	// A pointer, because the default depends on the caller.
	MustSucceed *bool `json:"must_succeed,omitempty" jsonschema:"true: an exit code other than 0 is a failure of the call"`
}

// check returns an error for arguments that are invalid for every command.
func (a runArgs) check() error {
	if a.Timeout > maxIdle {
		return tool.Refuse(tool.KindInvalidArgs, "timeout is %d seconds; it is at most %d", a.Timeout, maxIdle).WithField("timeout", "1 to 3600")
	}
	return nil
}

// RunName returns the name of the tool that runs programs.
func RunName() string { return runSpec.Name }

// RunArgs returns the arguments of shell_run for one program. idle limits the time without output;
// zero means the default. It returns an error if an argument contains a NUL.
func RunArgs(argv []string, idle time.Duration) (json.RawMessage, error) {
	words := make([]string, len(argv))
	for i, w := range argv {
		var err error
		if words[i], err = syntax.Quote(w, syntax.LangBash); err != nil {
			return nil, fmt.Errorf("the argument %q cannot be written: %w", w, err)
		}
	}

	a := runArgs{Command: strings.Join(words, " ")}
	if idle > 0 {
		a.Timeout = min(max(int(idle/time.Second), 1), maxIdle)
	}
	return json.Marshal(a)
}

type runResult struct {
	Program          string       `json:"program"` // short name of the executed program
	Lines            int64        `json:"lines"`   // of both outputs
	Stdout           string       `json:"stdout"`
	Stderr           string       `json:"stderr"`
	ExitCode         int          `json:"exit_code"` // -1 if a signal ended it
	Signal           string       `json:"signal,omitempty"`
	WorkingDirectory string       `json:"working_directory"`
	KilledBy         string       `json:"killed_by,omitempty"` // idle_timeout, timeout, cancelled, memory, processes, output
	Tier             sandbox.Tier `json:"tier"`
	OperationID      string       `json:"operation_id,omitempty"` // for file_undo

	hint string // about an access that the sandbox may have refused
}

func (f *family) runTool() (tool.Tool, error) {
	s := runSpec
	s.Access = tool.AccessOf(func(ctx context.Context, _ tool.Invocation, a runArgs) (tool.Access, error) {
		return f.needs(ctx, a.Command)
	})
	return tool.DefineChecked(s, runArgs.check, func(ctx context.Context, in tool.Invocation, a runArgs) (tool.Envelope, error) {
		idle := f.idle
		if a.Timeout > 0 {
			idle = time.Duration(a.Timeout) * time.Second
		}
		res, warnings, err := f.execute(ctx, in, s.Name, a.Command, limits{idle: idle, maxChars: runMaxChars})
		if err != nil {
			return tool.Envelope{}, err
		}
		return res.envelope(res, in.Requires(a.MustSucceed), warnings), nil
	})
}

type bashArgs struct {
	Command string `json:"command"`
}

// bashTool returns bash. It is like shell_run, with its own limits and a result in plain text.
func (f *family) bashTool() (tool.Tool, error) {
	s := bashSpec
	s.Access = tool.AccessOf(func(ctx context.Context, _ tool.Invocation, a bashArgs) (tool.Access, error) {
		return f.needs(ctx, a.Command)
	})
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a bashArgs) (tool.Envelope, error) {
		res, warnings, err := f.execute(ctx, in, s.Name, a.Command, limits{wall: bashWall, maxChars: bashMaxChars})
		if err != nil {
			return tool.Envelope{}, err
		}
		return res.envelope(res.text(), in.MustSucceed, warnings), nil
	})
}

// text returns a result in the form that models know from their own bash tool.
func (r runResult) text() string {
	out := fmt.Sprintf("Exit code: %d\n", r.ExitCode)
	if r.KilledBy != "" {
		out += "Ended by: " + r.KilledBy + "\n"
	}
	out += r.Stdout
	if r.Stderr != "" {
		if !strings.HasSuffix(out, "\n") {
			out += "\n"
		}
		out += "Standard error:\n" + r.Stderr
	}
	return out
}

type limits struct {
	idle, wall time.Duration
	maxChars   int
}

// notCovered is the beginning of a warning about changes that cannot be undone.
const notCovered = "the changes of this command are not covered by undo: "

// execute runs a command that the authorizer has allowed.
func (f *family) execute(ctx context.Context, in tool.Invocation, name, command string, l limits) (res runResult, warnings []string, err error) {
	o, err := f.resolve(command)
	if err == nil {
		err = f.movesAway(ctx, o)
	}
	if err != nil {
		return res, nil, err
	}

	files, err := f.approvedFiles(ctx, in, name, o)
	if err != nil {
		return res, nil, err
	}
	defer files.remove()

	toRun := o
	toRun.argv, toRun.script = files.commandLine(o.commandLine)
	argv, secretRedactor, err := toRun.argvToRun(f.secrets)
	if err != nil {
		return res, nil, tool.Refuse(tool.KindUnavailable, "%s", err.Error())
	}
	// Record before the start, because the command may overwrite the content.
	undo, why, err := f.recordUndo(ctx, in, o)
	if err != nil {
		return res, nil, err
	}
	if why != "" {
		warnings = append(warnings, notCovered+text.Visible(why))
	}

	argv, granted := f.grantedFiles(o, argv)
	stdout, stderr := NewOutput(l.maxChars), NewOutput(l.maxChars)
	program := Program{Argv: argv, Read: append(files.folders(), granted...), Network: o.network(), Idle: l.idle, Wall: l.wall, Stdout: stdout, Stderr: stderr}
	ended, err := f.host.Run(ctx, program)
	if err != nil {
		e, host := StartFailure(ctx, err)
		if host = errors.Join(host, dropUndo(ctx, undo)); host == nil {
			host = &tool.Refusal{Envelope: e}
		}
		return res, nil, host
	}

	warnings = append(warnings, LeftoverWarnings(f.roots.Workdir(), ended)...)
	redact := func(text string) string { return f.redact(secretRedactor.Replace(files.original(text))) }
	res = runResult{
		Program: redact(o.name()), Lines: stdout.Lines() + stderr.Lines(), Stdout: stdout.Text(redact), Stderr: stderr.Text(redact),
		ExitCode: ended.Exit, Signal: ended.Signal, WorkingDirectory: f.roots.Workdir(), KilledBy: ended.KilledBy, Tier: ended.Tier,
	}
	if refused := f.host.Refused(program, ended, res.Stdout, res.Stderr); refused != nil {
		res.hint = refused.Hint(f.roots)
		warnings = append(warnings, res.hint)
	}
	if undo == nil {
		return res, warnings, nil
	}

	// The changes have happened even if the run was cancelled, so the record is completed without
	// ctx.
	if ended.Exit == 0 && undo.CameAbout() {
		if undo.Any() {
			res.OperationID = in.Key
		}
		return res, warnings, undo.Announce(context.WithoutCancel(ctx))
	}
	warnings = append(warnings, notCovered+"it did not change what was predicted")
	return res, warnings, dropUndo(ctx, undo)
}

func dropUndo(ctx context.Context, undo *file.RecordedPlan) error {
	if undo == nil {
		return nil
	}
	return undo.Discard(context.WithoutCancel(ctx))
}

// maxName limits the length of a shown name, in characters.
const maxName = 40

// name returns a short name: the script of an interpreter, the program behind its wrappers, or the
// beginning of a script.
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

// envelope returns the result of a call. result is r in one of its forms.
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
