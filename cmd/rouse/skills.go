package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rouse/agent"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/web"
	"rouse/skills"
	"rouse/skills/install"
)

func newSkills(at *place) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "skills",
		Short: "Lists, checks, installs and removes skills",
		Long: `Lists, checks, installs and removes skills: folders with a SKILL.md that tells an agent
how to do something. They are looked for in HOME/skills, in ~/.agents/skills, and in the
folders under skills.roots of the configuration.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSkillsList(at), newSkillsShow(at), newSkillsSearch(at), newSkillsValidate(), newSkillsInstall(at), newSkillsRemove(at), newSkillsPin(at), newSkillsOutdated(at))
	return cmd
}

// shelved is a skill as the commands show it.
type shelved struct {
	*skills.Skill
	State     string          `json:"state"` // own, installed, changed, missing
	Installed *install.Pinned `json:"installed,omitempty"`
}

// shelves are all skills that agents may see, and what was wrong where they were looked for.
type shelves struct {
	Skills   []shelved        `json:"skills"`
	Problems []skills.Problem `json:"problems"`
}

// skills looks at the skills of the configuration or, where there is none or it is wrong, at
// those of the home and of the user.
func (at *place) skills() (*skills.Catalog, error) {
	cfg, err := at.load()
	var wrong *config.Errors
	switch {
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

// look tells of each skill whether it was installed, and is what was installed.
func look(all *skills.Catalog) (shelves, error) {
	out := shelves{Skills: []shelved{}, Problems: []skills.Problem{}}
	out.Problems = append(out.Problems, all.Problems()...)
	pins := map[string][]install.Pinned{}
	for _, s := range all.Skills() {
		one, err := lookAt(s, pins)
		if err != nil {
			return out, err
		}
		out.Skills = append(out.Skills, one)
	}
	return out, nil
}

// lookAt looks at one of them; pins are those of the folders that were read before.
func lookAt(s *skills.Skill, pins map[string][]install.Pinned) (shelved, error) {
	one, root := shelved{Skill: s, State: "own"}, filepath.Dir(s.Dir)
	if _, read := pins[root]; !read {
		list, err := install.Installed(root)
		if err != nil {
			return one, err
		}
		pins[root] = list
	}
	if i := slices.IndexFunc(pins[root], func(p install.Pinned) bool { return p.Name == filepath.Base(s.Dir) }); i >= 0 {
		one.Installed, one.State = &pins[root][i], "installed"
		if changed, err := pins[root][i].Changed(root); err != nil || changed {
			one.State = "changed"
		}
	}
	return one, nil
}

func newSkillsList(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Lists the skills that agents may see, and why others are not loaded",
		Long: `Lists the skills that agents may see, and why others are not loaded.

