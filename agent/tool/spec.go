package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/jsonread"
)

// Class is how the loop treats the calls of a tool, apart from their effect.
type Class string

// The classes.
const (
	ClassOther  Class = "other"  // called as often as a model wants
	ClassRead   Class = "read"   // reads the content at one path: the same until that changes (OSA-12)
	ClassList   Class = "list"   // lists the names in one folder: as ClassRead
	ClassSearch Class = "search" // searches many files: the same until any of them changes
	ClassLoad   Class = "load"   // loads what stays the same for the run, so that what failed fails again (OSA-13)
	ClassEdit   Class = "edit"   // changes one path
	ClassExec   Class = "exec"   // may change anything
	ClassData   Class = "data"   // moves many rows: its steps may be free (OSA-23)
	ClassPlan   Class = "plan"   // changes the agent's own list or plan (OSA-14)
)

// Scope is how far the calls of a tool reach.
type Scope string

// The scopes.
const (
	// ScopeOutside is everything that is not the agent's. Such a tool is a system tool (OSL-19).
	ScopeOutside Scope = ""
	// ScopeAgent is what belongs to the agent: its folders, database, skills, notices and wakes.
	ScopeAgent Scope = "agent"
	// ScopeRun is the run alone. A replay runs these tools, and answers others from the recording.
	ScopeRun Scope = "run"
)

// Writes is where the calls of a tool write, which decides what an undo of their run does.
type Writes string

// The places.
const (
	WritesElsewhere Writes = ""         // out of undo's reach: a call with an effect is listed as staying
	WritesNothing   Writes = "nothing"  // nothing that an undo would have to revert or to list
	WritesRows      Writes = "rows"     // rows of the agent's database, which its changelog reverts
	WritesFiles     Writes = "files"    // files whose old content is recorded; a call without any record changed none
	WritesPlanned   Writes = "foreseen" // what a program writes: as WritesFiles if all of it was planned and came about
	WritesUndo      Writes = "back"     // files as they were before: the call itself is an undo
	WritesArtifact  Writes = "artifact" // an artifact, which stays, and is listed on its own
	WritesNotice    Writes = "notice"   // a notice, which stays
	WritesWake      Writes = "wake"     // the agent's next run, which stays
)

// Requirement is the condition for a run to have a tool at all. The agent's lists of tools can then
// allow or deny it, except for RequiresPhases, RequiresModule and RequiresExecutor.
type Requirement string

// The conditions. An agent also gets the tools of RequiresCommands and RequiresRepository by naming
// them in its list of tools (see IsNamed).
const (
	RequiresNothing        Requirement = ""
	RequiresModel          Requirement = "model"           // a model answers in the run: a playbook has none
	RequiresDatabase       Requirement = "database"        // the agent has a database
	RequiresCommands       Requirement = "commands"        // the agent may run some commands unasked
	RequiresRepository     Requirement = "repository"      // the working folder is a repository
	RequiresNetwork        Requirement = "network"         // the agent may ask some hosts
	RequiresSelfScheduling Requirement = "self_scheduling" // the agent plans its own runs
	RequiresSkills         Requirement = "skills"          // the agent sees some skills
	RequiresUnlisted       Requirement = "untold"          // some skills or tools are not listed for the model: these tools find them
	RequiresWorkspaces     Requirement = "workspaces"      // a skill of the agent keeps workspaces
	RequiresPhases         Requirement = "phases"          // the run goes in phases
	RequiresModule         Requirement = "module"          // a module runs whose manifest declares it
	RequiresOffer          Requirement = "offer"           // a skill of the agent offers it
	RequiresExecutor       Requirement = "executor"        // an installed agent program does the run
	RequiresServer         Requirement = "server"          // an MCP server of the agent has it, and its owner has approved it
)

// Report is a field of a tool's result (see Spec.Reports).
type Report string

// The fields.
const (
	ReportsNothing   Report = ""
	ReportsExit      Report = "exit_code" // of a program: 0 is a success
	ReportsStatus    Report = "status"    // of a server: below 400 is a success
	ReportsCommitted Report = "committed" // false: there was nothing to commit
)

