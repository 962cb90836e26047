package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/config"
	"rouse/internal/text"
	"rouse/skills"
	"rouse/skills/install"
)

// skillsHome is where skills are installed.
func (at *place) skillsHome() (string, error) {
	home, err := at.homeDir()
	return filepath.Join(home, "skills"), err
}

// staged is what `rouse skills install --json` prints.
type staged struct {
	Installed bool             `json:"installed"`
	Skill     *skills.Skill    `json:"skill"`
	Kind      skills.Kind      `json:"kind"`
	Terms     []skills.Term    `json:"terms,omitempty"`   // what its program says and asks for
	Changes   []skills.Change  `json:"changes,omitempty"` // of these, from the one that it replaces
	Source    string           `json:"source"`
	Path      string           `json:"path,omitempty"`
	Revision  string           `json:"revision,omitempty"`
	Commit    string           `json:"commit,omitempty"`
	Hash      string           `json:"hash"`
	Files     []install.File   `json:"files"`
	Problems  []skills.Problem `json:"problems"`
}

type installOptions struct {
	path, revision     string
	yes, replace, json bool
}

func newSkillsInstall(at *place) *cobra.Command {
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
		Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error { return runSkillsInstall(cmd, at, o, args[0]) }),
	}

	f := cmd.Flags()
	f.StringVar(&o.path, "path", "", "of the skill within the source, where that holds several")
	f.StringVar(&o.revision, "revision", "", "branch, tag or commit of a repository (default the one that it shows)")
	f.BoolVar(&o.yes, "yes", false, "install without being asked")
	f.BoolVar(&o.replace, "replace", false, "replace a skill of the same name")
	f.BoolVar(&o.json, "json", false, "print JSON; needs --yes")

	return cmd
}

