package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/places"
	"rouse/cmd/internal/config/yaml"
	"rouse/internal/text"
	"rouse/skills"
	"rouse/skills/install"
)

// inSkills returns a RunE that calls f with the folder of installed skills.
func (env *cli) inSkills(f func(cmd *cobra.Command, args []string, root string) error) func(*cobra.Command, []string) error {
	return env.inHome(func(cmd *cobra.Command, args []string, home string) error {
		return f(cmd, args, filepath.Join(home, "skills"))
	})
}

// staged is the output of `rouse skills install --json`.
type staged struct {
	Installed bool             `json:"installed"`
	Skill     *skills.Skill    `json:"skill"`
	Kind      skills.Kind      `json:"kind"`
	Terms     []skills.Term    `json:"terms,omitempty"`   // declarations and permissions of its program
	Changes   []skills.Change  `json:"changes,omitempty"` // changes to these terms, compared with the replaced skill
	Source    string           `json:"source"`
	Path      string           `json:"path,omitempty"`
	Revision  string           `json:"revision,omitempty"`
	Commit    string           `json:"commit,omitempty"`
	Hash      string           `json:"hash"`
	Files     []install.File   `json:"files"`
	Problems  []skills.Problem `json:"problems"`
}

type installOptions struct {
	path, revision string
	yes, replace   bool
}

func newSkillsInstall(env *cli) *cobra.Command {
	var o installOptions
	cmd := &cobra.Command{
		Use:   "install FOLDER|ARCHIVE|URL",
		Short: "Shows a skill from a folder, an archive or a git repository, asks, and installs it",
		Long: `Shows a skill from a folder, an archive (zip, tar, tar.gz) or a git repository: what it says
of itself, its files, which of them are programs, and what it asks for: tools, and of a module its
permissions, addresses, models and secrets. Where it replaces one it shows what of that changes.
Then it asks, and installs the skill in HOME/skills, pinned by the hash of its files. A skill's
instructions are followed by agents: install what you have read.`,
		Example: `  rouse skills install ./csv-report
  rouse skills install https://github.com/anthropics/skills --path skills/pdf --revision main`,
		RunE: env.inSkills(func(cmd *cobra.Command, args []string, root string) error {
			return installSkill(cmd, env, o, args[0], root)
		}),
	}

	f := cmd.Flags()
	f.StringVar(&o.path, "path", "", "of the skill within the source, where that holds several")
	f.StringVar(&o.revision, "revision", "", "branch, tag or commit of a repository (default the one that it shows)")
	f.BoolVar(&o.yes, "yes", false, "install without being asked")
	f.BoolVar(&o.replace, "replace", false, "replace a skill of the same name")
	f.Bool("json", false, "print JSON; needs --yes")

	return cmd
}

