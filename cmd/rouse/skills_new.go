package main

import (
	"os/user"

	"github.com/spf13/cobra"

	"rouse/internal/text"
	"rouse/skills"
)

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
		Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
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
		}),
	}

	f := cmd.Flags()
	f.StringVar(&mode, "mode", string(skills.ModeDeclarative), "declarative, flow or agentic")
	f.StringVar(&in, "in", ".", "the folder that it is written into")
	f.StringVar(&s.Description, "description", "", "what it does (default what the example does)")
	f.StringVar(&s.Author, "author", "", "who writes it (default your user name)")

	return cmd
}
