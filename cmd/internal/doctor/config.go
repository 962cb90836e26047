package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"rouse/agent"
	agentplan "rouse/agent/plan"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/internal/nosleep"
	"rouse/internal/text"
	"rouse/skills"
	"rouse/skills/module"
)

// CheckPlan checks the plan of a configuration without starting a run. It reports agents and jobs
// if their prompt and tools do not fit into the context of their model. It also reports jobs if the
// sandbox of this machine will restrict their programs. If the plan cannot be built, it returns no
// problems, because starting with the plan reports the error.
func CheckPlan(ctx context.Context, cfg *config.Config) (out []config.Problem) {
	p, err := plan.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil
	}

	add := func(at config.Position, problem config.Problem) {
		problem.File, problem.Line, problem.Column = at.File, at.Line, at.Column
		out = append(out, problem)
	}
	tight, err := tightContexts(p.Runner)
	if err != nil {
		add(config.Position{File: cfg.Files[0]}, config.Problem{Message: err.Error(), Warning: true})
	}
	for _, n := range tight {
		// For an agent it is only a warning, because the agent may never get a prompt.
		at, path, name := placeOf(cfg, n)
		add(at, config.Problem{Path: path, Name: name, Message: contextText(n), Hint: contextRemedy(n), Warning: n.Starts() || n.Job == ""})
	}

	refused, err := agent.RefusedPrograms(ctx, p.Runner)
	if err != nil {
		add(config.Position{File: cfg.Files[0]}, config.Problem{Message: err.Error(), Warning: true})
	}
	for i, j := range cfg.Jobs {
		for _, why := range refused[string(j.Name)] {
			add(j.At, config.Problem{Path: fmt.Sprintf("jobs[%d]", i), Name: string(j.Name), Message: why, Warning: true})
		}
	}
	return out
}

// tightContexts returns the needs that exceed their context. It omits an agent if one of its jobs
// is listed.
func tightContexts(p agentplan.Plan) ([]agent.ContextNeed, error) {
	needs, err := agent.ContextNeeds(p)
	if err != nil {
		return nil, fmt.Errorf("what the prompts and tools take of the models' contexts is not known: %w", err)
	}

	tight := slices.DeleteFunc(needs, agent.ContextNeed.Fits)
	return slices.DeleteFunc(slices.Clone(tight), func(n agent.ContextNeed) bool {
		return n.Job == "" && slices.ContainsFunc(tight, func(o agent.ContextNeed) bool { return o.Agent == n.Agent && o.Job != "" })
	}), nil
}

// placeOf returns the position, path and name of the agent or job in the configuration.
func placeOf(cfg *config.Config, n agent.ContextNeed) (at config.Position, path, name string) {
	for i, j := range cfg.Jobs {
		if n.Job != "" && string(j.Name) == n.Job {
			return j.At, fmt.Sprintf("jobs[%d]", i), n.Job
		}
	}

	for i, a := range cfg.Agents {
		if string(a.Name) == n.Agent {
			return a.At, fmt.Sprintf("agents[%d]", i), n.Agent
		}
	}
	return config.Position{File: cfg.Files[0]}, "", n.Agent
}

// contextText describes a need that does not fit, with its numbers of tokens.
func contextText(n agent.ContextNeed) string {
	what := "leaves too little room for the results of calls"
	if !n.Starts() {
		what = "has no room for a run, which ends before its model is asked"
	}

	left := fmt.Sprintf("%d are left", n.Left)
	if n.Left < 0 {
		left = fmt.Sprintf("%d are missing", -n.Left)
	}
	return fmt.Sprintf("the context of the model %s (context_window: %d) %s: the prompt takes about %d tokens, %s take %d, and beside an answer %s",
		n.Model, n.Window, what, n.Prompt, text.Plural(n.ToolCount, "tool"), n.Tools, left)
}

func contextRemedy(n agent.ContextNeed) string {
	return fmt.Sprintf("it needs a context_window of %d or more, a shorter prompt, or fewer tools (tools: allow)", n.Least)
}

// checkContexts checks that each prompt fits into the context of its model.
func checkContexts(s *plan.Setup) api.Check {
	if s.Plan == nil {
		return Passed("contexts", "there is no plan whose prompts could be measured")
	}
	tight, err := tightContexts(s.Plan.Runner)
	if err != nil {
		return undone("contexts", err)
	}

	var found, remedies []string
	for _, n := range tight {
		who := "agent " + n.Agent
		if n.Job != "" {
			who = "job " + n.Job
		}
		found, remedies = append(found, who+": "+contextText(n)), append(remedies, who+": "+contextRemedy(n))
	}
	if len(found) > 0 {
		return Failed("contexts", strings.Join(found, "; "), strings.Join(remedies, "; "))
	}
	return Passed("contexts", "every prompt has room in the context of its model")
}