// runSkillsInstall shows what would be installed, asks, and installs it.
func runSkillsInstall(cmd *cobra.Command, at *place, o installOptions, from string) (err error) {
	root, err := at.skillsHome()
	if err != nil {
		return err
	}

	source := install.Source{From: from, Path: o.path, Revision: o.revision}
	if source.Remote() {
		if err := at.checkGitSettings(cmd.Context()); err != nil {
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
	if !o.json {
		printStaged(cmd.OutOrStdout(), s)
		printChanges(cmd.OutOrStdout(), changes, replaces && s.Skill.Manifest != nil)
	}

	if !o.yes {
		ok, err := confirm(cmd, "Install it?", "nothing was installed")
		if err != nil || !ok {
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

	if o.json {
		said.Installed = true
		said.Skill.Dir, said.Skill.File = filepath.Join(root, pinned.Name), filepath.Join(root, pinned.Name, filepath.Base(s.Skill.File))
		return printJSON(cmd.OutOrStdout(), said)
	}

	return sayf(cmd.OutOrStdout(), "installed %s in %s\n", pinned.Name, filepath.Join(root, pinned.Name))
}

// checkGitSettings fails if git would read settings that an agent can write: they name programs that git runs.
func (at *place) checkGitSettings(ctx context.Context) error {
	cfg, err := at.load()
	var wrong *config.Errors
	switch {
	case errors.Is(err, config.ErrNoFile) && at.config == "":
		return nil // there are no agents
	case err != nil && (!errors.As(err, &wrong) || cfg == nil):
		return err
	}

	files, err := install.Settings(ctx)
	if err != nil {
		return err
	}
	for _, file := range files {
		if who := cfg.Writer(file); who != "" {
			return fmt.Errorf("git is not started, because it would run programs that its settings in %s name, and %s; give the agent another folder, or keep the settings elsewhere", text.OneLine(file), who)
		}
	}
	return nil
}

// printStaged shows what is about to be installed.
func printStaged(w io.Writer, s *install.Staged) {
	// A copy: the staged skill is installed afterwards and keeps its folder.
	one := *s.Skill
	one.Dir = "" // where it is staged
	printSkill(w, &one)
	fmt.Fprintln(w, "from:", origin(s.Source, s.Path, s.Revision, s.Commit))
	printSkillFiles(w, s.Files, s.Hash)
	for _, p := range s.Problems {
		p.File = filepath.Base(p.File)
		fmt.Fprintln(w, text.OneLine(p.String()))
	}
}

// printChanges shows how what a program asks for differs from what the installed one does.
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

// origin is where a skill comes from, as far as that is known.
func origin(parts ...string) string {
	return text.OneLine(strings.Join(slices.DeleteFunc(parts, func(t string) bool { return t == "" }), "  "))
}

// confirm asks on a terminal, and says what a no means; without a terminal it is an error.
func confirm(cmd *cobra.Command, question, no string) (bool, error) {
	in, ok := cmd.InOrStdin().(*os.File)
	if ok {
		info, err := in.Stat()
		// A pipe is no consent: "yes | rouse skills install" must not install what nobody read.
		ok = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	if !ok {
		return false, usagef("nobody can be asked here; say --yes when you have read the above")
	}

	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	// Ctrl-D without a line is a no.
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a == "y" || a == "yes" {
		return true, nil
	}

	fmt.Fprintln(cmd.ErrOrStderr(), no)
	return false, errSilent
}

func newSkillsPin(at *place) *cobra.Command {
	return &cobra.Command{
		Use:   "pin NAME",
		Short: "Accepts an installed skill as it is now, after you changed it",
		Args:  cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			root, err := at.skillsHome()
			if err != nil {
				return err
			}

			p, err := install.Pin(cmd.Context(), root, args[0])
			if err != nil {
				return err
			}

			return sayf(cmd.OutOrStdout(), "pinned %s at sha256 %s\n", p.Name, p.Hash)
		}),
	}
}

// outdated is an installed skill, and whether its source holds another one now.
type outdated struct {
	install.Pinned
	State string `json:"state"`         // current, newer, unknown
	Now   string `json:"now,omitempty"` // hash of what the source holds
	Error string `json:"error,omitempty"`
}

func newSkillsOutdated(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "outdated",
		Short: "Lists installed skills, and whether their sources hold newer ones",
		Long: `Lists installed skills, and whether their sources hold newer ones: current, newer, or unknown
where the source cannot be asked. rouse skills install SOURCE --replace brings a newer one. It
exits 1 unless all are current.`,
		Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			root, err := at.skillsHome()
			if err != nil {
				return err
			}

			pinned, err := install.Installed(root)
			if err != nil {
				return err
			}

			if slices.ContainsFunc(pinned, func(p install.Pinned) bool { return install.Source{From: p.Source}.Remote() }) {
				if err := at.checkGitSettings(cmd.Context()); err != nil {
					return err
				}
			}
			out, any := []outdated{}, false
			for _, p := range pinned {
				o := isOutdated(cmd.Context(), root, p)
				any = any || o.State != "current"
				out = append(out, o)
			}

			if asJSON {
				err = printJSON(cmd.OutOrStdout(), out)
			} else {
				var rows [][]string
				for _, o := range out {
					rows = append(rows, []string{o.Name, o.State, o.Source, o.Error})
				}
				err = table(cmd.OutOrStdout(), "NAME STATE SOURCE PROBLEM", rows)
			}
			if err == nil && any {
				return errSilent
			}

			return err
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// isOutdated asks the source of an installed skill: a repository for the commit of its revision,
// and if that is another one, as a folder or an archive, for the files.
func isOutdated(ctx context.Context, root string, p install.Pinned) outdated {
	out := outdated{Pinned: p, State: "unknown", Now: p.Hash}
	from := install.Source{From: p.Source, Path: p.Path, Revision: p.Revision}
	same := false
	var err error
	if from.Remote() {
		var commit string
		commit, err = install.Latest(ctx, p.Source, p.Revision)
		// Fetching a whole repository is only worth it when its revision has moved.
		same = commit == p.Commit || commit == "" // a commit does not move
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
