package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

func newGrants(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "grants",
		Short: "Lists standing approvals, which hold until you revoke them, in addition to the configured grants",
		Long: `Lists what you have allowed with "rouse approve --always", and approved definitions of jobs.
It also lists the labels on data, with the run that set each: files and tables that hold what a run
wrote after it had read untrusted content (A) or private data (B). Whichever run reads them gets the
label, too, until you have checked them and run "rouse grants trust" for A, or "rouse grants release" for B.`,
		Args: cobra.NoArgs,
		RunE: withSession(at.openToRead, func(cmd *cobra.Command, _ []string, s *session) error {
			var given []api.Grant
			if err := s.Get(cmd.Context(), "/v1/grants", nil, &given); err != nil {
				return err
			}

			var labels []api.Label
			if err := s.Get(cmd.Context(), "/v1/labels", nil, &labels); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), standingPermission{given, labels})
			}

			printGrants(cmd.OutOrStdout(), given, labels, s.now())
			return nil
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(newRevoke(at), newClearLabel(at, trustVerb), newClearLabel(at, releaseVerb))
	return cmd
}

// standingPermission is what --json prints.
type standingPermission struct {
	Grants []api.Grant `json:"grants"`
	Labels []api.Label `json:"labels"`
}

func printGrants(w io.Writer, given []api.Grant, labels []api.Label, now time.Time) {
	if len(given) == 0 {
		fmt.Fprintln(w, "there are no standing approvals; agents may do what the configuration grants")
	}

	for _, g := range given {
		what := g.Tool
		// An approval without a tool is the one of a job's definition (OSL-19).
		if what == "" {
			what = "the definition of a job"
		}
		fmt.Fprintf(w, "%s  %s: %s (since %s, item %s)\n", g.ID, text.OneLine(g.Agent), text.OneLine(what), local(g.CreatedAt, now), g.Item)
		printAction(w, g.Action)
	}

	printLabels(w, labels)
}

func newRevoke(at *place) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke GRANT",
		Short: "Revokes a standing approval: the agent has to ask again",
		Args:  cobra.ExactArgs(1),
		RunE: withSession(at.openToRead, func(cmd *cobra.Command, args []string, s *session) error {
			var g api.Grant
			if err := s.Post(cmd.Context(), "/v1/grants/"+args[0]+"/revoke", struct{}{}, &g); err != nil {
				return err
			}

			return sayf(cmd.OutOrStdout(), "grant %s of %s is revoked\n", g.ID, text.OneLine(g.Agent))
		}),
	}
}
