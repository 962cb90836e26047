package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
	"rouse/skills"
	"rouse/skills/install"
)

func newSkillsRemove(at *place) *cobra.Command {
	var without bool
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Removes a skill that was installed",
		Long: `Removes a skill that was installed.

One with a module may want to be told before: where it names the hooks onDisable and onUninstall,
they are called for each agent that has run it, as a recorded run under the agent's grants. The skill
stays where one of them fails, unless --without-hooks says to remove it all the same. What it
has stored stays in HOME/storage.`,
		Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			root, err := at.skillsHome()
			if err != nil {
				return err
			}
			pinned, err := install.Installed(root)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(pinned, func(p install.Pinned) bool { return p.Name == args[0] }) {
				if err := tellRemoved(cmd, at, filepath.Join(root, args[0]), without); err != nil {
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

// tellRemoved calls the hooks of a skill that is about to be removed, for each agent that has run it (OSL-06).
func tellRemoved(cmd *cobra.Command, at *place, dir string, without bool) error {
	s, _ := skills.Load(dir) // what is none that can be loaded has no hooks, and is removed
	if s == nil || s.Manifest == nil {
		return nil
	}
	last := slices.DeleteFunc(slices.Clone(s.Manifest.LifecycleHooks), func(name string) bool { return name != "onDisable" && name != "onUninstall" })
	agents, err := at.agentsThatStored(s.Name)
	if err != nil || len(last) == 0 || len(agents) == 0 {
		return err
	}
	if without {
		return sayf(cmd.OutOrStdout(), "%s of %s not called for %s\n", strings.Join(last, " and "), s.Name, strings.Join(agents, ", "))
	}

	session, err := at.openToRun(cmd.Context())
	if err != nil {
		return err
	}
	defer session.close()

	for _, agent := range agents {
		if err := tellAgent(cmd, session, agent, s.Name); err != nil {
			return fmt.Errorf("the skill %s is not removed, for its hooks could not be called for the agent %s: %w; say --without-hooks to remove it all the same", s.Name, agent, err)
		}
	}
	return nil
}

// agentsThatStored are the agents for which something of a skill is stored, which is where it is noted that its hooks were called.
func (at *place) agentsThatStored(skill string) ([]string, error) {
	home, err := at.homeDir()
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

// tellAgent has one run call the hooks, and waits for its end.
func tellAgent(cmd *cobra.Command, s *session, agent, skill string) error {
	var r api.Run
	if err := s.Post(cmd.Context(), "/v1/runs", api.RunRequest{Agent: agent, Skill: skill, Removes: true}, &r); err != nil {
		return err
	}
	if err := follow(cmd, s, r.ID, true); err != nil {
		return err
	}
	if err := s.Get(context.WithoutCancel(cmd.Context()), "/v1/runs/"+r.ID, nil, &r); err != nil {
		return err
	}
	if !endedWell(r) {
		return fmt.Errorf("run %s: %s", r.ID, text.OneLine(runSummary(r)))
	}
	return sayf(cmd.OutOrStdout(), "run %s has called its hooks for %s\n", r.ID, agent)
}
