package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/homedir"
	"rouse/cmd/internal/terminal"
	"rouse/internal/text"
)

func newDoctor(env *cli) *cobra.Command {
	var fix, offline bool
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Fix the modes first: rouse does not open a home that other users can write to.
			mended, err := fixModes(env, fix)
			if err != nil {
				return err
			}

			checks, err := diagnose(cmd, env, offline)
			if err != nil {
				return err
			}

			checks = append(mended, checks...)
			bad := slices.ContainsFunc(checks, func(c api.Check) bool { return !c.OK })
			return failIf(bad, jsonOr(cmd, checks, func() error {
				printChecks(cmd.OutOrStdout(), checks)
				return nil
			}))
		},
	}

	cmd.Flags().BoolVar(&offline, "offline", false, "ask nothing of the network: no model's server, and no MCP server")
	cmd.Flags().BoolVar(&fix, "fix", false, "make the files of the home, and the folder of its socket, its user's alone")
	return withJSON(cmd)
}

// fixModes makes the files of the home private and returns a check with their names.
func fixModes(env *cli, fix bool) ([]api.Check, error) {
	home, err := env.homeDir()
	if err != nil || !fix {
		return nil, nil //nolint:nilerr // diagnose reports an unknown home
	}

	fixed, err := homedir.FixModes(home)
	if err != nil || len(fixed) == 0 {
		return nil, err
	}
	const most = 20 // maximum number of files to name
	return []api.Check{{Name: "fixed", OK: true, Detail: "open to nobody else any more: " + text.List(fixed, most)}}, nil
}

// diagnose asks the daemon. If the home cannot be opened, diagnose returns that as a finding.
func diagnose(cmd *cobra.Command, env *cli, offline bool) ([]api.Check, error) {
	env.beside = true // doctor checks the disk of the home, so a substitute must be on the same disk
	s, err := env.open(cmd, toRead)
	if err != nil {
		// A home that cannot be opened is a finding of doctor, not an error of the command.
		return []api.Check{{Name: "start", Detail: err.Error(), Remedy: "see the message; nothing can run before it is solved"}}, nil
	}
	defer s.close()

	var checks []api.Check
	err = s.post("/v1/doctor", api.DoctorRequest{Offline: offline}, &checks)
	if s.missing() {
		checks = slices.DeleteFunc(checks, func(c api.Check) bool { return c.Name == "ledger" || c.Name == "backup" })
		for i := range checks {
			c := &checks[i]
			c.Detail = strings.ReplaceAll(c.Detail, s.opened, s.home)
			if c.Name == "home" && c.OK {
				c.Detail = s.home + " does not exist yet and can be created"
			}
		}
	}
	return checks, err
}

func printChecks(out io.Writer, checks []api.Check) {
	for _, c := range checks {
		mark := toned(out, terminal.Good, "ok  ")
		if !c.OK {
			mark = toned(out, terminal.Bad, "FAIL")
		}

		for i, line := range strings.Split(c.Detail, "\n") {
			if i > 0 { // one line for each problem of the configuration
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
