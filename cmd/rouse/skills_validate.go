package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rouse/internal/fspath"
	"rouse/internal/text"
	"rouse/skills"
	"rouse/skills/module"
)

// verdict is what `rouse skills validate --json` prints of a skill.
type verdict struct {
	Dir      string           `json:"dir"`
	Valid    bool             `json:"valid"` // by the standard; warnings do not count
	Loads    bool             `json:"loads"` // agents get it all the same
	Problems []skills.Problem `json:"problems"`
	Refused  []skills.Problem `json:"refused,omitempty"` // why it does not load
}

// validated is what it prints of all.
type validated struct {
	Skills int            `json:"skills"`
	Valid  int            `json:"valid"`
	Load   int            `json:"load"`
	Rules  map[string]int `json:"rules"` // why skills do not load, by rule
	All    []verdict      `json:"all"`
	Index  []indexed      `json:"index,omitempty"` // those of the repositories among the folders
}

// indexed is what it prints of the index of a repository.
type indexed struct {
	File     string           `json:"file"`
	Valid    bool             `json:"valid"`
	Problems []skills.Problem `json:"problems"`
}

func newSkillsValidate() *cobra.Command {
	var asJSON, recursive, summary bool
	cmd := &cobra.Command{
		Use:   "validate FOLDER...",
		Short: "Holds skills to the standard, and lists all that breaks it; exits 1 if there are errors",
		Long: `Holds skills to the AgentSkills standard, their programs (manifest.json and module.ts) to the rules
for these, and lists all that breaks them, errors and warnings. What agents get of instructions
is held to less: a skill that has a description loads, and the last line says how many do. Of a
repository with an index (skills/index.json) the index and all skills that it lists are checked.`,
		Args: cobra.MinimumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			var dirs []string
			var indexes []*skills.Registry
			for _, a := range args {
				below, index, err := toValidate(a, recursive)
				if err != nil {
					return err
				}
				dirs = append(dirs, below...)
				if index != nil {
					indexes = append(indexes, index)
				}
			}

			result, err := validate(cmd.Context(), dirs, indexes)
			if err != nil {
				return err
			}
			if asJSON {
				if err := printJSON(cmd.OutOrStdout(), result); err != nil {
					return err
				}
			} else {
				printVerdicts(cmd.OutOrStdout(), result, summary)
			}

			if result.Valid < result.Skills || slices.ContainsFunc(result.Index, func(x indexed) bool { return !x.Valid }) {
				return errSilent
			}

			return nil
		}),
	}

	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVar(&recursive, "recursive", false, "all skills below the folders, at any depth: folders with a SKILL.md, a manifest.json with its module.ts, or a module.ts that lacks one")
	f.BoolVar(&summary, "summary", false, "print the figures only")

	return cmd
}

// toValidate are the folders that are meant by one: itself, all of its index, or all below it.
func toValidate(dir string, recursive bool) ([]string, *skills.Registry, error) {
	if recursive {
		below, err := skillFolders(dir)
		return below, nil, err
	}

	// A skill may have an index.json for its own purposes.
	if _, problems := skills.Load(dir); !slices.ContainsFunc(problems, func(p skills.Problem) bool { return p.Rule == skills.RuleFileMissing }) {
		return []string{dir}, nil, nil
	}
	if index := skills.ReadRegistry(dir); index != nil {
		return index.Folders(), index, nil
	}
	return []string{dir}, nil, nil
}

// skillFolders finds the folders with a SKILL.md or a module.ts below one, itself included.
func skillFolders(root string) ([]string, error) {
	var out, bare []string // bare: with a module.ts alone, which may be a part of the skill above
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && e.Name() == ".git":
			return fs.SkipDir
		case !e.IsDir() && slices.Contains([]string{"SKILL.md", "skill.md", "manifest.json"}, e.Name()):
			if e.Name() == "manifest.json" && !isFile(filepath.Join(filepath.Dir(path), "module.ts")) {
				return nil // that of something else
			}
			// A folder can hold several of them.
			if dir := filepath.Dir(path); len(out) == 0 || out[len(out)-1] != dir {
				out = append(out, dir)
			}
		case !e.IsDir() && e.Name() == "module.ts" && !isFile(filepath.Join(filepath.Dir(path), "manifest.json")):
			bare = append(bare, filepath.Dir(path))
		}
		return nil
	})
	for _, dir := range bare {
		if !slices.ContainsFunc(out, func(skill string) bool { return fspath.Within(dir, skill) }) {
			out = append(out, dir)
		}
	}
	slices.Sort(out)
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s holds no skill, which is a folder with a SKILL.md, or with manifest.json and module.ts", root)
	}

	return out, err
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// hasErrors says whether any of the problems is more than a warning.
func hasErrors(problems []skills.Problem) bool {
	return slices.ContainsFunc(problems, func(p skills.Problem) bool { return !p.Warning })
}