STATE is own (somebody put it there), installed, or changed: an installed skill whose files
are not those that were installed. Agents do not get it until its owner says
rouse skills pin NAME, or installs it again.`,
		Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			all, err := at.skills()
			if err != nil {
				return err
			}
			found, err := look(all)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), found)
			}
			var rows [][]string
			for _, s := range found.Skills {
				rows = append(rows, []string{s.Name, s.State, s.Source, brief(s.Description)})
			}
			if len(rows) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "there are no skills; see rouse skills install --help")
			} else if err := table(cmd.OutOrStdout(), "NAME STATE FROM DESCRIPTION", rows); err != nil {
				return err
			}
			for _, p := range found.Problems {
				fmt.Fprintln(cmd.ErrOrStderr(), oneLine(p.String()))
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// brief is the beginning of a description.
func brief(text string) string {
	const most = 90
	if r := []rune(strings.Join(strings.Fields(text), " ")); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// pick finds a skill by its name, or by its folder.
func (at *place) pick(nameOrDir string) (*skills.Skill, []skills.Problem, error) {
	if strings.ContainsAny(nameOrDir, `/\.`) {
		s, problems := skills.Load(nameOrDir)
		if s == nil {
			return nil, nil, errors.New(worst(problems))
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
		return nil, nil, &web.Error{Status: 404, Message: config.Nearest("skill", nameOrDir, names[:min(len(names), 200)]), Usage: true}
	}
	var problems []skills.Problem
	for _, p := range all.Problems() {
		if p.File == s.File || p.File == s.Dir {
			problems = append(problems, p)
		}
	}
	return s, problems, nil
}

// worst is the first problem that is more than a warning.
func worst(problems []skills.Problem) string {
	for _, p := range problems {
		if !p.Warning {
			return p.String()
		}
	}
	return ""
}

// shown is what `rouse skills show --json` prints.
type shown struct {
	shelved
	Instructions string           `json:"instructions"`
	Files        []string         `json:"files"` // beside SKILL.md
	More         bool             `json:"more"`  // there are more files than are listed
	Problems     []skills.Problem `json:"problems"`
}

func newSkillsShow(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show NAME|FOLDER",
		Short: "Prints a skill: what it says of itself, its files, its instructions",
		Args:  cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			s, problems, err := at.pick(args[0])
			if err != nil {
				return err
			}
			out := shown{Problems: append([]skills.Problem{}, problems...)}
			if out.shelved, err = lookAt(s, map[string][]install.Pinned{}); err != nil {
				return err
			}
			if out.Instructions, err = s.Instructions(); err != nil {
				return err
			}
			if out.Files, out.More, err = s.Files(1000); err != nil {
				return err
			}
			if asJSON {
				out.Files = append([]string{}, out.Files...)
				return printJSON(cmd.OutOrStdout(), out)
			}
			printSkill(cmd.OutOrStdout(), s)
			if from := out.Installed; from != nil {
				fmt.Fprintln(cmd.OutOrStdout(), "installed from:", origin(from.Source, from.Path, from.Revision, from.Commit))
			}
			if out.State == "changed" {
				fmt.Fprintf(cmd.OutOrStdout(), "changed since it was installed, so that no agent gets it: rouse skills pin %s if you changed it, else install it again with --replace\n", s.Name)
			}
			for _, f := range out.Files {
				fmt.Fprintln(cmd.OutOrStdout(), "file:", oneLine(f))
			}
			if out.More {
				fmt.Fprintln(cmd.OutOrStdout(), "and more files")
			}
			for _, p := range out.Problems {
				fmt.Fprintln(cmd.OutOrStdout(), oneLine(p.String()))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n", lines(out.Instructions))
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// lines keeps the lines of a text and nothing that moves a cursor.
func lines(text string) string {
	all := strings.Split(text, "\n")
	for i, l := range all {
		indent := l[:len(l)-len(strings.TrimLeft(l, " "))]
		all[i] = indent + oneLine(l)
	}
	return strings.Join(all, "\n")
}

// printSkill prints what a skill says of itself.
func printSkill(w io.Writer, s *skills.Skill) {
	print := func(what, text string) {
		if text != "" {
			fmt.Fprintf(w, "%s: %s\n", what, oneLine(text))
		}
	}
	print("skill", s.Name)
	print("description", s.Description)
	print("license", s.License)
	print("compatibility", s.Compatibility)
	if len(s.AllowedTools) > 0 {
		print("asks for the tools", strings.Join(s.AllowedTools, ", ")+" (nothing is allowed by that)")
		grants, _ := agent.SkillCommands(s)
		var commands []string
		for _, g := range grants {
			commands = append(commands, strings.Join(g.Argv, " "))
		}
		print("an agent with skill_allowed_tools, once it has loaded it, may run", strings.Join(commands, "; "))
	}
	print("folder", s.Dir)
}

func newSkillsSearch(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "search WORDS",
		Short: "Finds skills by words, as agents do with capabilities_discover",
		Args:  cobra.MinimumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			all, err := at.skills()
			if err != nil {
				return err
			}
			var entries []skills.Entry
			for _, s := range all.Skills() {
				entries = append(entries, skills.Entry{ID: "skill/" + s.Name, Name: s.Name, Description: s.Description})
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
				rows = append(rows, []string{h.Name, brief(h.Description)})
			}
			return table(cmd.OutOrStdout(), "NAME DESCRIPTION", rows)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// checkSkills says whether the installed skills are what was installed.
func checkSkills(cfg *config.Config) web.Check {
	c := web.Check{Name: "skills", OK: true}
	found, err := look(cfg.SkillCatalog())
	if err != nil {
		c.OK, c.Detail, c.Remedy = false, err.Error(), "see the message; rouse skills list shows the same"
		return c
	}
	var changed []string
	broken := 0
	for _, s := range found.Skills {
		if s.State == "changed" {
			changed = append(changed, s.Name)
		}
	}
	for _, p := range found.Problems {
		if !p.Warning {
			broken++
		}
	}
	c.Detail = fmt.Sprintf("%d found", len(found.Skills))
	if broken > 0 {
		c.Detail += fmt.Sprintf(", %d cannot be loaded (see rouse skills list)", broken)
	}
	if len(changed) > 0 {
		c.OK = false
		c.Detail += "; changed since they were installed: " + strings.Join(few(changed), ", ")
		c.Remedy = "agents do not get them: rouse skills pin NAME if you changed them, else rouse skills install SOURCE --replace"
	}
	return c
}
