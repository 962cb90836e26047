package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rouse/agent/eval/cases"
	"rouse/internal/domain"
	"rouse/internal/fspath"
	"rouse/internal/text"
	"rouse/skills"
	"rouse/skills/module"
)

// verdict is a skill in the output of `rouse skills validate --json`.
type verdict struct {
	Dir      string           `json:"dir"`
	Valid    bool             `json:"valid"` // conforms to the standard; warnings do not count
	Loads    bool             `json:"loads"` // agents can use it, even if it is not valid
	Problems []skills.Problem `json:"problems"`
	Refused  []skills.Problem `json:"refused,omitempty"` // why it does not load
}

// validated is the output of `rouse skills validate --json`.
type validated struct {
	Skills int            `json:"skills"`
	Valid  int            `json:"valid"`
	Load   int            `json:"load"`
	Rules  map[string]int `json:"rules"` // number of skills that do not load, by rule
	All    []verdict      `json:"all"`
	Index  []indexed      `json:"index,omitempty"` // indexes of the folders that are repositories
}

// indexed is an index of a repository in the output of `rouse skills validate --json`.
type indexed struct {
	File     string           `json:"file"`
	Valid    bool             `json:"valid"`
	Problems []skills.Problem `json:"problems"`
}

func newSkillsValidate() *cobra.Command {
	var recursive, summary bool
	cmd := &cobra.Command{
		Use:   "validate FOLDER...",
		Short: "Holds skills to the standard, and lists all that breaks it; exits 1 if there are errors",
		Long: `Holds skills to the AgentSkills standard, their programs (manifest.json and module.ts) to the rules
for these, and lists all that breaks them, errors and warnings. What agents get of instructions
is held to less: a skill that has a description loads, and the last line says how many do. Of a
repository with an index (skills/index.json) the index and all skills that it lists are checked.`,
		RunE: func(cmd *cobra.Command, args []string) error {
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
			bad := result.Valid < result.Skills || slices.ContainsFunc(result.Index, func(x indexed) bool { return !x.Valid })
			return failIf(bad, jsonOr(cmd, result, func() error {
				printVerdicts(cmd.OutOrStdout(), result, summary)
				return nil
			}))
		},
	}

	f := cmd.Flags()
	f.BoolVar(&recursive, "recursive", false, "all skills below the folders, at any depth: folders with a SKILL.md, a manifest.json with its module.ts, or a module.ts that lacks one")
	f.BoolVar(&summary, "summary", false, "print the figures only")
	return withJSON(cmd)
}

// toValidate returns the skills to validate for dir: itself, those of its index, or all below it.
func toValidate(dir string, recursive bool) ([]string, *skills.Registry, error) {
	if recursive {
		below, err := skillFolders(dir)
		return below, nil, err
	}

	// A skill may have an index.json of its own.
	if _, problems := skills.Load(dir); !slices.ContainsFunc(problems, func(p skills.Problem) bool { return p.Rule == skills.RuleFileMissing }) {
		return []string{dir}, nil, nil
	}
	if index := skills.ReadRegistry(dir); index != nil {
		return index.Folders(), index, nil
	}
	return []string{dir}, nil, nil
}

// skillFolders returns all folders with a SKILL.md or a module.ts at or below root.
func skillFolders(root string) ([]string, error) {
	var out, bare []string // bare folders have only a module.ts, which may belong to the skill above
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && e.Name() == ".git":
			return fs.SkipDir
		case !e.IsDir() && slices.Contains([]string{"SKILL.md", "skill.md", "manifest.json"}, e.Name()):
			if e.Name() == "manifest.json" && !isFile(filepath.Join(filepath.Dir(path), "module.ts")) {
				return nil // contents of another program
			}
			// A folder can hold several of these files.
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

// hasErrors reports whether any of the problems is not a warning.
func hasErrors(problems []skills.Problem) bool {
	return slices.ContainsFunc(problems, func(p skills.Problem) bool { return !p.Warning })
}

// validate checks skills. It compiles their programs, but never runs them.
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
			// Count only the first reason, so that the counts add up to the skills that fail.
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

// compiles returns syntax errors and missing exports of a skill's compiled program. It returns nil
// if there is no program, or if a known problem already says that it cannot be read.
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

// caseResult is a case in the output of `rouse skills test --json`.
type caseResult struct {
	cases.Report
	OK      bool           `json:"ok"`
	Outcome domain.Outcome `json:"outcome"`
	Summary string         `json:"summary"`
	Error   string         `json:"error"`
	Calls   int            `json:"calls"`
	TookMS  int64          `json:"took_ms"`
}

func newSkillsTest() *cobra.Command {
	var one string
	var commands bool
	cmd := &cobra.Command{
		Use:   "test FOLDER",
		Short: "Plays the cases of an executable skill, and says what did not come of them; exits 1 if one failed",
		Long: `Plays the cases of an executable skill: files of JSON in its folder tests, each with what the skill
is given, what its model and its owner answer, and what has to come of it. Each is played as a
real run, in a home of its own that is removed afterwards, by an agent that is granted the files of
the case and no network. Needs no configuration and no key.

A case may list programs of this machine that the skill runs, confined as those of any agent. They
are run with --commands alone: read what they are first.`,
		Example: `  rouse new skill word-count && rouse skills test word-count
  rouse skills test word-count --case empty`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, all, err := casesOf(args[0], one)
			if err != nil {
				return err
			}
			return runCases(cmd, s, all, commands)
		},
	}

	f := cmd.Flags()
	f.StringVar(&one, "case", "", "`name` of the one case to play: its file without .json")
	f.BoolVar(&commands, "commands", false, "run the programs that cases list")
	return withJSON(cmd)
}

