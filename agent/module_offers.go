package agent

import (
	"context"
	"encoding/json"
	"runtime"
	"slices"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agent/tool/host"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/skill"
	"rouse/agentdb/ledger"
	"rouse/skills"
	"rouse/skills/install"
)

// offer is a tool of a skill that a run has (OSL-32).
type offer struct {
	host.Offer
	skill *skills.Skill
	// apart: the model is not told of it, and finds it as it finds the skill, which its agent does not name.
	apart bool
}

// offersOf are the tools that the skills of a task's agent offer to its run: those of skills that can be run here with what the
// agent is granted, and are what was installed. registered are those that their modules have registered, by skill.
func (r *Runner) offersOf(t *attempt, registered map[string][]host.Offer) (out []offer) {
	if t.job.Skill != nil { // a module calls no others
		return nil
	}

	view := t.agent.Skills.View
	for i, s := range view.All() {
		apart := t.needsModel() && i >= len(view.Preloaded)
		if s.Manifest == nil || apart && !r.findsTools(t) || r.cannotOffer(t, s) {
			continue
		}

		fit, _ := host.Offers(s) // what does not fit is said where the configuration is checked
		for _, o := range slices.Concat(fit, registered[s.Name]) {
			out = append(out, offer{o, s, apart})
		}
	}
	return out
}

// findsTools says whether the model of a task can find tools that it is not told of.
func (r *Runner) findsTools(t *attempt) bool {
	return !slices.ContainsFunc(skill.Specs(), func(s tool.Spec) bool {
		return s.Requires == tool.RequiresUnlisted && !tool.IsAllowed(t.agent.Allow, t.agent.Deny, s.Name)
	})
}

// cannotOffer says whether a skill cannot be run for the agent of a task.
func (r *Runner) cannotOffer(t *attempt, s *skills.Skill) bool {
	has := func(name string) bool {
		return t.given(r.Specs().Find(name)) && tool.IsAllowed(t.agent.Allow, t.agent.Deny, name)
	}
	can := host.Capabilities{Network: len(t.agent.Network) > 0, Model: t.model != nil, Commands: has(shell.RunName()), Writing: has(file.WriteName()), Servers: t.agent.serverNames()}
	needed, _ := host.Ungranted(s.Manifest, can, t.agent.secretNames())
	return !s.Manifest.Supports(runtime.GOOS) || len(host.Missing(s.Manifest)) > 0 || len(needed) > 0 || install.Verify(s) != nil
}

// secretNames are the secrets that an agent is granted.
func (a Agent) secretNames() (out []string) {
	for _, g := range a.Secrets {
		out = append(out, g.Name)
	}
	return out
}

// registeredOffers are the tools that the modules of a task's skills have registered, by skill. A storage that cannot be read is the
// skill's, and no reason to end the run.
func (r *Runner) registeredOffers(ctx context.Context, t *attempt) map[string][]host.Offer {
	out := map[string][]host.Offer{}
	if t.job.Skill != nil {
		return out
	}

	for _, s := range t.agent.Skills.All() {
		if s.Manifest == nil || len(s.Manifest.Tools) == 0 { // its module can register none
			continue
		}
		more, err := host.Registered(ctx, r.storageOf(t.agent.Name, s.Name), s)
		if err != nil {
			r.log.Warn("the tools that a skill has registered cannot be read", "agent", t.agent.Name, "skill", s.Name, "error", err)
		}
		if len(more) > 0 {
			out[s.Name] = more
		}
	}
	return out
}

// registeredPlaces are the storages from which a model is told of tools: it reads what their skills wrote there.
func (r *Runner) registeredPlaces(t *attempt, registered map[string][]host.Offer) (out []ledger.Place) {
	for name := range registered {
		out = append(out, host.StoragePlace(r.storageOf(t.agent.Name, name)))
	}
	return out
}

// offeredTools are the tools of a run that its skills offer.
func offeredTools(_ *Runner, t *attempt, _ *tool.Roots) ([]tool.Tool, error) {
	var out []tool.Tool
	for _, o := range t.offers {
		one, err := tool.DefineBySchema(o.Spec(), func(ctx context.Context, in tool.Invocation, args json.RawMessage) (tool.Envelope, error) {
			return t.calls.call(ctx, in, o, args)
		})
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// offersApart says whether a tool is one of a skill that the model of a task is not told of.
func (t *attempt) offersApart(name string) bool {
	return slices.ContainsFunc(t.offers, func(o offer) bool { return o.apart && o.Name == name })
}

// callsAskingModule says whether a fixed call of a task is one of a skill that asks a model.
func (t *task) callsAskingModule() bool {
	names := []string{t.detail.Tool}
	for _, c := range t.job.Playbook {
		names = append(names, c.Name)
	}

	return slices.ContainsFunc(t.agent.Skills.All(), func(s *skills.Skill) bool {
		return s.Manifest != nil && host.AsksModel(s.Manifest) && slices.ContainsFunc(names, func(name string) bool { return host.IsOffer(s, name) })
	})
}

// OfferSpecs are the specs of the tools that the skills of a plan offer.
func (p Plan) OfferSpecs() (out tool.Specs) {
	for _, s := range p.Modules {
		out = append(out, host.OfferSpecs(s)...)
	}
	return out
}