// Spec is all that is known about a tool. There is no other list of tools: code that treats some of
// them differently asks for one of these properties. Name, description, effect and class are
// required. Other properties that are left out mean the worst.
//
// The Specs function of a tool family leaves out what only a run knows: Canonical, StatKey, Needs,
// and parts of Description and Enum.
type Spec struct {
	Name, Description string
	Effect            domain.Effect
	Class             Class
	Scope             Scope
	Writes            Writes
	Requires          Requirement
	// AliasOf is the tool that this one is an alias of. An agent has an alias only if its list of
	// tools names it.
	AliasOf string
	// SummaryArg is the argument that tells a person what a call does; "" shows all arguments.
	SummaryArg string
	// Reports is the field of a result that says whether the call achieved its purpose, such as an
	// exit code. The argument must_succeed makes a failed call of it.
	Reports Report
	Ends    bool // a success ends the run (OSA-06)
	// Once marks a tool whose calls write into a database together with the key of the call, so that a
	// repeated call changes nothing. The record of a run may lag behind such calls.
	Once bool
	// Waits: a success whose result is a question ends the attempt, not the run, which waits for the
	// answer (OSA-18). Any other success of such a tool ends nothing.
	Waits    bool
	Nests    bool   // a call is a run within the run: one at a time, and none within another (OSA-24)
	OnDemand bool   // ordinary tasks do without it: a model loads it, unless its agent names it
	Core     bool   // models with a small context are told of it
	Brief    string // for such a model; "": the first sentence of the description
	Paging   Paging // how a result is cut that is too long for a context
	// Timeout bounds a call: 0 means 120s. Below 0 the tool bounds itself, and ends soon after its
	// context.
	Timeout time.Duration
	// Args is the type of its arguments, a struct. Define fills it in if it is nil.
	Args reflect.Type
	// Schema is the JSON Schema of its arguments if no type describes them. Args is nil then.
	Schema json.RawMessage
	// Open marks a spec that stands for all tools whose names begin with its own. It is not a tool.
	Open bool
	Enum map[string][]string // allowed values of string arguments
	// Example is the arguments of a typical call, as JSON; "": ExampleArgs derives them from the
	// schema.
	Example string
	// Suggested are values of string arguments that a model is told of as if there were no others.
	Suggested map[string][]string
	// Synonyms are pairs of names for one argument. A call may use either, at any depth; a model is
	// told only of the one in the schema.
	Synonyms [][2]string
	// ReadsOnly reports whether a call only reads; nil means that no call does.
	ReadsOnly func(args json.RawMessage) bool
	// Path names the argument whose file is read or written: calls that write the same path take
	// turns. Canonical maps the names of a file to one; nil leaves them as they are.
	Path      string
	Canonical func(path string) string
	// StatKey returns a text that changes if the file at a path does; nil: only the run's own calls
	// change it.
	StatKey func(path string) string
	// AccessOf tells the authorizer what a call would do. It changes nothing, and gets arguments that fit
	// the schema. It may be nil for a tool that is Confined. Any other tool without it needs an
	// approval for each call.
	Access func(ctx context.Context, in Invocation, args json.RawMessage) (Access, error)
}

// NoNeeds is the Needs of a tool that is not Confined and needs no approval, because its effects
// are judged elsewhere.
func NoNeeds(context.Context, Invocation, json.RawMessage) (Access, error) { return Access{}, nil }

// Confined reports whether scope and effect alone keep the tool within what belongs to the agent.
func (s Spec) Confined() bool {
	return s.Scope != ScopeOutside && (s.Effect == domain.EffectRead || s.Effect == domain.EffectDatabase)
}

