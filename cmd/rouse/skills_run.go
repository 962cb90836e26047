package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

// maxSkillInput is the maximum size of a skill's input on the command line, in bytes.
const maxSkillInput = 512 << 10

func newSkillsRun(env *cli) *cobra.Command {
	var agent, input, workspace string
	var dry bool
	cmd := &cobra.Command{
		Use:   "run NAME --agent AGENT",
		Short: "Runs the module of a skill once, and shows what it asks its host for",
		Long: `Runs the module of a skill once, as a recorded manual run under the agent's grants, and shows
each call that it makes of its host, as it is made.

With --dry-run the calls that only read are made, and the run ends before the first one that
would change anything, ask a model, or leave this machine with more than a reading request.

A skill that asks you something, or pauses, waits for you in the inbox: rouse inbox.`,
		Example: `  rouse skills run web-summary --agent reader --input page.json
  echo '{"expression": "2 + 2"}' | rouse skills run quick-calculator --agent reader --input -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if agent == "" {
				return usagef("name the agent under whose grants the skill runs: --agent AGENT")
			}
			given, err := readInput(cmd.InOrStdin(), input)
			if err != nil {
				return err
			}
			ask := api.RunRequest{Agent: agent, Skill: args[0], SkillInput: given, DryRun: dry, Workspace: workspace}
			return env.with(toRun, func(s *session, _ []string) error { return runSkill(s, ask) })(cmd, args)
		},
	}

	f := cmd.Flags()
	f.StringVar(&agent, "agent", "", "`name` of the agent under whose grants it runs")
	f.StringVar(&input, "input", "", "`file` with its input, a JSON object; - is standard input")
	f.StringVar(&workspace, "workspace", "", "`name` of the workspace in which it works; it is made where there is none")
	f.BoolVar(&dry, "dry-run", false, "end before the first call that would change anything")
	f.Bool("json", false, "print the run as JSON")
	return cmd
}

// readInput reads the input of a skill. Without a file it returns an empty object.
func readInput(stdin io.Reader, file string) (json.RawMessage, error) {
	if file == "" {
		return json.RawMessage("{}"), nil
	}

	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("the input of the skill: %w", err)
		}
		defer f.Close()
		stdin = f
	}

	raw, err := io.ReadAll(io.LimitReader(stdin, maxSkillInput+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the input of the skill cannot be read: %w", err)
	case len(raw) > maxSkillInput:
		return nil, fmt.Errorf("the input of the skill is larger than %s; name a file in it, which the skill reads", text.Size(maxSkillInput))
	}

	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return nil, usagef("the input of a skill is a JSON object, and %s is none", shorten(string(raw), 80))
	}
	return raw, nil
}

// runSkill executes a run and prints its events, even if this process executes the run.
func runSkill(s *session, ask api.RunRequest) error {
	var r api.Run
	if err := s.post("/v1/runs", ask, &r); err != nil {
		return err
	}
	quiet := wantsJSON(s.cmd)
	ctx, cancel := context.WithCancel(s.cmd.Context())
	defer cancel()
	var showing sync.WaitGroup
	if s.local != nil && !quiet {
		showing.Go(func() {
			// The events are also recorded, so an error here loses nothing.
			_ = printEvents(ctx, s, url.Values{"run": {r.ID}, "follow": {"true"}})
		})
	}

	err := s.finish(r.ID, quiet || s.local != nil, &r)
	if err != nil {
		cancel() // the run may end without an event that ends the stream
	}
	showing.Wait()
	if err != nil {
		return err
	}
	return printEnd(s, r)
}
