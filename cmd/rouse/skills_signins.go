package main

import (
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

func newSkillsSignIns(at *place) *cobra.Command {
	var asJSON bool
	var remove string
	cmd := &cobra.Command{
		Use:   "sign-ins",
		Short: "Lists the services that skills are signed in to for agents, or forgets one; never a token",
		Long: `Lists the services that skills with a module are signed in to, each for one agent. The tokens are
kept as secrets are, in the keyring of the system or encrypted in HOME/sign-ins.age.

STATUS is authorized, expired (its owner is asked to sign in again when the skill next wants to) or unauthorized.
What is removed is forgotten here; the service itself lists and ends what it gave.`,
		Example: `  rouse skills sign-ins
  rouse skills sign-ins --remove clerk/mail-digest/acme`,
		Args: cobra.NoArgs,
		RunE: withSession(at.openToRead, func(cmd *cobra.Command, _ []string, s *session) error {
			if remove != "" {
				if err := s.Post(cmd.Context(), "/v1/sign-ins/remove", api.SignInName{Name: remove}, &api.SignInName{}); err != nil {
					return err
				}
				return sayf(cmd.OutOrStdout(), "the sign-in %s is forgotten\n", text.OneLine(remove))
			}

			var kept []api.SignIn
			if done, err := s.fetch(cmd, asJSON, "/v1/sign-ins", nil, &kept); done || err != nil {
				return err
			}
			return printSignIns(cmd.OutOrStdout(), kept, s.now())
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&remove, "remove", "", "forget the sign-in of this `name`: AGENT/SKILL/PROVIDER")
	return cmd
}

func printSignIns(w io.Writer, kept []api.SignIn, now time.Time) error {
	if len(kept) == 0 {
		return sayf(w, "no skill is signed in anywhere\n")
	}

	var rows [][]string
	for _, k := range kept {
		status, until := k.Status, "–"
		if k.Waiting {
			status += ", waits for you"
		}
		switch {
		case k.Renews:
			until = "renewed by itself"
		case !k.ExpiresAt.IsZero():
			until = when(k.ExpiresAt, now)
		}
		rows = append(rows, []string{k.Name, k.Service, status, until, strings.Join(k.Scopes, ", ")})
	}
	return table(w, "NAME SERVICE STATUS UNTIL SCOPES", rows)
}