// installSkill shows a skill, asks for confirmation, and installs it.
func installSkill(cmd *cobra.Command, env *cli, o installOptions, from, root string) (err error) {
	source := install.Source{From: from, Path: o.path, Revision: o.revision}
	if source.Remote() {
		if err := env.checkGitSettings(cmd.Context()); err != nil {
			return err
		}
	}
	s, err := install.Fetch(cmd.Context(), root, source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	changes, replaces := s.Changes(root)
	said := staged{Skill: s.Skill, Kind: s.Skill.Kind(), Changes: changes, Source: s.Source, Path: s.Path, Revision: s.Revision, Commit: s.Commit, Hash: s.Hash, Files: s.Files, Problems: append([]skills.Problem{}, s.Problems...)}
	if s.Skill.Manifest != nil {
		said.Terms = s.Skill.Manifest.Terms()
	}
	if !wantsJSON(cmd) {
		printStaged(cmd.OutOrStdout(), s)
		printChanges(cmd.OutOrStdout(), changes, replaces && s.Skill.Manifest != nil)
	}
	if !o.yes {
		if err := confirm(cmd, "Install it?", "nothing was installed"); err != nil {
			return err
		}
	}

	pinned, err := install.Install(cmd.Context(), root, s, o.replace)
	if errors.Is(err, install.ErrExists) {
		return fmt.Errorf("%w; replace it with --replace", err)
	}
	if err != nil {
		return err
	}
	said.Installed = true
	said.Skill.Dir, said.Skill.File = filepath.Join(root, pinned.Name), filepath.Join(root, pinned.Name, filepath.Base(s.Skill.File))
	return jsonOr(cmd, said, func() error {
		return sayf(cmd.OutOrStdout(), "installed %s in %s\n", pinned.Name, said.Skill.Dir)
	})
}

// checkGitSettings fails if an agent can write git settings, which can name programs that git runs.
func (env *cli) checkGitSettings(ctx context.Context) error {
	cfg, err := env.load()
	var wrong *config.Errors
	switch {
	case errors.Is(err, yaml.ErrNoFile) && env.config == "":
		return nil // there are no agents
	case err != nil && (!errors.As(err, &wrong) || cfg == nil):
		return err
	}

	files, err := install.Settings(ctx)
	if err != nil {
		return err
	}
	for _, file := range files {
		if who := places.Writer(cfg, file); who != "" {
			return fmt.Errorf("git is not started, because it would run programs that its settings in %s name, and %s; give the agent another folder, or keep the settings elsewhere", text.OneLine(file), who)
		}
	}
	return nil
}

// printStaged prints the skill before its installation.
func printStaged(w io.Writer, s *install.Staged) {
	// Copy the skill: the original keeps its folder for the installation.
	one := *s.Skill
	one.Dir = "" // do not show the temporary folder
	printSkill(w, &one)
	fmt.Fprintln(w, "from:", origin(s.Source, s.Path, s.Revision, s.Commit))
	printSkillFiles(w, s.Files, s.Hash)
	for _, p := range s.Problems {
		p.File = filepath.Base(p.File)
		fmt.Fprintln(w, text.OneLine(p.String()))
	}
}

// printChanges prints how the terms of a program differ from those of the installed one.
func printChanges(w io.Writer, changes []skills.Change, replaces bool) {
	if replaces && len(changes) == 0 {
		fmt.Fprintln(w, "the one that is installed says and asks for the same")
	}
	if len(changes) > 0 {
		fmt.Fprintln(w, "what differs from the one that is installed:")
	}
	for _, c := range changes {
		mark := "-"
		if c.Added {
			mark = "+"
		}
		fmt.Fprintf(w, "  %s %s: %s\n", mark, c.What, text.OneLine(c.Text))
	}
}

// origin returns the source of a skill, without unknown parts.
func origin(parts ...string) string {
	return text.OneLine(strings.Join(slices.DeleteFunc(parts, func(t string) bool { return t == "" }), "  "))
}

// confirm asks on a terminal and returns an error unless the answer is yes. It does not read from a
// pipe: "yes | rouse skills install" must not install a skill that its user has not reviewed.
func confirm(cmd *cobra.Command, question, no string) error {
	d := dialogueOf(cmd, no)
	if d == nil {
		return usagef("nobody can be asked here; say --yes when you have read the above")
	}
	d.confirm(question, "no")
	return d.err
}

func newSkillsPin(env *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "pin NAME",
		Short: "Accepts an installed skill as it is now, after you changed it",
		RunE: env.inSkills(func(cmd *cobra.Command, args []string, root string) error {
			p, err := install.Pin(cmd.Context(), root, args[0])
			if err != nil {
				return err
			}
			return sayf(cmd.OutOrStdout(), "pinned %s at sha256 %s\n", p.Name, p.Hash)
		}),
	}
}

// outdated is an installed skill with the state of its source.
type outdated struct {
	install.Pinned
	State string `json:"state"`         // current, newer, unknown
	Now   string `json:"now,omitempty"` // hash of the files in the source
	Error string `json:"error,omitempty"`
}

func newSkillsOutdated(env *cli) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "outdated",
		Short: "Lists installed skills, and whether their sources hold newer ones",
		Long: `Lists installed skills, and whether their sources hold newer ones: current, newer, or unknown
where the source cannot be asked. rouse skills install SOURCE --replace brings a newer one. It
exits 1 unless all are current.`,
		RunE: env.inSkills(func(cmd *cobra.Command, _ []string, root string) error {
			pinned, err := install.Installed(root)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(pinned, func(p install.Pinned) bool { return install.Source{From: p.Source}.Remote() }) {
				if err := env.checkGitSettings(cmd.Context()); err != nil {
					return err
				}
			}
			out := []outdated{}
			for _, p := range pinned {
				out = append(out, isOutdated(cmd.Context(), root, p))
			}
			stale := slices.ContainsFunc(out, func(o outdated) bool { return o.State != "current" })
			return failIf(stale, jsonOr(cmd, out, func() error {
				return list(cmd.OutOrStdout(), out, "", "NAME STATE SOURCE PROBLEM", func(o outdated) []string {
					return []string{o.Name, o.State, o.Source, o.Error}
				})
			}))
		}),
	})
}

