package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/config"
	"rouse/internal/text"
	"rouse/skills"
	"rouse/skills/install"
)

func newSkillsTrust(at *place) *cobra.Command {
	var yes, revoke bool
	cmd := &cobra.Command{
		Use:   "trust FOLDER",
		Short: "Trusts a skill where it lies, as it is now, for a folder of skills that is not trusted",
		Long: `Shows a skill of a folder that is not trusted, as the .agents/skills of a project, asks, and trusts
it where it lies, by the hash of its files: once any of them changes, it is not loaded until it is
trusted again. A skill that an agent could change is refused.`,
		Example: `  rouse skills trust .agents/skills/release-notes`,
		Args:    cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			home, err := at.homeDir()
			if err != nil {
				return err
			}
			if revoke {
				return revokeTrust(cmd, at, home, args[0])
			}
			return trustSkill(cmd, at, home, args[0], yes)
		}),
	}

	cmd.Flags().BoolVar(&yes, "yes", false, "trust without being asked")
	cmd.Flags().BoolVar(&revoke, "revoke", false, "trust it no more")
	return cmd
}

// trustSkill shows what would be trusted, asks, and trusts exactly that.
func trustSkill(cmd *cobra.Command, at *place, home, folder string, yes bool) error {
	s, problems := skills.Load(folder)
	if s == nil {
		return errors.New(firstError(problems))
	}

	cfg, err := at.load()
	var wrong *config.Errors
	switch {
	// What is wrong may be what this skill mends; who may write where is known all the same.
	case err != nil && !errors.As(err, &wrong):
		return err
	case cfg.Writer(s.Dir) != "":
		return fmt.Errorf("the skill in %s is not to be trusted there: %s; keep it where no agent can write, as in %s/skills", s.Dir, cfg.Writer(s.Dir), home)
	}

	// The hash of what is shown: what changes while its owner reads is not trusted.
	files, hash, err := install.Files(s.Dir)
	if err != nil {
		return err
	}
	printSkill(cmd.OutOrStdout(), s)
	printSkillFiles(cmd.OutOrStdout(), files, hash)
	for _, p := range problems {
		fmt.Fprintln(cmd.OutOrStdout(), text.OneLine(p.String()))
	}

	if !yes {
		ok, err := confirm(cmd, "Trust it as it is?", "it is not trusted")
		if err != nil || !ok {
			return err
		}
	}
	if err := install.TrustSkill(home, s.Dir, hash); err != nil {
		return err
	}

	fmt.Fprintf(cmd.OutOrStdout(), "trusted %s at sha256 %s\n", text.OneLine(s.Dir), hash)
	return tellDaemon(cmd.Context(), cmd.OutOrStdout(), at)
}

func revokeTrust(cmd *cobra.Command, at *place, home, folder string) error {
	dir, err := skills.Resolve(folder)
	if err != nil {
		return err
	}

	was, err := install.DistrustSkill(home, dir)
	switch {
	case err != nil:
		return err
	case !was:
		return fmt.Errorf("the skill in %s was not trusted by itself", dir)
	}

	fmt.Fprintf(cmd.OutOrStdout(), "no longer trusted: %s\n", text.OneLine(dir))
	return tellDaemon(cmd.Context(), cmd.OutOrStdout(), at)
}

// printSkillFiles lists the files of a skill, and which of them are programs.
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
