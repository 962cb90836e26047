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

// Class determines how the loop treats the calls of a tool, in addition to their effect.
type Class string

// The classes.
const (
	ClassOther  Class = "other"  // repeated calls are not limited
	ClassRead   Class = "read"   // reads one path; the result is the same until the path changes
	ClassList   Class = "list"   // lists one folder; the result is the same until the folder changes
	ClassSearch Class = "search" // searches many files; the result is the same until one changes
	ClassLoad   Class = "load"   // loads content that is constant for the run; a failed call fails again
	ClassEdit   Class = "edit"   // changes one path
	ClassExec   Class = "exec"   // may change anything
	ClassData   Class = "data"   // transfers many rows; the loop may exempt its steps from the step limit
	ClassPlan   Class = "plan"   // changes the agent's own todo list or plan
)

// Scope is the range of the calls of a tool.
type Scope string

// The scopes.
const (
	// ScopeOutside covers everything outside the agent. A tool with this scope is a system tool.
	ScopeOutside Scope = ""
	// ScopeAgent covers the agent's folders, database, skills, notices and wakes.
	ScopeAgent Scope = "agent"
	// ScopeRun covers only the run. A replay executes these tools and answers others from the
	// recording.
	ScopeRun Scope = "run"
)

// Writes is the target of the writes of a tool. It determines how to undo a run.
type Writes string

// The targets of writes.
const (
	WritesElsewhere Writes = ""         // cannot be undone; an undo lists calls with an effect as permanent
	WritesNothing   Writes = "nothing"  // no writes to undo or to list
	WritesRows      Writes = "rows"     // rows of the agent's database, which its changelog can revert
	WritesFiles     Writes = "files"    // files with recorded old content; a call without a record changed no file
	WritesPlanned   Writes = "foreseen" // files of a program; like WritesFiles if exactly the planned changes happened
	WritesUndo      Writes = "back"     // files restored by an undo
	WritesArtifact  Writes = "artifact" // an artifact, which is permanent and listed separately
	WritesNotice    Writes = "notice"   // a notice, which is permanent
	WritesWake      Writes = "wake"     // the agent's next run, which is permanent
)

// Requirement is the condition under which a run has a tool. The agent's allow and deny lists apply
// in addition, except for RequiresPhases, RequiresModule and RequiresExecutor.
type Requirement string

// The requirements. An agent also gets the tools of RequiresCommands and RequiresRepository by
// naming them in its list of tools, see IsNamed.
const (
	RequiresNothing        Requirement = ""
	RequiresModel          Requirement = "model"           // a model does the run
	RequiresDatabase       Requirement = "database"        // the agent has a database
	RequiresCommands       Requirement = "commands"        // the agent may run some commands without approval
	RequiresRepository     Requirement = "repository"      // the workdir is a git repository
	RequiresNetwork        Requirement = "network"         // the agent may contact some hosts
	RequiresSelfScheduling Requirement = "self_scheduling" // the agent may schedule its own runs
	RequiresSkills         Requirement = "skills"          // the agent has skills
	RequiresUnlisted       Requirement = "untold"          // some skills or tools are unlisted; these tools find them
	RequiresWorkspaces     Requirement = "workspaces"      // a skill of the agent keeps workspaces
	RequiresPhases         Requirement = "phases"          // the run is phased
	RequiresModule         Requirement = "module"          // the run's module declares the tool in its manifest
	RequiresOffer          Requirement = "offer"           // a skill of the agent offers the tool
	RequiresExecutor       Requirement = "executor"        // an executor does the run
	RequiresServer         Requirement = "server"          // an MCP server of the agent has the tool, with approval
)

// Report is a field of a tool's result, see Spec.Reports.
type Report string

// The report fields.
const (
	ReportsNothing   Report = ""
	ReportsExit      Report = "exit_code" // exit code of a program; 0 means success
	ReportsStatus    Report = "status"    // status of a server; below 400 means success
	ReportsCommitted Report = "committed" // false if there were no changes to commit
)

