package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/web"
)

func newShow(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show RUN",
		Short: "Shows one run: trigger, attempts, steps, calls, outcome",
		Args:  cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			s, err := at.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()
			var d web.RunDetail
			if err := s.Get(cmd.Context(), "/v1/runs/"+args[0], nil, &d); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), d)
			}
			printDetail(cmd.OutOrStdout(), d, time.Now())
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printDetail writes a run as a person reads it from top to bottom.
func printDetail(w io.Writer, d web.RunDetail, now time.Time) {
	fmt.Fprintf(w, "run %s of %s (agent %s)  %s\n", d.ID, jobName(d.Run), d.Agent, outcomeMark(d.Run))
	fmt.Fprintf(w, "  trigger   %s\n", oneLine(triggerText(d.Run)))
	if !d.ScheduledAt.IsZero() {
		fmt.Fprintf(w, "  scheduled %s\n", local(d.ScheduledAt, now))
	}
	fmt.Fprintf(w, "  queued    %s\n  started   %s\n  finished  %s (took %s)\n", local(d.QueuedAt, now), local(d.StartedAt, now), local(d.FinishedAt, now), took(d.Run, now))
	if d.Exit != "" {
		verified := ""
		if d.Outcome == "success" && !d.Verified {
			verified = ", not verified"
		}
		fmt.Fprintf(w, "  exit      %s%s\n", d.Exit, verified)
	}
	if d.Summary != "" {
		fmt.Fprintf(w, "  summary   %s\n", oneLine(d.Summary))
	}
	if d.Error != "" {
		fmt.Fprintf(w, "  error     %s\n", oneLine(d.Error))
	}
	if d.TokensIn+d.TokensOut > 0 {
		fmt.Fprintf(w, "  tokens    %d in, %d out\n", d.TokensIn, d.TokensOut)
	}
	for _, a := range d.Attempts {
		fmt.Fprintf(w, "attempt %d  %s  %s–%s", a.Number, a.State, local(a.StartedAt, now), local(a.FinishedAt, now))
		if a.Error != "" {
			fmt.Fprintf(w, "  %s", oneLine(a.Error))
		}
		fmt.Fprintln(w)
		for _, st := range d.StepsDetail {
			if st.Attempt == a.Number {
				printStep(w, st)
			}
		}
	}
}

// triggerText says in words what asked for a run.
func triggerText(r web.Run) string {
	var d ledger.Detail
	if err := json.Unmarshal(r.TriggerDetail, &d); err != nil {
		return r.Trigger + " " + string(r.TriggerDetail)
	}
	switch {
	case d.File != nil:
		return fmt.Sprintf("%s: %s (%d bytes)", r.Trigger, d.File.Path, d.File.Size)
	case d.Prompt != "":
		return fmt.Sprintf("%s: %s", r.Trigger, shorten(d.Prompt, 120))
	case d.Tool != "":
		return fmt.Sprintf("%s: a call of %s", r.Trigger, d.Tool)
	case len(d.Input) > 0:
		var pairs []string
		for _, k := range slices.Sorted(maps.Keys(d.Input)) {
			pairs = append(pairs, k+"="+d.Input[k])
		}
		return r.Trigger + ": " + strings.Join(pairs, " ")
	case d.Source != "":
		return r.Trigger + ": " + d.Source
	}
	return r.Trigger
}

func printStep(w io.Writer, st web.Step) {
	fmt.Fprintf(w, "  step %d", st.Step)
	if st.Text != "" {
		fmt.Fprintf(w, "  %s", shorten(st.Text, 160))
	}
	fmt.Fprintln(w)
	for _, n := range st.Notices {
		fmt.Fprintf(w, "    %s\n", shorten(n, 160))
	}
	for _, c := range st.Calls {
		mark := "ok"
		if !c.OK {
			mark = strings.TrimSpace(c.State + " " + c.Kind)
		} else if c.State == "replayed" {
			mark = "replayed"
		}
		fmt.Fprintf(w, "    %s %s → %s %s (%d ms)\n", c.Tool, shorten(string(c.Args), 120), mark, shorten(compact(c.Result), 160), c.DurationMS)
	}
}

// compact prints a result without the quotes of a plain text.
func compact(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}
