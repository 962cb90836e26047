package main

import (
	"strings"

	"github.com/spf13/cobra"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

func newApprove(at *place) *cobra.Command {
	var always, all, asJSON bool
	cmd := &cobra.Command{
		Use:   "approve ITEM",
		Short: "Approves what a run asks for; it does exactly that, once",
		Long: `Approves what a run asks for, as "rouse inbox" shows it. The run goes on and does exactly
that, once: a call that would do something else by then needs another approval, also when a
file that it names holds something else. With --always the agent may do the same, with the
same files, in later runs too, until you revoke that with "rouse grants revoke"; installing
software needs an approval each time all the same. The definition of a job is always approved
permanently, as it stands.

If several runs wait for the same, one of them goes on. The other scheduled runs end as skipped;
runs of files, webhooks and other triggers wait for an approval of their own. With --all every
one of them goes on.`,
		Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			answer := api.Answer{Text: ledger.ApprovalOnce, Kind: ledger.KindApproval, All: all}
			if always {
				answer.Text = ledger.ApprovalAlways
			}
			return sendAnswer(cmd, at, args[0], answer, asJSON)
		}),
	}

	cmd.Flags().BoolVar(&always, "always", false, "also in later runs of the agent, until you revoke it")
	cmd.Flags().BoolVar(&all, "all", false, "release every run that waits for the same")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newDeny(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "deny ITEM [REASON]",
		Short: "Denies what a run asks for, and gives the agent the reason",
		Long: `Denies what a run asks for. The run goes on without it and may not do it later either; its
agent sees the reason. A run that was blocked by the definition of its job ends.`,
		Args: cobra.MinimumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			return sendAnswer(cmd, at, args[0], api.Answer{Text: ledger.ApprovalDeny, Reason: strings.Join(args[1:], " "), Kind: ledger.KindApproval}, asJSON)
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