// casesOf returns all cases of the skill in a folder, or only the case with the given name.
func casesOf(dir, name string) (*skills.Skill, []cases.Case, error) {
	s, problems := skills.Load(dir)
	switch {
	case s == nil:
		return nil, nil, errors.New(firstError(problems))
	case s.Manifest == nil:
		if why := firstError(problems); why != "" {
			return nil, nil, errors.New(why)
		}
		return nil, nil, usagef("the skill %s has no program to play cases with: it tells a model how to do something", s.Name)
	}

	all, err := cases.Read(s.Dir)
	if err != nil {
		return nil, nil, err
	}
	if len(all) == 0 {
		return nil, nil, usagef("the skill %s has no cases: they are files in %s (docs/guides/skill-modules.md)", s.Name, filepath.Join(dir, skills.CasesFolder, "*.json"))
	}
	if name == "" {
		return s, all, nil
	}

	one, err := named("case", name, all, func(c cases.Case) string { return c.Name })
	return s, []cases.Case{one}, err
}

// runCases plays each case in its own folder and prints the results.
func runCases(cmd *cobra.Command, s *skills.Skill, all []cases.Case, commands bool) (err error) {
	dir, err := os.MkdirTemp("", "rouse-cases-")
	if err != nil {
		return fmt.Errorf("a folder to play in cannot be made: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	results := []caseResult{}
	for i, c := range all {
		result, err := playCase(cmd.Context(), s, c, cases.Options{Dir: filepath.Join(dir, fmt.Sprint(i+1)), Commands: commands})
		if err != nil {
			return err
		}
		if results = append(results, result); !wantsJSON(cmd) {
			printCase(cmd.OutOrStdout(), result)
		}
	}

	failed := len(slices.DeleteFunc(slices.Clone(results), func(r caseResult) bool { return r.OK }))
	return failIf(failed > 0, jsonOr(cmd, results, func() error {
		return sayf(cmd.OutOrStdout(), "%d of %s passed\n", len(results)-failed, text.Plural(len(results), "case"))
	}))
}

func playCase(ctx context.Context, s *skills.Skill, c cases.Case, o cases.Options) (caseResult, error) {
	report, err := cases.Play(ctx, s, c, o)
	if err == nil {
		err = ctx.Err() // after Ctrl-C all remaining cases would fail
	}
	r := report.Run
	return caseResult{Report: report, OK: len(report.Problems) == 0, Outcome: r.Outcome, Summary: r.Summary, Error: r.Error, Calls: r.Calls, TookMS: report.Took.Milliseconds()}, err
}

func printCase(w io.Writer, r caseResult) {
	mark := "ok    "
	if !r.OK {
		mark = "FAILED"
	}
	fmt.Fprintf(w, "%s  %-18s %s\n", mark, text.OneLine(r.Name), text.OneLine(r.About))
	for _, problem := range r.Problems {
		fmt.Fprintf(w, "        %s\n", text.OneLine(problem))
	}
}

// newSkillsNew returns the command rouse new skill, also known as rouse skills new.
func newSkillsNew(name string) *cobra.Command {
	var mode, in string
	s := skills.Scaffold{}
	cmd := &cobra.Command{
		Use:   name + " NAME",
		Short: "Writes an executable skill to begin with: manifest.json, module.ts, docs.md, a case to test it",
		Long: `Writes an executable skill into a new folder NAME: manifest.json, which says what it is and asks
for, module.ts, its program, docs.md for its readers, and a case in tests, which says what has to come
of it. It is valid and does something; change it to what you want, check it with rouse skills
validate NAME, and play its cases with rouse skills test NAME.

The mode declarative is one call; flow has steps, can ask a person and go on later; agentic works
through phases in a workspace, with a budget of steps.`,
		Example: `  rouse new skill word-count
  rouse new skill weekly-report --mode agentic --description "Writes the weekly report."`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s.Name, s.Mode = args[0], skills.Mode(mode)
			if s.Author == "" {
				s.Author = "me"
				if me, err := user.Current(); err == nil && me.Username != "" {
					s.Author = me.Username
				}
			}

			folder, err := s.Write(in)
			if err != nil {
				return err
			}
			return sayf(cmd.OutOrStdout(), "wrote the %s skill %s; check it with: rouse skills validate %[2]s && rouse skills test %[2]s\n", mode, text.OneLine(folder))
		},
	}

	f := cmd.Flags()
	f.StringVar(&mode, "mode", string(skills.ModeDeclarative), "declarative, flow or agentic")
	f.StringVar(&in, "in", ".", "the folder that it is written into")
	f.StringVar(&s.Description, "description", "", "what it does (default what the example does)")
	f.StringVar(&s.Author, "author", "", "who writes it (default your user name)")

	return cmd
}
