package skill

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/text"
	"rouse/skills"
)

//go:embed load_skill.md
var loadText string

//go:embed capabilities_discover.md
var discoverText string

//go:embed capabilities_load.md
var loadAllText string

// The specs of the tools.
var (
	loadSpec = tool.Spec{
		Name: "load_skill", Description: loadText, Effect: domain.EffectRead, Class: tool.ClassLoad, Scope: tool.ScopeAgent, Writes: tool.WritesNothing,
		Example: `{"skill_name":"csv-report"}`, Args: reflect.TypeFor[loadArgs](), Requires: tool.RequiresSkills, Core: true,
	}
	discoverSpec = tool.Spec{
		Name: "capabilities_discover", Description: strings.TrimSpace(discoverText), Effect: domain.EffectRead, Class: tool.ClassOther, Scope: tool.ScopeAgent, Writes: tool.WritesNothing,
		Example: `{"query":"write a table as a PDF"}`, Args: reflect.TypeFor[discoverArgs](), Requires: tool.RequiresUnlisted, Core: true,
	}
	loadAllSpec = tool.Spec{
		Name: "capabilities_load", Description: loadAllText, Effect: domain.EffectRead, Class: tool.ClassLoad, Scope: tool.ScopeAgent, Writes: tool.WritesNothing,
		Example: `{"ids":["skill/csv-report","tool/db_export"]}`, Args: reflect.TypeFor[loadAllArgs](), Requires: tool.RequiresUnlisted, Core: true,
	}
)

// Specs returns the specs of all tools in this package.
func Specs() tool.Specs { return tool.Specs{loadSpec, discoverSpec, loadAllSpec} }

const (
	skillPrefix = "skill/"
	toolPrefix  = "tool/"

	maxListedSkills  = 20 // skills listed in a schema; if there are more, models must search
	maxQueries       = 8
	maxHitsPerQuery  = 10 // per query
	maxIDs           = 20
	maxUnlistedNamed = 60  // unlisted tools that the model sees by name
	maxDescription   = 300 // characters of a description
)

// Tools returns load_skill if there are skills. If some skills or tools are not listed for the
// model, it also returns the tools that find and load them.
func (s *Loader) Tools() ([]tool.Tool, error) {
	var out []tool.Tool
	allListed := true
	if !s.View.Empty() {
		load, all, err := s.loadTool()
		if err != nil {
			return nil, err
		}
		out, allListed = append(out, load), all
	}
	if allListed && len(s.Unlisted.Names()) == 0 {
		return out, nil
	}

	discover, err := tool.Define(discoverSpec, s.discover)
	if err != nil {
		return nil, err
	}

	spec := loadAllSpec
	spec.Description = strings.TrimSpace(spec.Description)
	names := text.List(s.Unlisted.Names(), maxUnlistedNamed)
	switch {
	case s.ToolsOnly || s.View.Empty():
		spec.Description = "Load tools by name, then call them: " + names + "."
	case names != "":
		spec.Description += " Tools: " + names + "."
	}
	spec.Brief = spec.Description
	loadAll, err := tool.Define(spec, s.loadAll)
	return append(out, discover, loadAll), err
}

// Unlisted returns the set of tools that are not listed for a run's model. The set includes
// capabilities_discover if the descriptions of load_skill and capabilities_load already name
// everything.
func Unlisted(v skills.View, names, loaded []string) *tool.Unlisted {
	if len(names) > 0 && len(names) < maxUnlistedNamed && namesAll(v) {
		names = append(slices.Clip(names), discoverSpec.Name)
	}
	return tool.NewUnlisted(names, loaded...)
}

// namesAll reports whether the model sees the name of every skill.
func namesAll(v skills.View) bool {
	_, more := v.Listed()
	return more == 0 && len(v.All()) <= maxListedSkills
}

// loadTool returns load_skill and the result of namesAll.
func (s *Loader) loadTool() (load tool.Tool, all bool, err error) {
	names := make([]string, 0, maxListedSkills)
	for _, sk := range s.View.All() {
		names = append(names, sk.Name)
	}

	spec := loadSpec
	if len(names) <= maxListedSkills {
		spec.Suggested = map[string][]string{"skill_name": names}
	}

	load, err = tool.Define(spec, func(_ context.Context, _ tool.Invocation, a loadArgs) (tool.Envelope, error) {
		return s.load(a.Name, a.Again), nil
	})
	return load, namesAll(s.View), err
}

type loadArgs struct {
	Name  string `json:"skill_name" jsonschema:"name of the skill, or the absolute path of its folder"`
	Again bool   `json:"again,omitempty" jsonschema:"give its instructions once more, when they are not in sight any more"`
}

type discoverArgs struct {
	Query   string   `json:"query,omitempty" jsonschema:"words of what you want to do"`
	Queries []string `json:"queries,omitempty" jsonschema:"or several such, at most 8"`
}

type found struct {
	ID          string `json:"id"`
	Description string `json:"description"`
}

