package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"rouse/internal/domain"
	"slices"
	"time"
)

// Class says how the loop treats the calls of a tool beside their effect.
type Class string

// The classes.
const (
	ClassOther  Class = "other"  // called as often as a model wants
	ClassRead   Class = "read"   // of the content at one path: gives the same until that changes (OSA-12)
	ClassList   Class = "list"   // of the names in one folder: as ClassRead
	ClassSearch Class = "search" // of many files: gives the same until any of them changes
	ClassEdit   Class = "edit"   // of one path
	ClassExec   Class = "exec"   // may change anything
	ClassData   Class = "data"   // moves many rows: its steps may be free (OSA-23)
	ClassPlan   Class = "plan"   // keeps the agent's own list or plan (OSA-14)
)

// Scope is how far the calls of a tool get.
type Scope string

// The scopes. What says nothing of it gets as far as there is.
const (
	// ScopeOutside is everything beyond what is the agent's: programs, other hosts, other people.
	// A tool of this scope is a system tool (OSL-19).
	ScopeOutside Scope = ""
	// ScopeAgent is what the agent has: its folders, its database, its skills, its notices and wakes.
	ScopeAgent Scope = "agent"
	// ScopeRun is the run alone: its end, its questions, its list. A replay lets these tools work;
	// the calls of all others it answers from the record.
	ScopeRun Scope = "run"
)

// Writes is where the calls of a tool write, and by it what an undo of their run does about them.
type Writes string

// The places. What says nothing of it writes where no undo gets.
const (
	WritesElsewhere Writes = ""         // no undo gets there: a call that did not only read is named as staying
	WritesNothing   Writes = "nothing"  // that an undo would have to take back or to name
	WritesRows      Writes = "rows"     // of the agent's database, whose changelog takes them back
	WritesFiles     Writes = "files"    // that were kept as they were; a call of which nothing was kept is named
	WritesForeseen  Writes = "foreseen" // what a program writes: as WritesFiles where all of it was foreseen and came about
	WritesBack      Writes = "back"     // files as they were before: the call is an undo itself
	WritesArtifact  Writes = "artifact" // which stays, and is named by itself
	WritesNotice    Writes = "notice"   // which stays
	WritesWake      Writes = "wake"     // the agent's next run, which stays
)

// Given is what there has to be for a run to have a tool, before its agent's lists of tools allow
// or deny it.
type Given string

// What tools are given with. Those of GivenCommands and GivenRepository an agent also gets by
// naming them in its list of tools (see Named).
const (
	GivenAlways     Given = ""
	GivenModel      Given = "model"           // that answers in the run: a playbook has none
	GivenDatabase   Given = "database"        // of the agent
	GivenCommands   Given = "commands"        // that the agent may run unasked
	GivenRepository Given = "repository"      // which the working folder is
	GivenNetwork    Given = "network"         // hosts that the agent may ask
	GivenPlanning   Given = "self_scheduling" // the agent plans its own runs
	GivenSkills     Given = "skills"          // that the agent sees
	GivenUntold     Given = "untold"          // skills or tools that the model is not told of: with these tools it finds them
	GivenPhases     Given = "phases"          // in which the run goes: the tool is neither allowed nor denied by itself
)

// Spec is all that is known about a tool. Nobody else keeps a list of tools: what has to treat some
// of them in another way asks for one of these properties. A name, a description, an effect and a
// class every tool must have; for the rest, what is left out is taken for the worst.
//
// What a Specs function of a family of tools gives lacks what only a run knows: Canonical, Look, Needs,
// and a part of Description and Enum.
type Spec struct {
	Name, Description string
	Effect            domain.Effect
	Class             Class
	Scope             Scope
	Writes            Writes
	Given             Given
	// SecondOf is the tool that this one is a second name of, for models of another school. An
	// agent has a second name only where its list of tools names it.
	SecondOf string
	// Says is the argument that says by itself what a call does, as a command line does; "": a
	// person is shown all arguments.
	Says  string
	Ends  bool // a success ends the run (OSA-06)
	Waits bool // a success ends the attempt, not the run, which waits for the answer to the call's question (OSA-18)
	Nests bool // a call is a run within the run: one at a time, and none within another (OSA-24)
	Rare  bool // a model whose context is narrow is not told of it
	// Timeout bounds a call: 0 means 120s; below 0 the tool ends by itself, and soon when its
	// context does: it is waited for.
	Timeout time.Duration
	Enum    map[string][]string // allowed values of string arguments
	// Reads says of a call that it only reads, whatever the tool does in others; nil: of none.
	Reads func(args json.RawMessage) bool
	// Path names the argument whose file is read or written: calls that write the same path
	// take turns. Canonical gives the many names of one file one; nil takes them as they are.
	Path      string
	Canonical func(path string) string
	// Look says what a path looks like now, so that a file that somebody else changed is read
	// again; nil: only the run's own calls change it.
	Look func(path string) string
	// Needs tells the gate what a call would do. It changes nothing, and gets arguments that fit
	// the schema. nil: nothing beyond what every run may do, of a tool that is Confined; of any
	// other nobody knows, so that its owner is asked about each of its calls.
	Needs func(ctx context.Context, in Invocation, args json.RawMessage) (Need, error)
}

