package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"rouse/agent/eval/cases"
	"rouse/internal/domain"
	"rouse/internal/text"
	"rouse/skills"
)

// caseResult is what `rouse skills test --json` prints of a case.
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
	var commands, asJSON bool
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
		Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			s, all, err := casesOf(args[0], one)
			if err != nil {
				return err
			}
			return runCases(cmd, s, all, commands, asJSON)
		}),
	}

	f := cmd.Flags()
	f.StringVar(&one, "case", "", "`name` of the one case to play: its file without .json")
	f.BoolVar(&commands, "commands", false, "run the programs that cases list")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// casesOf are the cases of the skill in a folder, or the one of them with a name.
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
		return nil, nil, usagef("the skill %s has no cases: they are files in %s (docs/skills.md)", s.Name, filepath.Join(dir, skills.CasesFolder, "*.json"))
	}
	if name == "" {
		return s, all, nil
	}

	var names []string
	for _, c := range all {
		if c.Name == name {
			return s, []cases.Case{c}, nil
		}
		names = append(names, c.Name)
	}
	return nil, nil, usagef("%s", text.NoSuch("case", name, names))
}

// runCases plays cases one after the other, each in a folder of its own, and prints how each came out.
func runCases(cmd *cobra.Command, s *skills.Skill, all []cases.Case, commands, asJSON bool) (err error) {
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
		if results = append(results, result); !asJSON {
			printCase(cmd.OutOrStdout(), result)
		}
	}

	failed := len(slices.DeleteFunc(slices.Clone(results), func(r caseResult) bool { return r.OK }))
	if asJSON {
		if err := printJSON(cmd.OutOrStdout(), results); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(cmd.OutOrStdout(), "%d of %s passed\n", len(results)-failed, text.Plural(len(results), "case"))
	}
	if failed > 0 {
		return errSilent
	}
	return nil
}

func playCase(ctx context.Context, s *skills.Skill, c cases.Case, o cases.Options) (caseResult, error) {
	report, err := cases.Play(ctx, s, c, o)
	if err == nil {
		err = ctx.Err() // after Ctrl-C the remaining cases would all fail in a row
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
