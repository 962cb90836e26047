package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"rouse/agent/model"
	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
	"rouse/internal/ledger/fileop"
	"rouse/internal/text"
)

var (
	runSpec = tool.Spec{
		Name: "executor", Description: "Starts the agent program that does the runs of its agent.", Effect: domain.EffectExternal, Class: tool.ClassExec, Scope: tool.ScopeOutside,
		Writes: tool.WritesElsewhere, Requires: tool.RequiresExecutor, Args: reflect.TypeFor[Args](), SummaryArg: "program", Ends: true, Waits: true, Timeout: -1,
	}
	saidSpec = tool.Spec{
		Name: "said", Description: "What an agent program says it did by a tool of its own.", Effect: domain.EffectExternal, Class: tool.ClassOther, Scope: tool.ScopeOutside,
		Writes: tool.WritesNothing, Requires: tool.RequiresExecutor, Args: reflect.TypeFor[SaidArgs](),
	}
)

// Specs returns the spec of the tool that starts a program, and the spec under which the program's
// own calls are recorded.
func Specs() tool.Specs { return tool.Specs{runSpec, saidSpec} }

// Name returns the name of the tool that starts the program.
func Name() string { return runSpec.Name }

// SaidName returns the name under which the reported calls of a program are recorded.
func SaidName() string { return saidSpec.Name }

// Args holds the arguments of the tool.
type Args struct {
	Program string `json:"program" jsonschema:"its command line, as it is configured"`
	Prompt  string `json:"prompt" jsonschema:"what it is told"`
}

// SaidArgs holds the arguments of a call that a program reports.
type SaidArgs struct {
	Tool  string          `json:"tool" jsonschema:"as the program calls it"`
	Input json.RawMessage `json:"input,omitempty" jsonschema:"as the program says"`
}

// Settings configures a program.
type Settings struct {
	Argv    []string // templates
	Prompt  bool     // an argument contains the task; otherwise it is the input
	JSON    bool     // prints JSON
	Env     []string // name=value
	Secret  bool     // Env contains a secret
	Read    []string // absolute
	Login   []Login
	Home    string // absolute
	Network bool
	Memory  int64 // in bytes; 0 means the sandbox's default
	// Public reports whether the program can reach no private data with its secrets and logins.
	Public bool
	Price  model.Price // zero if the owner has not set one
	Free   bool        // the configured price is zero
	Limits []Limit     // additional sentences that report a temporary limit
}

// Writes returns the places that the program may change in addition to the roots of the run.
func (s Settings) Writes() []string {
	out := []string{filepath.Clean(s.Home)}
	for _, l := range s.Login {
		if l.Write {
			out = append(out, filepath.Clean(l.Path))
		}
	}
	return out
}

// Login is a file or a folder with the owner's login for a program.
type Login struct {
	Path  string // absolute
	Write bool
}

// Bounds holds the run's bounds for the program. Zero or less means no bound.
type Bounds struct {
	Turns, Calls                 int
	Tokens, CostMicroUSD, Output int64
	Idle                         time.Duration
}

// Spent is the reported or estimated usage of a program.
type Spent struct {
	Usage                              model.Usage
	CostMicroUSD                       int64
	EstimatedTokens, EstimatedMicroUSD int64
	Why                                string // reason if a part is estimated
}

// Money keeps a program within the daily and monthly budgets.
type Money interface {
	// Reserve reserves the possible cost of the run. refusal is set if a budget has no room. It
	// contains the outcome of the run.
	Reserve(ctx context.Context) (refusal, err error)
	Settle(ctx context.Context, s Spent) error
}

// Options holds the dependencies of the tool for one attempt.
type Options struct {
	Settings Settings
	Located  Located
	Launcher *shell.Launcher
	Log      *fileop.FileOps
	Before   string // folder for copies of files that the program may change
	Bounds   Bounds
	// UsualMicroUSD is the median cost of the job's earlier runs that reported a cost, or 0.
	UsualMicroUSD int64
	Money         Money
	Listener      Listener
	// Expand returns the expanded templates of the program's arguments.
	Expand func(prompt string) ([]string, error)
	Redact func(string) string
	// Ended receives the result of the program.
	Ended func(Result)
}

