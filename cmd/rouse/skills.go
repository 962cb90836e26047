package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"rouse/agent"
	"rouse/agent/tool/host"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/text"
	"rouse/skills"
	"rouse/skills/install"
)

func newSkills(at *place) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "skills",
		Short: "Lists, checks, writes, tests, runs, installs, trusts and removes skills",
		Long: `Lists, checks, writes, tests, runs, installs, trusts and removes skills: folders with a SKILL.md that tells an
agent how to do something, with a program (manifest.json and module.ts), or with both. They are
looked for in HOME/skills, in ~/.agents/skills, and in the folders under skills.roots of the
configuration.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	cmd.AddCommand(newSkillsList(at), newSkillsShow(at), newSkillsSearch(at), newSkillsValidate(), newSkillsNew("new"), newSkillsTest(), newSkillsRun(at), newSkillsSignIns(at),
		newSkillsInstall(at), newSkillsTrust(at), newSkillsRemove(at), newSkillsPin(at), newSkillsOutdated(at))
	return cmd
}

// skills looks at the skills of the configuration or, where there is none or it is wrong, at
// those of the home and of the user.
func (at *place) skills() (*skills.Catalog, error) {
	cfg, err := at.load()
	var wrong *config.Errors
	switch {
	// A mistake elsewhere in the configuration does not keep its owner from the skills.
	case err == nil || errors.As(err, &wrong) && cfg != nil && cfg.Home != "":
		return cfg.SkillCatalog(), nil
	case !errors.Is(err, config.ErrNoFile) || at.config != "":
		return nil, err
	}

	home, err := at.homeDir()
	if err != nil {
		return nil, err
	}

	cfg = &config.Config{Home: config.Path(home)}
	return skills.Discover(cfg.SkillRoots(os.Getenv)...), nil
}

func newSkillsList(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Lists the skills that agents may see, and why others are not loaded",
		Long: `Lists the skills that agents may see, and why others are not loaded.