// Spec describes a tool. There is no other list of tools: code that treats some tools differently
// uses these properties. Name, Description, Effect and Class are required. If another property is
// not set, the worst case is assumed.
//
// The Specs function of a tool family omits the properties that depend on the run: Canonical,
// StatKey, Access, and parts of Description and Enum.
type Spec struct {
	Name, Description string
	Effect            domain.Effect
	Class             Class
	Scope             Scope
	Writes            Writes
	Requires          Requirement
	// AliasOf is the name of the tool for which this tool is an alias. An agent has an alias only
	// if its list of tools names the alias.
	AliasOf string
	// SummaryArg is the argument that summarizes a call for people. If empty, all arguments are
	// shown.
	SummaryArg string
	// Reports is the result field that contains the success of the operation, such as an exit code.
	// The argument must_succeed fails the call if the field reports a failure.
	Reports Report
	Ends    bool // a successful call ends the run
	// Once marks a tool that stores the key of each call in a database together with its writes, so
	// that a repeated call has no effect. The record of a run may lag behind such calls.
	Once bool
	// Waits marks a tool that can ask a question. If the result of a call is a question, the
	// attempt ends and the run waits for the answer. Other successful calls of the tool do not end
	// the run.
	Waits    bool
	Nests    bool   // a call is a run within the run; such calls do not run in parallel or nested
	OnDemand bool   // unlisted until the model loads the tool, unless the agent names it
	Core     bool   // listed even for models with a small context
	Brief    string // description for models with a small context; "" means the first sentence
	Paging   Paging // way to cut results that are too long for a context
	// Timeout is the time limit of a call. Zero means 120s. If negative, the tool limits itself and
	// must end soon after its context.
	Timeout time.Duration
	// Args is the type of the arguments, a struct. Define sets it if it is nil.
	Args reflect.Type
	// Schema is the JSON Schema of the arguments if Args is nil.
	Schema json.RawMessage
	// Open marks a spec that describes all tools with names that begin with its name. It is not a
	// tool.
	Open bool
	Enum map[string][]string // allowed values of string arguments
	// Example contains the arguments of a typical call, as JSON. If empty, ExampleArgs derives them
	// from the schema.
	Example string
	// Suggested contains values of string arguments. Models see only these values, but calls may
	// use others.
	Suggested map[string][]string
	// Synonyms lists pairs of names for one argument. A call may use either name, at any depth.
	// Models see only the name in the schema.
	Synonyms [][2]string
	// ReadsOnly reports whether a call only reads. If nil, every call has the effect in Effect.
	ReadsOnly func(args json.RawMessage) bool
	// Path is the name of the argument that names the file to read or write. Calls that write the
	// same path do not run in parallel. Canonical returns one path for all names of a file. If nil,
	// paths are compared as given.
	Path      string
	Canonical func(path string) string
	// StatKey returns a string that changes if the file at a path changes. If nil, files are
	// assumed to change only by the run's own calls.
	StatKey func(path string) string
	// Access returns the Access of a call for the authorizer. It must not have effects. It is
	// called only with valid arguments. It may be nil if the tool is Confined. Otherwise, without
	// it, each call needs an approval.
	Access func(ctx context.Context, in Invocation, args json.RawMessage) (Access, error)
}

// NoNeeds returns the zero Access. It is the Access function of tools that are not Confined but
// need no approval, because their effects are authorized elsewhere.
func NoNeeds(context.Context, Invocation, json.RawMessage) (Access, error) { return Access{}, nil }

// Confined reports whether the scope and effect limit the tool to the agent's own data.
func (s Spec) Confined() bool {
	return s.Scope != ScopeOutside && (s.Effect == domain.EffectRead || s.Effect == domain.EffectDatabase)
}

// Check returns an error if a required property is missing or a property is invalid.
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

// oneOf returns an error if a value is not one of the known values.
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

// CallText returns a call as text for people: the summary, or the arguments as JSON.
func (s Spec) CallText(args json.RawMessage) string {
	if summary := s.Summary(args); summary != "" {
		return summary
	}
	return jsonread.OneLine(args)
}

// Specs is a list of specs.
type Specs []Spec

// Find returns the spec of a tool by name, or the open spec that describes it. For an unknown name
// it returns the zero Spec, for which callers assume the worst case.
func (s Specs) Find(name string) Spec {
	stands := -1
	for i := range s { // by index, because copying large specs is slow
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

// Names returns the sorted names of the tools.
func (s Specs) Names() []string {
	out := make([]string, len(s))
	for i, one := range s {
		out[i] = one.Name
	}
	slices.Sort(out)
	return out
}

// Listed reports whether lists of tools, playbooks and people can name the tool. It returns false
// for tools of phases, modules and executors, and for open specs.
func (s Spec) Listed() bool {
	return s.Requires != RequiresPhases && s.Requires != RequiresModule && s.Requires != RequiresExecutor && !s.Open
}

// Callable returns the sorted names of the tools for which Listed returns true.
func (s Specs) Callable() []string { return s.Where(Spec.Listed).Names() }

// Where returns the specs for which holds returns true.
func (s Specs) Where(holds func(Spec) bool) Specs {
	var out Specs
	for _, one := range s {
		if holds(one) {
			out = append(out, one)
		}
	}
	return out
}

// IsNamed reports whether a glob in an agent's allow list names a tool. The glob * does not count.
func IsNamed(allow []string, name string) bool {
	return slices.ContainsFunc(allow, func(glob string) bool {
		ok, err := path.Match(glob, name)
		return ok && err == nil && glob != "*"
	})
}