// Result is the result of a program. Most of it is the program's own report.
type Result struct {
	Program      string         `json:"program"`
	Form         string         `json:"form,omitempty"` // form of the output: claude, codex, gemini, plain or text
	Model        string         `json:"model,omitempty"`
	Session      string         `json:"session,omitempty"`
	Outcome      domain.Outcome `json:"outcome"`
	Answer       string         `json:"answer,omitempty"`
	Error        string         `json:"error,omitempty"`
	Question     string         `json:"question,omitempty"` // question to the owner; the run waits for the answer
	Turns        int            `json:"turns"`
	Calls        int            `json:"calls"`
	TokensIn     int64          `json:"tokens_in,omitempty"`
	TokensOut    int64          `json:"tokens_out,omitempty"`
	CostUSD      float64        `json:"cost_usd,omitempty"`
	ExitCode     int            `json:"exit_code"` // -1 if a signal ended it
	Signal       string         `json:"signal,omitempty"`
	KilledBy     string         `json:"killed_by,omitempty"`
	Tier         sandbox.Tier   `json:"tier,omitempty"`
	Stderr       string         `json:"stderr,omitempty"`
	FilesChanged int            `json:"files_changed"`
	Reported     bool           `json:"reported,omitempty"`    // final result received, so the outcome does not depend on how the program ended
	Unavailable  bool           `json:"unavailable,omitempty"` // model temporarily unavailable
	RetryAt      time.Time      `json:"retry_at,omitzero"`
	Spent        Spent          `json:"-"`
}

// program implements the tool for one attempt.
type program struct{ Options }

// Tools returns the tool that starts the program.
func Tools(o Options) ([]tool.Tool, error) {
	if o.Launcher == nil || o.Log == nil || o.Before == "" || o.Money == nil || o.Expand == nil || len(o.Settings.Argv) == 0 {
		return nil, errors.New("executor: a launcher, a log of changes, a folder for what files were, the budgets and a program are needed")
	}
	if o.Redact == nil {
		o.Redact = func(s string) string { return s }
	}

	p := &program{o}
	s := runSpec
	s.Access = tool.AccessOf(p.need)
	t, err := tool.Define(s, p.run)
	return []tool.Tool{t}, err
}

// action identifies a program for an approval. It does not contain the task, because otherwise a
// standing approval would never match.
type action struct {
	Job     string       `json:"job,omitempty"`
	Argv    []string     `json:"argv"`
	Path    string       `json:"path"`
	Dir     string       `json:"dir"`
	Home    string       `json:"home"`
	Network string       `json:"network"` // none, host
	Env     []string     `json:"env"`     // names
	Read    []string     `json:"read,omitempty"`
	Login   []Login      `json:"login,omitempty"`
	Tier    sandbox.Tier `json:"tier"`
}

// need returns the access that the program needs (docs/dev/security-tests.md).
func (p *program) need(ctx context.Context, in tool.Invocation, a Args) (tool.Access, error) {
	s, roots := p.Settings, p.Launcher.Roots
	n := roots.ProgramNeed()
	act := action{Job: in.Job, Argv: s.Argv, Path: p.Located.Path, Dir: roots.Workdir(), Home: s.Home, Network: "none", Read: s.Read, Login: s.Login, Tier: p.Launcher.Tier(ctx)}
	for _, setting := range s.Env {
		act.Env = append(act.Env, nameOf(setting))
	}
	slices.Sort(act.Env)
	n.Tier = string(act.Tier)

	if s.Network {
		act.Network = "host"
		n.AddsTaint |= tool.Outward | tool.Untrusted
	}
	if act.Tier == sandbox.TierNone { // without a sandbox, the program can reach everything
		n.AddsTaint |= tool.Outward
	}
	if (s.Secret || len(s.Login) > 0) && !s.Public {
		n.AddsTaint |= tool.Private
	}

	// The program's own files influence its next run.
	for _, path := range s.Writes() {
		place := tool.PlaceOf(path)
		n.Reads, n.Writes = append(n.Reads, place), append(n.Writes, place)
	}

	raw, err := json.Marshal(act)
	n.Action = string(raw)
	n.Shown = fmt.Sprintf("%s\n(an agent program, %s; in %s; network: %s; tier %s)\nIt is told: %s",
		text.Visible(fmt.Sprintf("%q", s.Argv)), text.Visible(p.Located.Path), text.Visible(act.Dir), act.Network, act.Tier, text.Truncate(text.Visible(a.Prompt), 1500))
	return n, err
}

// maxArgument is the maximum length of an argument (MAX_ARG_STRLEN on Linux).
const maxArgument = 128<<10 - 1

// refuse returns the result of a call that did not start the program.
func refuse(format string, args ...any) (tool.Envelope, error) {
	return tool.Failure(tool.KindUnavailable, format, args...), nil
}
