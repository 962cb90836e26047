package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/audit"
	"rouse/cmd/internal/backup"
	"rouse/cmd/internal/homedir"
	"rouse/internal/ledger/integrity"
	"rouse/internal/text"
)

func newAudit(env *cli) *cobra.Command {
	var list bool
	cmd := &cobra.Command{
		Use:   "audit [HOME|BACKUP]",
		Short: "Proves what the record promises",
		Long: `Proves what the record promises, from its rows and files: that each instant of a schedule has one row,
that each claimed content has one success, that attempts are numbered without a gap, that budgets add
up, that artifacts and large values are there, and so on; --list says all of it. It works while a
daemon runs, without one, on a medium that is read-only, and on a backup, and changes nothing.

What breaks a promise is printed with its ids, and the exit code is 1. What a clock that was set back
explains as well is a warning, which does not count.`,
		Example: `  rouse audit
  rouse audit /mnt/usb/rouse`,
		RunE: func(cmd *cobra.Command, args []string) error { return runAudit(cmd, env, list, args) },
	}

	cmd.Flags().BoolVar(&list, "list", false, "list the checks, and make none")
	return withJSON(cmd)
}

// audited is the output of rouse audit --json.
type audited struct {
	Found  []integrity.Violation `json:"found"`
	Result audit.Result          `json:"result"`
}

func runAudit(cmd *cobra.Command, env *cli, listOnly bool, args []string) error {
	if listOnly {
		return jsonOr(cmd, audit.Checks(), func() error {
			return list(cmd.OutOrStdout(), audit.Checks(), "", "CHECK PROMISE", func(c integrity.Check) []string { return []string{c.Name, c.Promise} })
		})
	}
	home, isBackup, err := toAudit(env, args)
	if err != nil {
		return err
	}
	if isBackup { // a backup also has files to verify
		return verifyBackup(cmd, args[0])
	}

	out, asJSON := audited{Found: []integrity.Violation{}}, wantsJSON(cmd)
	show, clear := progressLine(cmd.ErrOrStderr(), func(done, of int64) string { return fmt.Sprintf("check %d of %d", done, of) })
	found := func(v integrity.Violation) error {
		clear()
		if asJSON {
			out.Found = append(out.Found, v)
			return nil
		}
		return printViolation(cmd.OutOrStdout(), v)
	}
	out.Result, err = audit.Home(cmd.Context(), audit.Options{Home: home, Found: found, Begin: func(_ integrity.Check, n, of int) { show(int64(n), int64(of)) }})
	clear()
	if err != nil {
		return err
	}
	return failIf(out.Result.Violations > 0, jsonOr(cmd, out, func() error { return printVerdict(cmd.OutOrStdout(), out.Result) }))
}

// toAudit returns the home or the backup to check, and reports whether it is a backup.
func toAudit(env *cli, args []string) (home string, isBackup bool, err error) {
	if len(args) == 0 {
		home, err = env.homeDir()
	} else {
		home, err = filepath.Abs(args[0])
	}
	if err != nil {
		return "", false, err
	}

	if err := homedir.SharedLedger(home); err != nil {
		return "", false, err
	}
	if _, err := os.Stat(filepath.Join(home, "ledger.db")); err == nil {
		return home, false, nil
	}
	if len(args) == 0 {
		return "", false, fmt.Errorf("there is no ledger in %s yet, so there is nothing to audit", home)
	}
	if _, err := backup.Find(home); err != nil {
		return "", false, usagef("%s is neither a home nor a backup: %v", args[0], err)
	}
	return "", true, nil
}

func printViolation(out io.Writer, v integrity.Violation) error {
	word := "violated"
	if v.Clock {
		word = "warning"
	}
	return sayf(out, "%s  %s: %s\n", word, v.Check, text.OneLine(v.Text))
}

func printVerdict(out io.Writer, r audit.Result) error {
	verdict := "nothing breaks a promise"
	if r.Violations > 0 {
		verdict = text.Plural(r.Violations, "violation")
	}
	if r.Warnings > 0 {
		verdict += ", " + text.Plural(r.Warnings, "warning") + " that a clock which was set back explains as well"
	}
	return sayf(out, "%s; %s were made of the ledger %s, up to run %d\n", verdict, text.Plural(len(r.Checks), "check"), text.OneLine(r.Ledger), r.Runs)
}
