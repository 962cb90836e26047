package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/web"
)

func newInbox(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inbox",
		Short: "Lists what waits for you: questions of runs",
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
				left := time.Until(i.ExpiresAt.Time).Round(time.Minute)
				fmt.Fprintf(out, "%s  %s (run %s, since %s, %s left)\n    %s\n", i.ID, oneLine(i.Title), i.Run, local(i.CreatedAt, time.Now()), left, oneLine(i.Message))
				for n, o := range i.Options {
					fmt.Fprintf(out, "    %d. %s\n", n+1, oneLine(o))
				}
				fmt.Fprintf(out, "    rouse answer %s %s\n", i.ID, answerHint(i))
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func answerHint(i web.Item) string {
	switch {
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
		Short: "Answers a question of the inbox; its run goes on",
		Long: `Answers a question of the inbox. The text may be one of the options, its number, several
of them with commas between where several may be chosen, or an answer of your own. The run
that asked goes on with it, as the same run.`,
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
			if !s.daemon {
				text += " when a daemon starts: rouse serve"
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
