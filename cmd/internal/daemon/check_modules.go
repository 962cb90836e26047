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

// CheckModules compiles the modules of the skills that jobs run, each in a process of its own, and says what is wrong with them: a text
// that does not compile, by its own line, and an export that is not there (OSL-02, OSL-06); and warns where the machine cannot be kept awake
// for one (OSL-37). It is for who checks a configuration, not for each reload: it takes a tenth of a second or so for each skill, and a run
// sees all of that by itself.
func CheckModules(ctx context.Context, cfg *config.Config) (out []config.Problem, err error) {
	seen := map[string]bool{}
	for i, j := range cfg.Jobs {
		s, ok := cfg.ModuleOf(&j)
		if !ok || seen[s.Dir] {
			continue
		}
		seen[s.Dir] = true

		at := config.Problem{File: j.At.File, Line: j.At.Line, Column: j.At.Column, Path: fmt.Sprintf("jobs[%d].skill", i), Name: string(j.Name)}
		if s.Manifest.StaysAwake() {
			if err := awake.Check(ctx); err != nil {
				warning := at
				warning.Warning, warning.Message = true, fmt.Sprintf("the skill %s needs this machine to be kept awake while it runs, which cannot be had here: %v", s.Name, err)
				out = append(out, warning)
			}
		}

		program, err := module.Compile(ctx, s.Dir)
		var wrong *module.SyntaxError
		switch {
		case errors.As(err, &wrong):
			at.File, at.Line, at.Column = filepath.Join(s.Dir, wrong.File), wrong.Line, wrong.Column
			at.Message = fmt.Sprintf("the module of the skill %s does not compile: %s", s.Name, wrong.Text)
			out = append(out, at)
		case err != nil:
			return nil, err
		default:
			for _, name := range missingExports(s, program) {
				at.Message = fmt.Sprintf("the module of the skill %s exports no %s", s.Name, name)
				out = append(out, at)
			}
		}
	}
	return out, nil
}

// missingExports are those that are called and that a program does not have: execute, and the hooks of the manifest.
func missingExports(s *skills.Skill, p *module.Program) []string {
	return slices.DeleteFunc(append([]string{"execute"}, s.Manifest.LifecycleHooks...), func(name string) bool { return slices.Contains(p.Exports(), name) })
}
