package agent

import (
	"rouse/agent/loop"
	"rouse/agent/tool"
)

// narrowContext is how many tokens a context must hold for all tools of an agent to be told of: their
// schemas alone are five thousand.
const narrowContext = 16_384

// toolShare is the part of a narrow context that the list of tools may take: a third leaves as much for
// the prompt and the answer, and as much for what the calls come to.
const toolShare = 3

// promptPart is how long a part of a prompt may be that the host writes, by how long it is at most: in a
// narrow context it has half of what its share would be, for there the tools take more than theirs.
func (t *task) promptPart(most int) int {
	if t.model == nil || t.model.ContextSize() <= 0 || t.model.ContextSize() >= narrowContext {
		return most
	}
	return most * t.model.ContextSize() / (2 * narrowContext)
}

// listing is how a model is told of the tools of its run.
type listing struct {
	unlisted []string // can be found and loaded, and called by name all the same
	brief    bool
}

// listingOf is the fullest listing that a context has room for, and the same for all attempts at a run.
// What an agent's on_demand says decides over what is listed, and the context over the words alone.
func listingOf(t task, granted *tool.Registry) listing {
	all := listingsOf(t, granted)
	for _, l := range all[:len(all)-1] {
		if loop.ToolTokens(l.apply(granted).ModelTools()) <= loop.UsableWindow(t.model.ContextSize())/toolShare {
			return l
		}
	}
	return all[len(all)-1]
}

// listingsOf are the listings to choose from, the fullest first.
func listingsOf(t task, granted *tool.Registry) []listing {
	narrow := t.model != nil && t.model.ContextSize() > 0 && t.model.ContextSize() < narrowContext
	unlisted := func(apart func(tool.Spec) bool) []string {
		return unlisted(granted, func(s tool.Spec) bool { return t.offersApart(s.Name) || apart(s) })
	}
	if globs := t.agent.OnDemand; globs != nil {
		chosen := unlisted(func(s tool.Spec) bool { return len(globs) > 0 && tool.IsAllowed(globs, nil, s.Name) })
		if !narrow {
			return []listing{{unlisted: chosen}}
		}
		return []listing{{unlisted: chosen}, {chosen, true}}
	}
	if !narrow {
		return []listing{{unlisted: unlisted(func(tool.Spec) bool { return false })}}
	}

	common := unlisted(func(s tool.Spec) bool { return s.WideContextOnly })
	core := unlisted(func(s tool.Spec) bool { return !s.Core })
	return []listing{{unlisted: common}, {common, true}, {core, true}}
}

// unlisted names the tools that a model is not told of. Those by which a run ends or waits it is told of
// always.
func unlisted(granted *tool.Registry, apart func(tool.Spec) bool) (out []string) {
	for _, name := range granted.Names() {
		if one, _ := granted.Lookup(name); apart(one.Spec()) && !one.Ends() {
			out = append(out, name)
		}
	}
	return out
}

// apply is what a model would be told of.
func (l listing) apply(granted *tool.Registry) *tool.Registry {
	if l.brief {
		granted = granted.Briefly()
	}
	return granted.WithUnlisted(l.unlisted)
}
