package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/text"
)

type runOptions struct {
	agent, prompt, file string
	input               []string
	wait, json          bool
}

func newRun(at *place) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run JOB | run --agent AGENT --prompt TEXT",
		Short: "Fires a job now, exactly as a trigger would, or runs an ad-hoc prompt",
		Long: `Fires a job now, exactly as a trigger would, or runs an ad-hoc prompt.

With --wait the run's events are printed as they happen and the exit code says how it
ended: 0 for success, nothing and partial, else 1. With no daemon the run is executed by
this command, which then always waits.`,
		Example: `  rouse run morning-report --wait
  rouse run inbox --file statements.csv
  rouse run --agent bookkeeper --prompt "How much did we spend on food?" --wait`,
		Args: cobra.MaximumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			fire, err := o.fire(args)
			if err != nil {
				return err
			}
			return fireAndFollow(cmd, at, fire, o)
		}),
	}

	f := cmd.Flags()
	f.StringVar(&o.agent, "agent", "", "`name` of the agent for --prompt")
	f.StringVar(&o.prompt, "prompt", "", "`text` to run instead of a job")
	f.StringVar(&o.file, "file", "", "`path` of a file, processed as if it had been dropped into the job's folder")
	f.StringArrayVar(&o.input, "input", nil, "`key=value` for .Input in the job's templates (repeatable)")
	f.BoolVar(&o.wait, "wait", false, "follow the run and exit by its outcome")
	f.BoolVar(&o.json, "json", false, "print the run as JSON")

	return cmd
}

// fire is the request that the command line means.
func (o runOptions) fire(args []string) (api.RunRequest, error) {
	f := api.RunRequest{Agent: o.agent, Prompt: o.prompt}
	switch {
	case len(args) == 1 && o.prompt != "":
		return f, usagef("give a job or --prompt, not both")
	case len(args) == 1 && o.agent != "":
		return f, usagef("--agent goes with --prompt; a job has its own agent")
	case len(args) == 1:
		f.Job = args[0]
	case o.prompt == "" || o.agent == "":
		return f, usagef("name a job, or give --agent and --prompt; the jobs are listed by: rouse jobs")
	}

	if o.file != "" {
		if f.Job == "" {
			return f, usagef("--file needs a job")
		}

		// The daemon has another working folder.
		path, err := filepath.Abs(o.file)
		if err != nil {
			return f, err
		}
		f.File = path
	}

	for _, pair := range o.input {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return f, usagef("--input %q is not key=value", pair)
		}

		if f.Input == nil {
			f.Input = map[string]string{}
		}

		f.Input[key] = value
	}

	return f, nil
}

func fireAndFollow(cmd *cobra.Command, at *place, fire api.RunRequest, o runOptions) error {
	ctx := cmd.Context()
	s, err := at.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()

	var r api.Run
	if err := s.Post(ctx, "/v1/runs", fire, &r); err != nil {
		return err
	}

	// Without a daemon nobody else would execute the run, so this command always waits.
	if s.daemon && !o.wait {
		if o.json {
			return printJSON(cmd.OutOrStdout(), r)
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "run %s is queued; follow it with: rouse logs %s -f\n", r.ID, r.ID)
		return err
	}

	if err := follow(cmd, s, r.ID, o.json); err != nil {
		return err
	}
	// Ctrl-C stops a run that is executed here, and its outcome is still to be shown.
	if err := s.Get(context.WithoutCancel(ctx), "/v1/runs/"+r.ID, nil, &r); err != nil {
		return err
	}

	if o.json {
		if err := printJSON(cmd.OutOrStdout(), r); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(cmd.OutOrStdout(), "run %s  %s  %s\n", r.ID, outcomeMark(r), text.OneLine(runSummary(r)))
	}

	switch {
	case o.json:
	case r.WaitingFor == domain.WaitInput:
		fmt.Fprintln(cmd.OutOrStdout(), "it waits for your answer: rouse inbox")
	case r.WaitingFor == domain.WaitApproval:
		fmt.Fprintln(cmd.OutOrStdout(), "it waits for your approval: rouse inbox")
	}

	if !endedWell(r) {
		return errSilent
	}

	return nil
}

// follow waits until a run has finished, executing it here when there is no daemon.
func follow(cmd *cobra.Command, s *session, id string, quiet bool) error {
	ctx := cmd.Context()
	if !s.daemon {
		return s.local.RunOnly(ctx, id)
	}

	err := followRemote(cmd, s, id, quiet)
	// Ctrl-C only ends the waiting: the run belongs to the daemon.
	if ctx.Err() != nil {
		return fmt.Errorf("run %s goes on in the daemon; follow it with: rouse logs %[1]s -f, or stop it with: rouse cancel %[1]s", id)
	}
	return err
}

// followRemote waits until a run of the daemon has finished.
func followRemote(cmd *cobra.Command, s *session, id string, quiet bool) error {
	q := url.Values{"run": {id}, "follow": {"true"}}
	if !quiet {
		return printEvents(cmd, s, q, false)
	}

	for _, err := range s.Lines(cmd.Context(), "/v1/events", q) {
		if err != nil {
			return err
		}
	}
	return nil
}

func endedWell(r api.Run) bool {
	return r.Outcome.Done()
}

func newCall(at *place) *cobra.Command {
	return &cobra.Command{
		Use:   "call AGENT TOOL [JSON]",
		Short: "Makes one tool call manually, as a recorded run under the agent's grants",
		Long: `Makes one tool call, as a recorded manual run under the agent's grants, and
prints the envelope. Exits 1 if the call failed.`,
		Example: `  rouse call bookkeeper db_query '{"sql": "select * from expenses limit 5"}'`,
		Args:    cobra.RangeArgs(2, 3),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			fire := api.RunRequest{Agent: args[0], Tool: args[1], Args: json.RawMessage("{}")}
			if len(args) == 3 {
				if !json.Valid([]byte(args[2])) {
					return usagef("the arguments are not JSON: %s", shorten(args[2], 80))
				}
				fire.Args = json.RawMessage(args[2])
			}

			return callManually(cmd, at, fire)
		}),
	}
}

func callManually(cmd *cobra.Command, at *place, fire api.RunRequest) error {
	ctx := cmd.Context()
	s, err := at.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()

	var r api.Run
	if err := s.Post(ctx, "/v1/runs", fire, &r); err != nil {
		return err
	}
	if err := follow(cmd, s, r.ID, true); err != nil {
		return err
	}

	var d api.RunDetail
	// As in fireAndFollow: an interrupted call still has an envelope to show.
	if err := s.Get(context.WithoutCancel(ctx), "/v1/runs/"+r.ID, nil, &d); err != nil {
		return err
	}

	for _, st := range d.StepsDetail {
		for _, c := range st.Calls {
			// A call that was asked about and not made has no answer.
			if string(c.Envelope) == "null" {
				continue
			}
			if err := printJSON(cmd.OutOrStdout(), c.Envelope); err != nil {
				return err
			}
			if !c.OK {
				return errSilent
			}

			return nil
		}
	}

	if d.WaitingFor == domain.WaitApproval {
		return fmt.Errorf("run %s needs your approval for the call: rouse inbox", d.ID)
	}

	return fmt.Errorf("run %s made no call: %s", d.ID, runSummary(d.Run))
}