// isOutdated compares an installed skill with its source. For a repository it compares commits
// first, to avoid a fetch. Otherwise, or if the commits differ, it compares the files.
func isOutdated(ctx context.Context, root string, p install.Pinned) outdated {
	out := outdated{Pinned: p, State: "unknown", Now: p.Hash}
	from := install.Source{From: p.Source, Path: p.Path, Revision: p.Revision}
	same := false
	var err error
	if from.Remote() {
		var commit string
		commit, err = install.Latest(ctx, p.Source, p.Revision)
		// Fetch the repository only if its revision has moved.
		same = commit == p.Commit || commit == "" // commit is "" if the revision is itself a commit
	}
	if err == nil && !same {
		var s *install.Staged
		if s, err = install.Fetch(ctx, root, from); err == nil {
			out.Now, err = s.Hash, s.Close()
		}
	}

	switch {
	case err != nil:
		out.Now, out.Error = "", err.Error()
	case out.Now != p.Hash:
		out.State = "newer"
	default:
		out.State = "current"
	}

	return out
}

func newSkillsRemove(env *cli) *cobra.Command {
	var without bool
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Removes a skill that was installed",
		Long: `Removes a skill that was installed.

One with a module may want to be told before: where it names the hooks onDisable and onUninstall,
they are called for each agent that has run it, as a recorded run under the agent's grants. The skill
stays where one of them fails, unless --without-hooks says to remove it all the same. What it
has stored stays in HOME/storage.`,
		RunE: env.inSkills(func(cmd *cobra.Command, args []string, root string) error {
			pinned, err := install.Installed(root)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(pinned, func(p install.Pinned) bool { return p.Name == args[0] }) {
				if err := tellRemoved(cmd, env, filepath.Join(root, args[0]), without); err != nil {
					return err
				}
			}
			if err := install.Remove(cmd.Context(), root, args[0]); err != nil {
				return err
			}
			return sayf(cmd.OutOrStdout(), "removed %s\n", text.OneLine(args[0]))
		}),
	}
	cmd.Flags().BoolVar(&without, "without-hooks", false, "call none of its hooks")
	return cmd
}

// tellRemoved calls the remove hooks of a skill, once per agent that has run the skill.
func tellRemoved(cmd *cobra.Command, env *cli, dir string, without bool) error {
	s, _ := skills.Load(dir) // a skill that cannot be loaded has no hooks, but can be removed
	if s == nil || s.Manifest == nil {
		return nil
	}
	last := slices.DeleteFunc(slices.Clone(s.Manifest.LifecycleHooks), func(name string) bool { return name != "onDisable" && name != "onUninstall" })
	agents, err := env.agentsThatStored(s.Name)
	if err != nil || len(last) == 0 || len(agents) == 0 {
		return err
	}
	if without {
		return sayf(cmd.OutOrStdout(), "%s of %s not called for %s\n", strings.Join(last, " and "), s.Name, strings.Join(agents, ", "))
	}

	return env.with(toRun, func(session *session, _ []string) error {
		for _, agent := range agents {
			if err := tellAgent(session, agent, s.Name); err != nil {
				return fmt.Errorf("the skill %s is not removed, for its hooks could not be called for the agent %s: %w; say --without-hooks to remove it all the same", s.Name, agent, err)
			}
		}
		return nil
	})(cmd, nil)
}

// agentsThatStored returns the agents with data of a skill. The data records the called hooks.
func (env *cli) agentsThatStored(skill string) ([]string, error) {
	home, err := env.homeDir()
	if err != nil {
		return nil, err
	}
	folders, err := os.ReadDir(filepath.Join(home, "storage"))
	if os.IsNotExist(err) {
		return nil, nil
	}

	var out []string
	for _, f := range folders {
		if _, err := os.Stat(filepath.Join(home, "storage", f.Name(), skill+".db")); err == nil {
			out = append(out, f.Name())
		}
	}
	return out, err
}

