package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"rouse/cmd/internal/config"
	"rouse/internal/awake"
	"rouse/skills"
	"rouse/skills/module"
)

// CheckModules compiles the modules of the skills that jobs run or agents name, each in a process of its own. It reports
// modules that do not compile (OSL-02), missing exports (OSL-05, OSL-06), and machines that cannot be kept awake (OSL-37).
// It is for a check of the configuration, not for each reload: a module takes about a tenth of a second.
func CheckModules(ctx context.Context, cfg *config.Config) (out []config.Problem, err error) {
	checked := map[string]bool{}
	for i, j := range cfg.Jobs {
		s, ok := cfg.ModuleOf(&j)
		if !ok || checked[s.Dir] {
			continue
		}
		checked[s.Dir] = true

		at := config.Problem{File: j.At.File, Line: j.At.Line, Column: j.At.Column, Path: fmt.Sprintf("jobs[%d].skill", i), Name: string(j.Name)}
		if s.Manifest.StaysAwake() {
			if err := awake.Check(ctx); err != nil {
				warning := at
				warning.Warning, warning.Message = true, fmt.Sprintf("the skill %s needs this machine to be kept awake while it runs, which cannot be had here: %v", s.Name, err)
				out = append(out, warning)
			}
		}
		found, err := checkModule(ctx, at, s)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}

	for i := range cfg.Agents {
		a := &cfg.Agents[i]
		for _, s := range cfg.SkillView(a).Preloaded {
			if s.Manifest == nil || len(s.Manifest.Tools) == 0 || checked[s.Dir] {
				continue
			}
			checked[s.Dir] = true

			found, err := checkModule(ctx, config.Problem{File: a.At.File, Line: a.At.Line, Column: a.At.Column, Path: fmt.Sprintf("agents[%d].skills", i), Name: string(a.Name)}, s)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
	}
	return out, nil
}

// checkModule compiles the module of a skill. A problem that is not in the module itself is reported at a place of the
// configuration.
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
