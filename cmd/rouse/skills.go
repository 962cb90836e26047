package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/agent"
	"rouse/agent/plan"
	"rouse/agent/tool/moduleapi"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/yaml"
	"rouse/internal/text"
	"rouse/skills"
	"rouse/skills/install"
)

func newSkills(env *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "skills",
		Short: "Lists, checks, writes, tests, runs, installs, trusts and removes skills",
		Long: `Lists, checks, writes, tests, runs, installs, trusts and removes skills: folders with a SKILL.md that tells an
agent how to do something, with a program (manifest.json and module.ts), or with both. They are
looked for in HOME/skills, in ~/.agents/skills, and in the folders under skills.roots of the
configuration.`,
	}
	cmd.AddCommand(newSkillsList(env), newSkillsShow(env), newSkillsSearch(env), newSkillsValidate(), newSkillsNew("new"), newSkillsTest(), newSkillsRun(env), newSkillsSignIns(env),
		newSkillsInstall(env), newSkillsTrust(env), newSkillsRemove(env), newSkillsPin(env), newSkillsOutdated(env))
	return cmd
}

// skills returns the skills of the configuration or, if it is unusable, of the home and the user.
func (env *cli) skills() (*skills.Catalog, error) {
	cfg, err := env.load()
	var wrong *config.Errors
	switch {
	// A mistake elsewhere in the configuration must not hide the skills.
	case err == nil || errors.As(err, &wrong) && cfg != nil && cfg.Home != "":
		return cfg.FoundSkills().Catalog(), nil
	case !errors.Is(err, yaml.ErrNoFile) || env.config != "":
		return nil, err
	}

	home, err := env.homeDir()
	if err != nil {
		return nil, err
	}

	cfg = &config.Config{Home: config.Path(home)}
	return skills.Discover(cfg.SkillRoots(os.Getenv)...), nil
}