// tellAgent starts a run that calls the hooks, and waits for its end.
func tellAgent(s *session, agent, skill string) error {
	var r api.Run
	if err := s.execute(api.RunRequest{Agent: agent, Skill: skill, Uninstall: true}, &r); err != nil {
		return err
	}
	if !endedWell(r) {
		return fmt.Errorf("run %s: %s", r.ID, text.OneLine(runSummary(r)))
	}
	return sayf(s.out, "run %s has called its hooks for %s\n", r.ID, agent)
}

func newSkillsTrust(env *cli) *cobra.Command {
	var yes, revoke bool
	cmd := &cobra.Command{
		Use:   "trust FOLDER",
		Short: "Trusts a skill where it lies, as it is now, for a folder of skills that is not trusted",
		Long: `Shows a skill of a folder that is not trusted, as the .agents/skills of a project, asks, and trusts
it where it lies, by the hash of its files: once any of them changes, it is not loaded until it is
trusted again. A skill that an agent could change is refused.`,
		Example: `  rouse skills trust .agents/skills/release-notes`,
		RunE: env.inHome(func(cmd *cobra.Command, args []string, home string) error {
			if revoke {
				return revokeTrust(cmd, home, args[0])
			}
			return trustSkill(cmd, env, home, args[0], yes)
		}),
	}

	cmd.Flags().BoolVar(&yes, "yes", false, "trust without being asked")
	cmd.Flags().BoolVar(&revoke, "revoke", false, "trust it no more")
	return cmd
}

// trustSkill shows a skill, asks for confirmation, and trusts exactly the shown files.
func trustSkill(cmd *cobra.Command, env *cli, home, folder string, yes bool) error {
	s, problems := skills.Load(folder)
	if s == nil {
		return errors.New(firstError(problems))
	}

	cfg, err := env.load()
	var wrong *config.Errors
	switch {
	// Ignore mistakes in the configuration: this skill may fix them, and writable folders are
	// known.
	case err != nil && !errors.As(err, &wrong):
		return err
	case places.Writer(cfg, s.Dir) != "":
		return fmt.Errorf("the skill in %s is not to be trusted there: %s; keep it where no agent can write, as in %s/skills", s.Dir, places.Writer(cfg, s.Dir), home)
	}

	// Trust the hash of the shown files, so that later changes are not trusted.
	files, hash, err := install.Files(s.Dir)
	if err != nil {
		return err
	}
	printSkill(cmd.OutOrStdout(), s)
	printSkillFiles(cmd.OutOrStdout(), files, hash)
	printSkillProblems(cmd.OutOrStdout(), problems)
	if !yes {
		if err := confirm(cmd, "Trust it as it is?", "it is not trusted"); err != nil {
			return err
		}
	}
	if err := install.TrustSkill(home, s.Dir, hash); err != nil {
		return err
	}

	fmt.Fprintf(cmd.OutOrStdout(), "trusted %s at sha256 %s\n", text.OneLine(s.Dir), hash)
	return tellDaemon(cmd.Context(), cmd.OutOrStdout(), home)
}

func revokeTrust(cmd *cobra.Command, home, folder string) error {
	dir, err := skills.Resolve(folder)
	if err != nil {
		return err
	}
	was, err := install.DistrustSkill(home, dir)
	if err == nil && !was {
		err = fmt.Errorf("the skill in %s was not trusted by itself", dir)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "no longer trusted: %s\n", text.OneLine(dir))
	return tellDaemon(cmd.Context(), cmd.OutOrStdout(), home)
}

// printSkillFiles lists the files of a skill and marks programs.
func printSkillFiles(w io.Writer, files []install.File, hash string) {
	total := int64(0)
	for _, f := range files {
		mark := ""
		if total += f.Bytes; f.Executable {
			mark = "  (a program)"
		}
		if f.Link != "" {
			mark = "  (a link to " + text.OneLine(f.Link) + ")"
		}
		fmt.Fprintf(w, "%10d  %s%s\n", f.Bytes, text.OneLine(f.Path), mark)
	}

	fmt.Fprintf(w, "files: %d, bytes: %d, sha256: %s\n", len(files), total, hash)
}
