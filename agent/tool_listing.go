package agent

import (
	"slices"

	"rouse/agent/loop"
	"rouse/agent/prompt"
	"rouse/agent/tool"
)

// toolShare is the divisor of a narrow context for the list of tools.
const toolShare = 3

type listing struct {
	unlisted []string // can be loaded, and called by name all the same
	brief    bool
}

// listingOf returns the fullest listing that a context has room for. It is the same for all attempts of a run.
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
		return slices.Contains(t.Agent.Allow, s.Name) || s.Writes == tool.WritesArtifact && t.Agent.HostFolder != "" // as its prompt does
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

// unlisted returns the names of the tools for which apart is true. Tools by which a run ends or waits are always listed.
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
