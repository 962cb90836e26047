package agent

import (
	"context"
	"encoding/json"
	"slices"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/skill"
	"rouse/skills/install"
)

// skillTools adds the tools for skills. It also makes reading a SKILL.md file load the skill. The
// tools of a reduction do not include them.
func skillTools(t *attempt, _ *tool.Roots, granted *tool.Registry, all []tool.Tool) (*tool.Registry, error) {
	if !t.NeedsModel() {
		return granted, nil
	}

	listed := listingOf(t, granted)
	allows := func(name string) bool { return tool.IsAllowed(t.Agent.Allow, t.Agent.Deny, name) }
	o := skill.Options{View: t.Agent.Skills.View, Verify: install.Verify, Loaded: t.loaded, Tools: granted, Unlisted: skill.Unlisted(t.Agent.Skills.View, listed.unlisted, t.loadedTools)}
	o.ToolsOnly = !slices.ContainsFunc(skill.Specs().Names(), allows)
	for _, one := range all {
		if _, ok := granted.Lookup(one.Name()); !ok {
			o.Denied = append(o.Denied, one.Name())
		}
	}

	shelf := skill.New(o)
	more, err := shelf.Tools()
	if err != nil {
		return nil, err
	}

	var out []tool.Tool
	for _, name := range granted.Names() {
		one, _ := granted.Lookup(name)
		if path := one.Spec().Path; one.Class() == tool.ClassRead && path != "" && t.wrapTool == nil {
			one = one.WithOverride(func(_ context.Context, args json.RawMessage) (tool.Envelope, bool) {
				return skillRead(shelf, path, args)
			})
		}
		out = append(out, one)
	}

	// The agent's lists apply to these tools too. Tools that find unlisted tools need not be in the
	// allow list.
	finders := skill.Specs().Where(func(s tool.Spec) bool { return s.Requires == tool.RequiresUnlisted })
	canFind := len(listed.unlisted) > 0 && !slices.ContainsFunc(finders.Names(), func(name string) bool { return !tool.IsAllowed(nil, t.Agent.Deny, name) })
	for _, one := range more {
		if !allows(one.Name()) && (!canFind || one.Spec().Requires != tool.RequiresUnlisted) {
			continue
		}
		if t.wrapTool != nil {
			one = t.wrapTool(one)
		}
		out = append(out, shelf.Listing(one))
	}
	registry, err := tool.NewRegistry(out...)
	if err != nil {
		return nil, err
	}

	if listed.brief {
		registry = registry.Briefly()
	}

	if !canFind { // the model could not load a tool
		return registry, nil
	}
	return registry.WithUnlisted(o.Unlisted), nil
}

// skillRead answers a call that reads a whole SKILL.md file. argument is the name of the path
// argument. It reports false if the call reads another file or only a part.
func skillRead(shelf *skill.Loader, argument string, args json.RawMessage) (tool.Envelope, bool) {
	var a map[string]json.RawMessage
	var path string
	if json.Unmarshal(args, &a) != nil || len(a) != 1 || json.Unmarshal(a[argument], &path) != nil {
		return tool.Envelope{}, false
	}
	return shelf.LoadFile(path)
}

// loadedSkills returns the skills that are already in the model's context.
func loadedSkills(t *attempt) *skill.LoadedSet {
	out := skill.LoadedIn(t.past.Messages)
	for _, a := range t.found.Activated {
		out = append(out, a.Name)
	}

	for _, p := range t.Agent.Skills.Preloaded {
		out = append(out, p.Name)
	}
	return skill.NewLoadedSet(out...)
}

// allowedBySkills returns a function that returns the commands allowed by loaded skills. It returns
// nil if the agent's skills do not allow commands.
func (t *attempt) allowedBySkills() func() []shell.Grant {
	all := t.SkillsAllowingCommands()
	if len(all) == 0 {
		return nil
	}

	return func() (out []shell.Grant) {
		for _, a := range all {
			if t.loaded.Has(a.Name) && install.Verify(a.Skill) == nil { // unchanged since it was loaded
				out = append(out, a.Grants...)
			}
		}
		return out
	}
}