// discover ranks skills and tools by the words of the queries.
func (s *Loader) discover(_ context.Context, _ tool.Invocation, a discoverArgs) (tool.Envelope, error) {
	queries := a.Queries
	if strings.TrimSpace(a.Query) != "" {
		queries = append([]string{a.Query}, queries...)
	}

	switch {
	case len(queries) == 0:
		return tool.Failure(tool.KindInvalidArgs, "say in words what you are looking for").WithField("query", "some words"), nil
	case len(queries) > maxQueries:
		return tool.Failure(tool.KindInvalidArgs, "%d queries are more than the %d that are allowed at once", len(queries), maxQueries).WithField("queries", "8 or fewer"), nil
	}

	finder := s.finder()
	ranked := make([][]skills.Hit, len(queries))
	for i, q := range queries {
		ranked[i] = finder.Search(q, maxHitsPerQuery)
	}

	// Interleave the hits by rank, so that one query does not crowd out another.
	var out []found
	for rank := range maxHitsPerQuery {
		for _, hits := range ranked {
			if rank < len(hits) && !slices.ContainsFunc(out, func(f found) bool { return f.ID == hits[rank].ID }) {
				out = append(out, found{hits[rank].ID, text.Truncate(text.Collapse(hits[rank].Description), maxDescription)})
			}
		}
	}
	if len(out) == 0 {
		return tool.Success(map[string]any{"found": []found{}}, "nothing has any of these words; try others, or do the task with the tools that you have"), nil
	}

	return tool.Success(map[string]any{"found": out}), nil
}

// entries returns everything that discover can find.
func (s *Loader) entries() []skills.Entry {
	var out []skills.Entry
	if !s.ToolsOnly {
		for _, sk := range s.View.All() {
			out = append(out, sk.Entry())
		}
	}

	if s.Options.Tools == nil {
		return out
	}

	for _, name := range s.Options.Tools.Names() {
		if t, ok := s.Options.Tools.Lookup(name); ok {
			out = append(out, skills.Entry{ID: toolPrefix + name, Name: name, Description: t.Description()})
		}
	}

	return out
}

type loadAllArgs struct {
	IDs []string `json:"ids"`
}

type loadedAll struct {
	Loaded  []string `json:"loaded"`
	Already []string `json:"already_loaded,omitempty"`
	Note    string   `json:"note,omitempty"`
	Content string   `json:"skill_content,omitempty"`
}

// loadAll loads each id. It returns the first failure if every id fails. Otherwise it succeeds,
// with a warning for each failed id.
func (s *Loader) loadAll(_ context.Context, _ tool.Invocation, a loadAllArgs) (tool.Envelope, error) {
	if len(a.IDs) == 0 || len(a.IDs) > maxIDs {
		return tool.Failure(tool.KindInvalidArgs, "%d ids were given", len(a.IDs)).WithField("ids", fmt.Sprintf("1 to %d ids like skill/NAME", maxIDs)), nil
	}

	out := loadedAll{Loaded: []string{}}
	var contents, warnings []string
	var first *tool.Envelope
	for _, id := range a.IDs {
		e := s.loadOne(id, &out, &contents)
		if !e.OK {
			warnings = append(warnings, fmt.Sprintf("%s was not loaded (%s): %s", id, e.Kind, e.Message))
			first = cmp.Or(first, &e)
		}
	}
	if len(warnings) == len(a.IDs) {
		return *first, nil
	}

	out.Content = strings.Join(contents, "\n\n")
	return tool.Success(out, warnings...), nil
}

// loadOne loads one id into out.
func (s *Loader) loadOne(id string, out *loadedAll, contents *[]string) tool.Envelope {
	if name, ok := strings.CutPrefix(id, skillPrefix); ok {
		if s.ToolsOnly {
			return tool.Failure(tool.KindRejected, "this agent may not load skills; its owner can allow %s under tools", loadSpec.Name)
		}
		e := s.load(name, false)
		var l loaded
		if !e.OK || json.Unmarshal(e.Result, &l) != nil {
			return e
		}

		if l.Content == "" {
			out.Already = append(out.Already, id)
		} else {
			out.Loaded = append(out.Loaded, skillPrefix+l.Skill)
			*contents = append(*contents, l.Content)
		}

		return e
	}

	name, ok := strings.CutPrefix(id, toolPrefix)
	if !ok && !slices.Contains(s.Unlisted.Names(), id) { // models also use the name from the description
		return tool.Failure(tool.KindInvalidArgs, "%q is no id; ids are like skill/NAME or tool/NAME", id)
	}

	if s.Options.Tools != nil {
		if _, ok := s.Options.Tools.Lookup(name); ok {
			out.Loaded = append(out.Loaded, toolPrefix+name)
			out.Note = "these tools can be called now"
			return tool.Success(loaded{})
		}
	}
	if slices.Contains(s.Denied, name) {
		return tool.Failure(tool.KindRejected, "the tool %s is not among those of this agent; its owner can allow it under tools", name)
	}

	return tool.Failure(tool.KindToolNotFound, "there is no tool %q", name)
}
