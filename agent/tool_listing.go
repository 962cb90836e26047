package agent

import (
	"slices"

	"rouse/agent/loop"
	"rouse/agent/prompt"
	"rouse/agent/tool"
)

// toolShare is the divisor of the context size that limits the list of tools: one third.
const toolShare = 3

type listing struct {
	unlisted []string // tools omitted from the list; the model can load or call them by name
	brief    bool     // shortened descriptions
}

// listingOf returns the fullest listing that fits into the model's context. It returns the same
// listing for all attempts of a run.
func listingOf(t *attempt, granted *tool.Registry) listing {
	all := listingsOf(t, granted)
	for _, l := range all[:len(all)-1] {
		if loop.ToolTokens(l.apply(granted).ModelTools()) <= loop.UsableWindow(t.Model.ContextSize())/toolShare {
			return l
		}
	}
	return all[len(all)-1]
}

// listingsOf returns the possible listings, the fullest first.
func listingsOf(t *attempt, granted *tool.Registry) []listing {
	unlisted := func(apart func(tool.Spec) bool) []string {
		return unlisted(granted, func(s tool.Spec) bool { return t.offersApart(s.Name) || apart(s) })
	}
	named := func(s tool.Spec) bool {
		return slices.Contains(t.Agent.Allow, s.Name) || s.Writes == tool.WritesArtifact && t.Agent.HostFolder != "" // named in the prompt
	}
	chosen := unlisted(func(s tool.Spec) bool { return s.OnDemand && !named(s) })
	globs := t.Agent.OnDemand
	if globs != nil {
		chosen = unlisted(func(s tool.Spec) bool { return len(globs) > 0 && tool.IsAllowed(globs, nil, s.Name) })
	}

	narrow := t.Model != nil && t.Model.ContextSize() > 0 && t.Model.ContextSize() < prompt.NarrowContext
	out := []listing{{unlisted: chosen}}
	if narrow {
		out = append(out, listing{chosen, true})
	}
	if narrow && globs == nil {
		out = append(out, listing{unlisted(func(s tool.Spec) bool { return !s.Core && !named(s) }), true})
	}
	return out
}

// unlisted returns the names of the tools for which apart returns true. It omits tools that end the
// run or make it wait, because they are always listed.
func unlisted(granted *tool.Registry, apart func(tool.Spec) bool) (out []string) {
	for _, name := range granted.Names() {
		if one, _ := granted.Lookup(name); apart(one.Spec()) && !one.Ends() {
			out = append(out, name)
		}
	}
	return out
}

func (l listing) apply(granted *tool.Registry) *tool.Registry {
	if l.brief {
		granted = granted.Briefly()
	}
	return granted.WithUnlisted(tool.NewUnlisted(l.unlisted))
}
