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
It also lists the agents whose database and files hold what a tainted run wrote, one that had
read untrusted content: later runs that read them are tainted too, until you have checked them
and run "rouse grants trust".`,
		Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			s, err := at.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()

			var given []api.Grant
			if err := s.Get(cmd.Context(), "/v1/grants", nil, &given); err != nil {
				return err
			}

			var untrusted []api.Memory
			if err := s.Get(cmd.Context(), "/v1/untrusted", nil, &untrusted); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), standingPermission{given, untrusted})
			}

			printGrants(cmd.OutOrStdout(), given, untrusted, time.Now())
			return nil
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(newRevoke(at), newTrust(at))
	return cmd
}

// standingPermission is what --json prints.
type standingPermission struct {
	Grants    []api.Grant  `json:"grants"`
	Untrusted []api.Memory `json:"untrusted"` // whose database and files are
}

func printGrants(w io.Writer, given []api.Grant, untrusted []api.Memory, now time.Time) {
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

	for _, m := range untrusted {
		fmt.Fprintf(w, "the database and the files of %s hold what run %s wrote after it had read untrusted content; when you have checked them: rouse grants trust %s\n", text.OneLine(m.Agent), m.Run, text.OneLine(m.Agent))
	}
}

func newRevoke(at *place) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke GRANT",
		Short: "Revokes a standing approval: the agent has to ask again",
		Args:  cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			s, err := at.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()

			var g api.Grant
			if err := s.Post(cmd.Context(), "/v1/grants/"+args[0]+"/revoke", struct{}{}, &g); err != nil {
				return err
			}

			_, err = fmt.Fprintf(cmd.OutOrStdout(), "grant %s of %s is revoked\n", g.ID, text.OneLine(g.Agent))
			return err
		}),
	}
}

func newTrust(at *place) *cobra.Command {
	return &cobra.Command{
		Use:   "trust AGENT",
		Short: "Marks an agent's database and files as trusted again",
		Args:  cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			s, err := at.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()

			if err := s.Post(cmd.Context(), "/v1/agents/"+args[0]+"/trust", struct{}{}, &struct{}{}); err != nil {
				return err
			}

			_, err = fmt.Fprintf(cmd.OutOrStdout(), "the database and the files of %s count as trusted\n", text.OneLine(args[0]))
			return err
		}),
	}
}