STATE is own (somebody put it there), installed, or changed: an installed skill whose files
are not those that were installed. Agents do not get it until its owner says
rouse skills pin NAME, or installs it again. KIND is instructions (SKILL.md), module (a program)
or both.`,
		Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			all, err := at.skills()
			if err != nil {
				return err
			}

			found, err := install.Inspect(all)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), found)
			}

			var rows [][]string
			for _, s := range found.Skills {
				rows = append(rows, []string{s.Name, s.State, string(s.Kind), s.Source, brief(s.Description)})
			}

			if len(rows) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "there are no skills; see rouse skills install --help")
			} else if err := table(cmd.OutOrStdout(), "NAME STATE KIND FROM DESCRIPTION", rows); err != nil {
				return err
			}

			for _, s := range found.Skills {
				if s.Why != "" {
					fmt.Fprintln(cmd.ErrOrStderr(), text.OneLine(s.Why))
				}
			}
			for _, p := range found.Problems {
				fmt.Fprintln(cmd.ErrOrStderr(), text.OneLine(p.String()))
			}

			return nil
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// brief is the beginning of a description.
func brief(description string) string {
	return text.Truncate(text.Collapse(description), 90)
}

// pick finds a skill by its name, or by its folder.
func (at *place) pick(nameOrDir string) (*skills.Skill, []skills.Problem, error) {
	// The standard allows none of these characters in a name, so it is a folder.
	if strings.ContainsAny(nameOrDir, `/\.`) {
		s, problems := skills.Load(nameOrDir)
		if s == nil {
			return nil, nil, errors.New(firstError(problems))
		}
		return s, problems, nil
	}

	all, err := at.skills()
	if err != nil {
		return nil, nil, err
	}

	s, ok := all.Get(nameOrDir)
	if !ok {
		var names []string
		for _, s := range all.Skills() {
			names = append(names, s.Name)
		}
		return nil, nil, &api.Error{Status: 404, Message: text.NoSuch("skill", nameOrDir, names), Usage: true}
	}

	return s, all.ProblemsOf(s), nil
}

// firstError is the first problem that is more than a warning.
func firstError(problems []skills.Problem) string {
	for _, p := range problems {
		if !p.Warning {
			return p.String()
		}
	}
	return ""
}

// shownSkill is a skill with the tools that it has for models and playbooks.
type shownSkill struct {
	install.Detail
	Tools   []host.Offer `json:"tools,omitempty"`
	NoTools []string     `json:"no_tools,omitempty"` // why some of its tools are none
}

func newSkillsShow(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show NAME|FOLDER",
		Short: "Prints a skill: what it says of itself and asks for, its files, its instructions and docs",
		Args:  cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			s, problems, err := at.pick(args[0])
			if err != nil {
				return err
			}

			out, err := install.Describe(s, problems)
			if err != nil {
				return err
			}

			if asJSON {
				shown := shownSkill{Detail: out}
				shown.Tools, shown.NoTools = host.Offers(s)
				return printJSON(cmd.OutOrStdout(), shown)
			}

			printSkill(cmd.OutOrStdout(), s)
			if from := out.Installed; from != nil {
				fmt.Fprintln(cmd.OutOrStdout(), "installed from:", origin(from.Source, from.Path, from.Revision, from.Commit))
			}

			if out.State == "changed" {
				fmt.Fprintln(cmd.OutOrStdout(), "changed since it was installed, so that no agent gets it:", text.OneLine(out.Why))
			}

			for _, f := range out.Files {
				fmt.Fprintln(cmd.OutOrStdout(), "file:", text.OneLine(f))
			}

			if out.More {
				fmt.Fprintln(cmd.OutOrStdout(), "and more files")
			}

			for _, p := range out.Problems {
				fmt.Fprintln(cmd.OutOrStdout(), text.OneLine(p.String()))
			}

			for _, part := range []string{out.Instructions, out.Docs} {
				if part != "" {
					fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n", text.Lines(part))
				}
			}
			return nil
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printSkill prints what a skill says of itself and asks for.
func printSkill(w io.Writer, s *skills.Skill) {
	print := func(what, words string) {
		if words != "" {
			fmt.Fprintf(w, "%s: %s\n", what, text.OneLine(words))
		}
	}

	print("skill", s.Name)
	print("kind", string(s.Kind()))
	print("description", s.Description)
	print("tags", strings.Join(s.Tags, ", "))
	print("license", s.License)
	print("compatibility", s.Compatibility)

	if len(s.AllowedTools) > 0 {
		print("asks for the tools", strings.Join(s.AllowedTools, ", ")+" (nothing is allowed by that)")
		// What allows nothing is left out here; config check warns of it.
		grants, _ := agent.SkillCommands(s)
		var commands []string
		for _, g := range grants {
			commands = append(commands, strings.Join(g.Argv, " "))
		}
		print("an agent with skill_allowed_tools, once it has loaded it, may run", strings.Join(commands, "; "))
	}

	if s.Manifest != nil {
		for _, t := range s.Manifest.Terms() {
			print(t.What, t.Text)
		}
		for _, why := range s.Manifest.Obstacles(runtime.GOOS) {
			print("cannot run here", why)
		}
		offers, unfit := host.Offers(s)
		for _, o := range offers {
			print("agents call it with", o.Name+": "+o.Description)
		}
		for _, why := range unfit {
			print("no tool for agents", why)
		}
	}

	print("folder", s.Dir)
}

func newSkillsSearch(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "search WORDS",
		Short: "Finds skills by words of their name, description and tags, as agents do with capabilities_discover",
		Args:  cobra.MinimumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			all, err := at.skills()
			if err != nil {
				return err
			}

			var entries []skills.Entry
			for _, s := range all.Skills() {
				entries = append(entries, s.Entry())
			}

			hits := skills.Search(strings.Join(args, " "), entries, 20)
			if asJSON {
				return printJSON(cmd.OutOrStdout(), append([]skills.Hit{}, hits...))
			}

			if len(hits) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "no skill has any of these words")
				return nil
			}

			var rows [][]string
			for _, h := range hits {
				s, _ := all.Get(h.Name)
				rows = append(rows, []string{h.Name, string(s.Kind()), brief(h.Description)})
			}

			return table(cmd.OutOrStdout(), "NAME KIND DESCRIPTION", rows)
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