// validate checks skills, whose programs it compiles and never runs. An error is not the skills'.
func validate(ctx context.Context, dirs []string, indexes []*skills.Registry) (validated, error) {
	out := validated{Skills: len(dirs), Rules: map[string]int{}, All: []verdict{}}
	for _, dir := range dirs {
		v := verdict{Dir: dir, Problems: append([]skills.Problem{}, skills.Validate(dir)...)}
		wrong, err := compiles(ctx, dir, v.Problems)
		if err != nil {
			return out, err
		}
		v.Problems = append(v.Problems, wrong...)

		s, problems := skills.Load(dir)
		v.Valid, v.Loads = !hasErrors(v.Problems), s != nil
		if v.Valid {
			out.Valid++
		}

		if v.Loads {
			out.Load++
		} else {
			v.Refused = slices.DeleteFunc(problems, func(p skills.Problem) bool { return p.Warning })
			// By the first reason alone, so that the counts add up to the skills that do not load.
			out.Rules[string(v.Refused[0].Rule)]++
		}

		out.All = append(out.All, v)
	}

	for _, index := range indexes {
		problems := append([]skills.Problem{}, index.Check()...)
		out.Index = append(out.Index, indexed{index.File, !hasErrors(problems), problems})
	}

	return out, nil
}

// compiles returns the problems of the compiled program of a skill: the syntax of its module, and exports that its
// manifest names. It returns nothing without a program, and without one that can be read, which is reported already.
func compiles(ctx context.Context, dir string, known []skills.Problem) ([]skills.Problem, error) {
	file := filepath.Join(dir, "module.ts")
	unread := func(p skills.Problem) bool { return !p.Warning && filepath.Base(p.File) == "module.ts" }
	if !isFile(file) || slices.ContainsFunc(known, unread) {
		return nil, nil
	}

	program, err := module.Compile(ctx, dir)
	var wrong *module.SyntaxError
	if errors.As(err, &wrong) {
		return []skills.Problem{{File: filepath.Join(dir, wrong.File), Line: wrong.Line, Column: wrong.Column, Rule: skills.RuleSyntax, Message: wrong.Text}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the module of %s cannot be compiled: %w", dir, err)
	}
	if !isFile(filepath.Join(dir, "manifest.json")) {
		return nil, nil
	}
	return skills.CheckExports(dir, program.Exports()), nil
}

func printVerdicts(w io.Writer, v validated, summary bool) {
	var problems []skills.Problem
	warnings := 0
	for _, x := range v.Index {
		problems = append(problems, x.Problems...)
	}
	for _, one := range v.All {
		problems = append(problems, one.Problems...)
	}

	for _, p := range problems {
		if p.Warning {
			warnings++
		}
		if !summary {
			fmt.Fprintln(w, text.OneLine(p.String()))
		}
	}

	for _, x := range v.Index {
		if !x.Valid {
			fmt.Fprintf(w, "%s is not valid\n", text.OneLine(x.File))
		}
	}
	if warnings > 0 {
		fmt.Fprintf(w, "%s\n", text.Plural(warnings, "warning"))
	}
	fmt.Fprintf(w, "%d of %d skills are valid; %d load (%.1f %%)\n", v.Valid, v.Skills, v.Load, 100*float64(v.Load)/float64(max(v.Skills, 1)))
	var rules []string
	for _, rule := range slices.Sorted(maps.Keys(v.Rules)) {
		rules = append(rules, fmt.Sprintf("%s %d", rule, v.Rules[rule]))
	}

	if len(rules) > 0 {
		fmt.Fprintf(w, "not loaded: %s\n", strings.Join(rules, ", "))
	}
}