// Nothing is the Needs of a tool that is not Confined, and whose calls need nothing all the same:
// what they do is judged elsewhere.
func Nothing(context.Context, Invocation, json.RawMessage) (Need, error) { return Need{}, nil }

// Confined says whether the tool stays within what is the agent's by its scope and its effect alone.
func (s Spec) Confined() bool {
	return s.Scope != ScopeOutside && (s.Effect == domain.EffectRead || s.Effect == domain.EffectDatabase)
}

// Check says what is missing in a spec, or wrong.
func (s Spec) Check() error {
	if s.Name == "" {
		return errors.New("a tool without a name was defined")
	}
	if s.Description == "" {
		return fmt.Errorf("tool %s: its description is missing, which is all that a model knows of it", s.Name)
	}

	for _, err := range []error{
		oneOf("effect", s.Effect, domain.EffectRead, domain.EffectDatabase, domain.EffectWrite, domain.EffectExternal),
		oneOf("class", s.Class, ClassOther, ClassRead, ClassList, ClassSearch, ClassEdit, ClassExec, ClassData, ClassPlan),
		oneOf("scope", s.Scope, ScopeOutside, ScopeAgent, ScopeRun),
		oneOf("place to write", s.Writes, WritesElsewhere, WritesNothing, WritesRows, WritesFiles, WritesForeseen, WritesBack, WritesArtifact, WritesNotice, WritesWake),
		oneOf("condition of being given", s.Given, GivenAlways, GivenModel, GivenDatabase, GivenCommands, GivenRepository, GivenNetwork, GivenPlanning, GivenSkills, GivenUntold, GivenPhases),
	} {
		if err != nil {
			return fmt.Errorf("tool %s: %w", s.Name, err)
		}
	}

	if s.Waits && !s.Ends {
		return fmt.Errorf("tool %s: it waits for a person and does not end its attempt", s.Name)
	}

	return nil
}

// oneOf refuses a property that was not given, unless that has a meaning, and one that there is not.
func oneOf[T ~string](what string, given T, known ...T) error {
	switch {
	case slices.Contains(known, given):
		return nil
	case given == "":
		return fmt.Errorf("its %s is missing: one of %q", what, known)
	}
	return fmt.Errorf("its %s %q is none of %q", what, given, known)
}

// Text is the argument that says by itself what a call does, "" where there is none.
func (s Spec) Text(args json.RawMessage) string {
	var all map[string]json.RawMessage
	var text string
	if s.Says == "" || json.Unmarshal(args, &all) != nil || json.Unmarshal(all[s.Says], &text) != nil {
		return ""
	}
	return text
}

// Specs is what is known of several tools.
type Specs []Spec

// Find is what is known of the tool of a name. Of one that there is not it is the zero Spec, which
// takes everything for the worst.
func (s Specs) Find(name string) Spec {
	for _, one := range s {
		if one.Name == name {
			return one
		}
	}
	return Spec{}
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

// Callable lists the tools that lists of tools, playbooks and people can name: all but those that
// come with the way in which a run goes.
func (s Specs) Callable() []string {
	return s.Where(func(one Spec) bool { return one.Given != GivenPhases }).Names()
}

// Where are the tools of which something holds.
func (s Specs) Where(holds func(Spec) bool) Specs {
	var out Specs
	for _, one := range s {
		if holds(one) {
			out = append(out, one)
		}
	}
	return out
}

// Named says whether an agent's list of tools asks for one that not every agent has; "all tools"
// does not.
func Named(allow []string, name string) bool {
	return slices.ContainsFunc(allow, func(glob string) bool {
		ok, err := path.Match(glob, name)
		return ok && err == nil && glob != "*"
	})
}
