package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/daemon"
	"rouse/cmd/internal/terminal"
	"rouse/internal/text"
)

func newDoctor(at *place) *cobra.Command {
	var asJSON, fix, offline bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Checks everything that would stop a run; exits 1 if something would",
		Long: `Checks everything that would stop a run: the configuration, the home and its disk, each model's
server (is it reached, does it take the key, has it the model, how much does that read), each
channel, the clock and its zone. Servers are asked for the list of their models, all at once and
for eight seconds at most: that runs no model and costs nothing. MCP servers are started without
folders and without a network, and asked which tools they have. --offline leaves both out. What a
check did not try is said with it.

It also finds whether anybody else could read or change what rouse keeps: the home, its
databases, the folder of its socket. --fix takes that away from others; what agents made in their
workdirs is left as it is. Exits 1 if something would stop a run.`,
		Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			// First, for a home that others can write is not opened.
			mended, err := fixModes(at, fix)
			if err != nil {
				return err
			}

			checks, err := diagnose(cmd, at, offline)
			if err != nil {
				return err
			}

			checks = append(mended, checks...)
			bad := false
			for _, c := range checks {
				bad = bad || !c.OK
			}

			if asJSON {
				if err := printJSON(cmd.OutOrStdout(), checks); err != nil {
					return err
				}
			} else {
				printChecks(cmd, checks)
			}

			if bad {
				return errSilent
			}

			return nil
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&offline, "offline", false, "ask nothing of the network: no model's server, and no MCP server")
	cmd.Flags().BoolVar(&fix, "fix", false, "make the files of the home, and the folder of its socket, its user's alone")
	return cmd
}

// fixModes mends what others could read or change of the home, and says what that was.
func fixModes(at *place, fix bool) ([]api.Check, error) {
	home, err := at.homeDir()
	if err != nil || !fix {
		return nil, nil //nolint:nilerr // a home that is not known is what diagnose reports
	}

	fixed, err := daemon.FixModes(home)
	if err != nil {
		return nil, err
	}
	if len(fixed) == 0 {
		return nil, nil
	}
	return []api.Check{{Name: "fixed", OK: true, Detail: "open to nobody else any more: " + text.List(fixed, maxFixed)}}, nil
}

// maxFixed is how many of the files that were mended are named.
const maxFixed = 20

// diagnose asks the daemon; where not even the parts can be opened, that is the finding.
func diagnose(cmd *cobra.Command, at *place, offline bool) ([]api.Check, error) {
	at.beside = true // doctor checks the disk of the home
	s, err := at.openToRead(cmd.Context())
	if err != nil {
		// Not an error of the command: a home that cannot be opened is what doctor is asked about.
		return []api.Check{{Name: "start", Detail: err.Error(), Remedy: "see the message; nothing can run before it is solved"}}, nil
	}
	defer s.close()

	var checks []api.Check
	err = s.Post(cmd.Context(), "/v1/doctor", api.DoctorRequest{Offline: offline}, &checks)
	if s.missing() {
		checks = slices.DeleteFunc(checks, func(c api.Check) bool { return c.Name == "ledger" || c.Name == "backup" })
	}
	for i := range checks {
		switch c := &checks[i]; {
		case s.missing() && c.Name == "home" && c.OK:
			c.Detail = s.home + " does not exist yet and can be created"
		case s.missing():
			c.Detail = strings.ReplaceAll(c.Detail, s.opened, s.home)
		}
	}
	return checks, err
}

func printChecks(cmd *cobra.Command, checks []api.Check) {
	out := cmd.OutOrStdout()
	for _, c := range checks {
		mark := toned(out, terminal.Good, "ok  ")
		if !c.OK {
			mark = toned(out, terminal.Bad, "FAIL")
		}

		for i, line := range strings.Split(c.Detail, "\n") {
			if i > 0 { // each problem of the configuration has a line of its own
				mark, c.Name = "    ", ""
			}
			fmt.Fprintf(out, "%s  %-14s %s\n", mark, c.Name, text.OneLine(line))
		}
		if c.Remedy != "" && !c.OK {
			fmt.Fprintf(out, "      %-14s → %s\n", "", text.OneLine(c.Remedy))
		}
		if c.NotTried != "" {
			fmt.Fprintf(out, "      %-14s not tried: %s\n", "", text.OneLine(c.NotTried))
		}
	}
}
