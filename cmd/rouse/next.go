package main

import (
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/web"
)

func newNext(at *place) *cobra.Command {
	var asJSON bool
	var n int
	cmd := &cobra.Command{
		Use:   "next [JOB]",
		Short: "Lists coming occurrences",
		Args:  cobra.MaximumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			s, err := at.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()
			q := url.Values{"n": {strconv.Itoa(n)}}
			if len(args) == 1 {
				q.Set("job", args[0])
			}
			var coming []web.Occurrence
			if err := s.Get(cmd.Context(), "/v1/next", q, &coming); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), coming)
			}
			now := time.Now()
			var rows [][]string
			for _, o := range coming {
				in := o.Actual.Sub(now).Round(time.Second).String()
				rows = append(rows, []string{local(o.Actual, now), "in " + in, o.Job, o.Source, o.Reason})
			}
			return table(cmd.OutOrStdout(), "AT IN JOB SOURCE NOTE", rows)
		}),
	}
	cmd.Flags().IntVarP(&n, "number", "n", 5, "how many")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