// CheckModules compiles the modules of the skills that jobs and agents use, each in its own
// process. It returns modules that do not compile, missing exports, and machines that cannot be
// kept awake. Compiling takes time, so call it to check a configuration, not on each reload.
func CheckModules(ctx context.Context, cfg *config.Config) (out []config.Problem, err error) {
	checked := map[string]bool{}
	check := func(at config.Position, path string, name config.Name, s *skills.Skill) error {
		if checked[s.Dir] {
			return nil
		}
		checked[s.Dir] = true
		found, err := checkModule(ctx, config.Problem{File: at.File, Line: at.Line, Column: at.Column, Path: path, Name: string(name)}, s)
		out = append(out, found...)
		return err
	}

	for i, j := range cfg.Jobs {
		s, ok := cfg.ModuleOf(&j)
		if !ok {
			continue
		}
		path := fmt.Sprintf("jobs[%d].skill", i)
		if s.Manifest.StaysAwake() && !checked[s.Dir] {
			if err := nosleep.Check(ctx); err != nil {
				out = append(out, config.Problem{File: j.At.File, Line: j.At.Line, Column: j.At.Column, Path: path, Name: string(j.Name), Warning: true,
					Message: fmt.Sprintf("the skill %s needs this machine to be kept awake while it runs, which cannot be had here: %v", s.Name, err)})
			}
		}
		if err := check(j.At, path, j.Name, s); err != nil {
			return nil, err
		}
	}
	for i := range cfg.Agents {
		a := &cfg.Agents[i]
		for _, s := range cfg.FoundSkills().View(a).Preloaded {
			if s.Manifest == nil || len(s.Manifest.Tools) == 0 {
				continue
			}
			if err := check(a.At, fmt.Sprintf("agents[%d].skills", i), a.Name, s); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// checkModule compiles the module of a skill. Problems outside of the module get the position of
// at.
func checkModule(ctx context.Context, at config.Problem, s *skills.Skill) (out []config.Problem, err error) {
	program, err := module.Compile(ctx, s.Dir)
	var wrong *module.SyntaxError
	switch {
	case errors.As(err, &wrong):
		at.File, at.Line, at.Column = filepath.Join(s.Dir, wrong.File), wrong.Line, wrong.Column
		at.Message = fmt.Sprintf("the module of the skill %s does not compile: %s", s.Name, wrong.Text)
		return []config.Problem{at}, nil
	case err != nil:
		return nil, err
	}

	exports := program.Exports()
	for _, name := range append([]string{"execute"}, s.Manifest.LifecycleHooks...) {
		if !slices.Contains(exports, name) {
			at.Message = fmt.Sprintf("the module of the skill %s exports no %s", s.Name, name)
			out = append(out, at)
		}
	}
	for _, t := range s.Manifest.Tools {
		if !slices.Contains(exports, t.HandlerExport) {
			at.Warning, at.Message = true, fmt.Sprintf("the module of the skill %s exports no %s, so that its tool %s cannot be called", s.Name, t.HandlerExport, t.Name)
			out = append(out, at)
		}
	}
	return out, nil
}

func (d *Checker) checkConfig(s *plan.Setup) api.Check {
	c := Passed("configuration", fmt.Sprintf("%s, %s, %s", text.Plural(len(s.Config.Jobs), "job"), text.Plural(len(s.Config.Agents), "agent"), strings.Join(s.Config.Files, ", ")))
	if s.Problem != nil {
		c = Failed(c.Name, s.Problem.Error(), "correct the file, and check it with: rouse config check")
	}
	for _, what := range s.Restart {
		c.Detail += "; " + what
	}

	if d.Serves {
		if found := d.ProblemsOnDisk(); len(found) > 0 {
			// Unlike with s.Problem, an older configuration is in use.
			return Failed(c.Name, fmt.Sprintf("%s; the one of %s stays in use", problemText(found), api.LocalTime(s.At, s.Config.Zone())),
				"correct the file, and check it with: rouse config check; it takes effect by itself")
		}
	}
	return c
}

func checkModels(s *plan.Setup) api.Check {
	if lacking := s.MissingModel(); lacking != "" {
		return Failed("models", lacking, "add one under models: in the configuration")
	}
	var names []string
	for _, m := range s.Config.Models {
		names = append(names, fmt.Sprintf("%s (%s)", m.Name, m.Model))
	}
	return Passed("models", cmp.Or(strings.Join(names, ", "), "none is configured, and no job needs one"))
}
