package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/web"
)

func newInbox(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inbox",
		Short: "Lists what waits for you: questions of runs, and calls that were cut off",
		Args:  cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			s, err := at.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()
			var items []web.Item
			if err := s.Get(cmd.Context(), "/v1/inbox", nil, &items); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), items)
			}
			out := cmd.OutOrStdout()
			if len(items) == 0 {
				_, err := fmt.Fprintln(out, "nothing waits for you")
				return err
			}
			for _, i := range items {
				printItem(out, i, time.Now())
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printItem writes an item as a person reads it: who asks, what, and how to answer. Lines of
// the message stay lines, indented, so that none of them looks like another item.
func printItem(w io.Writer, i web.Item, now time.Time) {
	left := ""
	if !i.ExpiresAt.IsZero() {
		left = fmt.Sprintf(", %s left", i.ExpiresAt.Sub(now).Round(time.Minute))
	}
	fmt.Fprintf(w, "%s  %s (run %s, since %s%s)\n", i.ID, oneLine(i.Title), i.Run, local(i.CreatedAt, now), left)
	for line := range strings.Lines(i.Message) {
		fmt.Fprintf(w, "    %s\n", oneLine(line))
	}
	if i.Kind == ledger.KindInput {
		for n, o := range i.Options {
			fmt.Fprintf(w, "    %d. %s\n", n+1, oneLine(o))
		}
	}
	fmt.Fprintf(w, "    rouse answer %s %s\n", i.ID, answerHint(i))
}

func answerHint(i web.Item) string {
	switch {
	case i.Kind != ledger.KindInput:
		return strings.Join(i.Options, "|")
	case len(i.Options) > 0 && i.Multiple:
		return "1,2"
	case len(i.Options) > 0:
		return "1"
	}
	return `"…"`
}

func newAnswer(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "answer ITEM TEXT",
		Short: "Answers an item of the inbox; its run goes on",
		Long: `Answers an item of the inbox. To a question the text may be one of the options, its number,
several of them with commas between where several may be chosen, or an answer of your own.
The run that asked goes on with it, as the same run.

A run of a playbook that was cut off during a call which may have changed something asks what
is to become of that call: done (it took effect, go on after it), again (make it again), skip
(go on without it) or stop (end the run). What is only told to you leaves the inbox with: seen.`,
		Args: cobra.MinimumNArgs(2),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			s, err := at.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()
			var r web.Run
			if err := s.Post(cmd.Context(), "/v1/inbox/"+args[0]+"/answer", web.Answer{Text: strings.Join(args[1:], " ")}, &r); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), r)
			}
			text := fmt.Sprintf("run %s goes on", r.ID)
			switch {
			case r.State == "finished":
				text = fmt.Sprintf("noted; run %s ended: %s", r.ID, r.Outcome)
			case r.WaitingFor != ledger.WaitResume:
				text = fmt.Sprintf("noted; run %s is %s", r.ID, r.State)
			case !s.daemon:
				text += " when a daemon starts: rouse serve"
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
