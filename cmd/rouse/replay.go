package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"rouse/agent/model/replay"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/control"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/plan"
	"rouse/internal/atomicfile"
	"rouse/internal/text"
)

type replayOptions struct {
	with, save string
	answers    bool
}

func newReplay(env *cli) *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay RUN",
		Short: "Plays a recorded run again without any effect, and shows what is different today",
		Long: `Plays a finished run again as its job is configured today, and shows what is
different: what its model is asked, the calls, their results, the end, the cost.

Nothing is done: the answers are those that the model gave, the results those that the
tools gave, and what is written on the way is thrown away. So after a change of a prompt,
of the tools, of bounds or prices it says what would have been asked and allowed, up to
where the recording ends; what a model would have said to it, it cannot know. Time stands
still: bounds of time end nothing.

The job needs "record: true" before the run. A playbook has no model, so all its runs can
be played. Exits 0 when nothing is different, else 1.`,
		Example: `  rouse replay 42
  rouse replay 42 --with changed.yaml
  rouse replay 42 --save morning.jsonl --answers`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.save != "" && (o.with != "" || wantsJSON(cmd)) {
				return usagef("--save keeps the recording and plays nothing; leave out --with and --json")
			}
			if o.answers && o.save == "" {
				return usagef("--answers goes with --save")
			}

			var rec replay.Recording
			err := env.with(toChange, func(s *session, args []string) (err error) {
				var kept api.Recording
				if err := s.get("/v1/runs/"+args[0]+"/recording", nil, &kept); err != nil {
					return err
				}
				rec, err = replay.Read(strings.NewReader(kept.File))
				return err
			})(cmd, args)
			switch {
			case err != nil:
				return err
			case o.save != "":
				return saveRecording(cmd.OutOrStdout(), rec, o)
			}
			return playRecording(cmd, env, rec, o.with)
		},
	}

	f := cmd.Flags()
	f.StringVar(&o.with, "with", "", "configuration `file` to play it with (default the one of --config)")
	f.StringVar(&o.save, "save", "", "write the recording to a `file` instead, for a model with provider: replay")
	f.BoolVar(&o.answers, "answers", false, "with --save: the answers alone, which are then given whatever is asked")
	return withJSON(cmd)
}

// saveRecording writes a recording to a file. A model with provider: replay answers from that file.
func saveRecording(out io.Writer, rec replay.Recording, o replayOptions) error {
	if len(rec.Exchanges) == 0 {
		return fmt.Errorf("run %s has no exchange with a model to save; set record: true on %s, and run it again", rec.Run.ID, strings.TrimSpace("its job "+rec.Run.Job))
	}
	if o.answers {
		rec = rec.AnswersOnly()
	}
	// Mode 0600, because a recording holds the prompts and results of a run, which may be private.
	err := atomicfile.StreamNew(o.save, 0o600, func(w io.Writer) error { return replay.Write(w, rec) })
	if err != nil {
		return fmt.Errorf("the recording cannot be saved: %w", err)
	}
	return sayf(out, "%s holds %s; use it as a model: {name: …, provider: replay, recording: %s}\n", o.save, text.Plural(len(rec.Exchanges), "exchange"), o.save)
}

func playRecording(cmd *cobra.Command, env *cli, rec replay.Recording, with string) error {
	cfg, err := env.load()
	if with != "" {
		cfg, err = plan.Load(with, env.home)
	}
	if err != nil {
		return err
	}
	plan, err := plan.New(cfg, logging.Quiet())
	if err != nil {
		return err
	}
	out, err := control.PlayRecording(cmd.Context(), plan, rec)
	if err != nil {
		return err
	}
	return failIf(!out.Same, jsonOr(cmd, out, func() error { return printReplay(cmd.OutOrStdout(), out) }))
}

// printReplay prints the differences in the order in which they occur.
func printReplay(w io.Writer, r api.Replay) error {
	fmt.Fprintf(w, "run %s of %s (agent %s), played again on %s and %s\n", r.Run, cmp.Or(r.Job, "no job"), r.Agent,
		text.Plural(r.Exchanges, "recorded answer"), text.Plural(r.Calls, "recorded call"))
	if r.Same {
		return sayf(w, "no difference: %s\n", endingText(r.Now))
	}

	// Start with a value that no difference has, so that the first heading is always printed.
	place := "-"
	for _, d := range r.Differences {
		here := ""
		if d.Step > 0 {
			here = fmt.Sprintf("step %d", d.Step)
			// Step numbers repeat only if a run has several attempts.
			if r.Attempts > 1 {
				here = fmt.Sprintf("attempt %d, %s", d.Attempt, here)
			}
		}

		if here != place {
			fmt.Fprintln(w, cmp.Or(here, "the end"))
			place = here
		}

		fmt.Fprintf(w, "  %s\n    recorded  %s\n    now       %s\n", text.OneLine(d.What), cmp.Or(text.OneLine(d.Recorded), "–"), cmp.Or(text.OneLine(d.Now), "–"))
	}

	if r.Unknown != "" {
		fmt.Fprintf(w, "not played to its end: %s\n", text.OneLine(r.Unknown))
	}

	now := r.Now
	if r.Unknown != "" {
		now.Outcome = "not known"
	}
	return sayf(w, "recorded: %s\nnow:      %s\n", endingText(r.Recorded), endingText(now))
}

func endingText(e api.ReplayEnding) string {
	words := fmt.Sprintf("%s, %s, %s, %s", e.Outcome, text.Plural(e.Steps, "step"), text.Plural(e.Calls, "call"), text.Plural(e.Tokens, "token"))
	if e.CostMicroUSD > 0 {
		words += ", " + dollars(float64(e.CostMicroUSD)/1e6)
	}
	return words
}