func newSkillsList(env *cli) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "list",
		Short: "Lists the skills that agents may see, and why others are not loaded",
		Long: `Lists the skills that agents may see, and why others are not loaded.

STATE is own (somebody put it there), installed, or changed: an installed skill whose files
are not those that were installed. Agents do not get it until its owner says
rouse skills pin NAME, or installs it again. KIND is instructions (SKILL.md), module (a program)
or both.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := env.skills()
			if err != nil {
				return err
			}
			found, err := install.Inspect(all)
			if err != nil {
				return err
			}
			return jsonOr(cmd, found, func() error {
				err := list(cmd.OutOrStdout(), found.Skills, "there are no skills; see rouse skills install --help", "NAME STATE KIND FROM DESCRIPTION", func(s install.Listed) []string {
					return []string{s.Name, s.State, string(s.Kind), s.Source, brief(s.Description)}
				})
				for _, s := range found.Skills {
					if s.Why != "" {
						fmt.Fprintln(cmd.ErrOrStderr(), text.OneLine(s.Why))
					}
				}
				printSkillProblems(cmd.ErrOrStderr(), found.Problems)
				return err
			})
		},
	})
}

func printSkillProblems(w io.Writer, problems []skills.Problem) {
	for _, p := range problems {
		fmt.Fprintln(w, text.OneLine(p.String()))
	}
}

// brief returns the beginning of a description.
func brief(description string) string {
	return text.Truncate(text.Collapse(description), 90)
}

// pick finds a skill by its name or by its folder.
func (env *cli) pick(nameOrDir string) (*skills.Skill, []skills.Problem, error) {
	// Names of skills cannot contain these characters, so this is a folder.
	if strings.ContainsAny(nameOrDir, `/\.`) {
		s, problems := skills.Load(nameOrDir)
		if s == nil {
			return nil, nil, errors.New(firstError(problems))
		}
		return s, problems, nil
	}

	all, err := env.skills()
	if err != nil {
		return nil, nil, err
	}

	if s, ok := all.Get(nameOrDir); ok {
		return s, all.ProblemsOf(s), nil
	}
	_, err = named("skill", nameOrDir, all.Skills(), func(s *skills.Skill) string { return s.Name })
	return nil, nil, err
}

// firstError returns the first problem that is not a warning.
func firstError(problems []skills.Problem) string {
	for _, p := range problems {
		if !p.Warning {
			return p.String()
		}
	}
	return ""
}

// shownSkill is a skill with the tools it offers to models and playbooks.
type shownSkill struct {
	install.Detail
	Tools   []moduleapi.Offer `json:"tools,omitempty"`
	NoTools []string          `json:"no_tools,omitempty"` // why some declared tools are not available
}

func newSkillsShow(env *cli) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "show NAME|FOLDER",
		Short: "Prints a skill: what it says of itself and asks for, its files, its instructions and docs",
		RunE: func(cmd *cobra.Command, args []string) error {
			s, problems, err := env.pick(args[0])
			if err != nil {
				return err
			}

			out, err := install.Describe(s, problems)
			if err != nil {
				return err
			}
			shown := shownSkill{Detail: out}
			shown.Tools, shown.NoTools = moduleapi.Offers(s)
			return jsonOr(cmd, shown, func() error { return printShownSkill(cmd.OutOrStdout(), s, out) })
		},
	})
}

func printShownSkill(w io.Writer, s *skills.Skill, out install.Detail) error {
	printSkill(w, s)
	if from := out.Installed; from != nil {
		fmt.Fprintln(w, "installed from:", origin(from.Source, from.Path, from.Revision, from.Commit))
	}
	if out.State == "changed" {
		fmt.Fprintln(w, "changed since it was installed, so that no agent gets it:", text.OneLine(out.Why))
	}
	for _, f := range out.Files {
		fmt.Fprintln(w, "file:", text.OneLine(f))
	}
	if out.More {
		fmt.Fprintln(w, "and more files")
	}
	printSkillProblems(w, out.Problems)
	for _, part := range []string{out.Instructions, out.Docs} {
		if part != "" {
			fmt.Fprintf(w, "\n%s\n", text.Lines(part))
		}
	}
	return nil
}

// printSkill prints the description of a skill and its requested permissions.
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
		// Skip commands that allow nothing. config check warns about them.
		grants, _ := plan.SkillCommands(s, agent.Specs())
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
		offers, unfit := moduleapi.Offers(s)
		for _, o := range offers {
			print("agents call it with", o.Name+": "+o.Description)
		}
		for _, why := range unfit {
			print("no tool for agents", why)
		}
	}

	print("folder", s.Dir)
}

func newSkillsSearch(env *cli) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "search WORDS",
		Short: "Finds skills by words of their name, description and tags, as agents do with capabilities_discover",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := env.skills()
			if err != nil {
				return err
			}
			var entries []skills.Entry
			for _, s := range all.Skills() {
				entries = append(entries, s.Entry())
			}

			hits := append([]skills.Hit{}, skills.Search(strings.Join(args, " "), entries, 20)...)
			return jsonOr(cmd, hits, func() error {
				return list(cmd.OutOrStdout(), hits, "no skill has any of these words", "NAME KIND DESCRIPTION", func(h skills.Hit) []string {
					s, _ := all.Get(h.Name)
					return []string{h.Name, string(s.Kind()), brief(h.Description)}
				})
			})
		},
	})
}

func newSkillsSignIns(env *cli) *cobra.Command {
	var remove string
	cmd := &cobra.Command{
		Use:   "sign-ins",
		Short: "Lists the services that skills are signed in to for agents, or forgets one; never a token",
		Long: `Lists the services that skills with a module are signed in to, each for one agent. The tokens are
kept as secrets are, in the keyring of the system or encrypted in HOME/sign-ins.age.

STATUS is authorized, expired (its owner is asked to sign in again when the skill next wants to) or unauthorized.
What is removed is forgotten here; the service itself lists and ends what it gave.`,
		Example: `  rouse skills sign-ins
  rouse skills sign-ins --remove clerk/mail-digest/acme`,
		RunE: env.with(toRead, func(s *session, _ []string) error {
			if remove != "" {
				var name api.SignInName
				return s.send("/v1/sign-ins/remove", api.SignInName{Name: remove}, &name, func() error {
					return sayf(s.out, "the sign-in %s is forgotten\n", text.OneLine(remove))
				})
			}
			var kept []api.SignIn
			return s.show("/v1/sign-ins", nil, &kept, func() error { return printSignIns(s.out, kept, s.now()) })
		}),
	}

	cmd.Flags().StringVar(&remove, "remove", "", "forget the sign-in of this `name`: AGENT/SKILL/PROVIDER")
	return withJSON(cmd)
}

func printSignIns(w io.Writer, kept []api.SignIn, now time.Time) error {
	return list(w, kept, "no skill is signed in anywhere", "NAME SERVICE STATUS UNTIL SCOPES", func(k api.SignIn) []string {
		status, until := k.Status, when(k.ExpiresAt, now)
		if k.Waiting {
			status += ", waits for you"
		}
		if k.Renews {
			until = "renewed by itself"
		}
		return []string{k.Name, k.Service, status, until, strings.Join(k.Scopes, ", ")}
	})
}