// Check reports what is missing in a spec, or wrong.
func (s Spec) Check() error {
	if s.Name == "" {
		return errors.New("a tool without a name was defined")
	}
	if s.Description == "" {
		return fmt.Errorf("tool %s: its description is missing, which is all that a model knows of it", s.Name)
	}
	for _, err := range []error{
		oneOf("effect", s.Effect, domain.EffectRead, domain.EffectDatabase, domain.EffectWrite, domain.EffectExternal),
		oneOf("class", s.Class, ClassOther, ClassRead, ClassList, ClassSearch, ClassLoad, ClassEdit, ClassExec, ClassData, ClassPlan),
		oneOf("scope", s.Scope, ScopeOutside, ScopeAgent, ScopeRun),
		oneOf("place to write", s.Writes, WritesElsewhere, WritesNothing, WritesRows, WritesFiles, WritesPlanned, WritesUndo,
			WritesArtifact, WritesNotice, WritesWake),
		oneOf("field that it reports by", s.Reports, ReportsNothing, ReportsExit, ReportsStatus, ReportsCommitted),
		oneOf("condition of being given", s.Requires, RequiresNothing, RequiresModel, RequiresDatabase, RequiresCommands,
			RequiresRepository, RequiresNetwork, RequiresSelfScheduling, RequiresSkills, RequiresUnlisted, RequiresWorkspaces,
			RequiresPhases, RequiresModule, RequiresOffer, RequiresExecutor, RequiresServer),
	} {
		if err != nil {
			return fmt.Errorf("tool %s: %w", s.Name, err)
		}
	}

	switch {
	case s.Args == nil && len(s.Schema) == 0 && !s.Open:
		return fmt.Errorf("tool %s: the type of its arguments is missing, by which a configuration is checked", s.Name)
	case s.Once && s.Effect != domain.EffectDatabase:
		return fmt.Errorf("tool %s: its calls are made once, and their effect is %s", s.Name, s.Effect)
	case s.Waits && !s.Ends:
		return fmt.Errorf("tool %s: it waits for a person and does not end its attempt", s.Name)
	}
	return nil
}

// oneOf returns an error if a value is not one of the known ones.
func oneOf[T ~string](what string, given T, known ...T) error {
	switch {
	case slices.Contains(known, given):
		return nil
	case given == "":
		return fmt.Errorf("its %s is missing: one of %q", what, known)
	}
	return fmt.Errorf("its %s %q is none of %q", what, given, known)
}

// Summary returns the value of the argument SummaryArg, or "".
func (s Spec) Summary(args json.RawMessage) string {
	var all map[string]json.RawMessage
	var text string
	if s.SummaryArg == "" || json.Unmarshal(args, &all) != nil || json.Unmarshal(all[s.SummaryArg], &text) != nil {
		return ""
	}
	return text
}

// CallText returns a call as a person reads it: a command line, or the arguments as JSON.
func (s Spec) CallText(args json.RawMessage) string {
	if summary := s.Summary(args); summary != "" {
		return summary
	}
	return jsonread.OneLine(args)
}

// Specs is a list of specs.
type Specs []Spec

// Find returns the spec of a tool by its name, or that of the open one that stands for it. For an
// unknown name it returns the zero Spec, which means the worst in every property.
func (s Specs) Find(name string) Spec {
	stands := -1
	for i := range s { // not by value: each is hundreds of bytes, and every run asks
		switch one := &s[i]; {
		case one.Name == name && !one.Open:
			return *one
		case one.Open && strings.HasPrefix(name, one.Name) && name != one.Name:
			stands = i
		}
	}

	if stands < 0 {
		return Spec{}
	}
	out := s[stands]
	out.Name, out.Open = name, false
	return out
}

// Names lists the tools, sorted.
func (s Specs) Names() []string {
	out := make([]string, len(s))
	for i, one := range s {
		out[i] = one.Name
	}
	slices.Sort(out)
	return out
}

// Listed reports whether lists of tools, playbooks and people can name a tool: all but those that
// come with phases, modules and executors, and open specs.
func (s Spec) Listed() bool {
	return s.Requires != RequiresPhases && s.Requires != RequiresModule && s.Requires != RequiresExecutor && !s.Open
}

// Callable names the tools that lists of tools, playbooks and people can call.
func (s Specs) Callable() []string { return s.Where(Spec.Listed).Names() }

// Where keeps the specs for which holds is true.
func (s Specs) Where(holds func(Spec) bool) Specs {
	var out Specs
	for _, one := range s {
		if holds(one) {
			out = append(out, one)
		}
	}
	return out
}

// IsNamed reports whether an agent's list of tools asks for a tool that not every agent has. A bare
// * does not.
func IsNamed(allow []string, name string) bool {
	return slices.ContainsFunc(allow, func(glob string) bool {
		ok, err := path.Match(glob, name)
		return ok && err == nil && glob != "*"
	})
}
