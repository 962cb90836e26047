package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/audit"
	"rouse/cmd/internal/backup"
	"rouse/cmd/internal/daemon"
	"rouse/internal/text"
)

type auditOptions struct{ json, list bool }

func newAudit(at *place) *cobra.Command {
	var o auditOptions
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
		Args: cobra.MaximumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error { return runAudit(cmd, at, o, args) }),
	}

	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	cmd.Flags().BoolVar(&o.list, "list", false, "list the checks, and make none")
	return cmd
}

func runAudit(cmd *cobra.Command, at *place, o auditOptions, args []string) error {
	if o.list {
		return listChecks(cmd.OutOrStdout(), o.json)
	}
	home, frozen, err := audited(at, args)
	if err != nil {
		return err
	}
	if home == "" { // a backup, whose files are proved, too
		return verifyBackup(cmd, args[0], o.json)
	}

	show, clear := progressLine(cmd.ErrOrStderr(), func(done, of int64) string { return fmt.Sprintf("check %d of %d", done, of) })
	out := violations{out: cmd.OutOrStdout(), json: o.json, clear: clear}
	r, err := audit.Home(cmd.Context(), audit.Options{Home: home, Frozen: frozen, Found: out.found, Begin: func(c ledger.AuditCheck, n, of int) { show(int64(n), int64(of)) }})
	clear()
	if err != nil {
		return err
	}
	if err := out.end(r); err != nil {
		return err
	}
	if r.Violations > 0 {
		return errSilent
	}
	return nil
}

// audited is the home that is meant; "" for a backup.
func audited(at *place, args []string) (home string, frozen bool, err error) {
	if len(args) == 0 {
		home, err = at.homeDir()
	} else {
		home, err = filepath.Abs(args[0])
	}
	if err != nil {
		return "", false, err
	}

	if err := daemon.SharedLedger(home); err != nil {
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

func listChecks(out io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(out, audit.Checks())
	}
	var rows [][]string
	for _, c := range audit.Checks() {
		rows = append(rows, []string{c.Name, c.Promise})
	}
	return table(out, "CHECK PROMISE", rows)
}

func printViolation(out io.Writer, v ledger.Violation) error {
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

// violations prints what is found as it is found: there may be more of it than memory holds.
type violations struct {
	out   io.Writer
	json  bool
	clear func()
	n     int
}

func (v *violations) found(found ledger.Violation) error {
	v.n++
	if !v.json {
		v.clear()
		return printViolation(v.out, found)
	}

	line, err := json.Marshal(found)
	if err != nil {
		return err
	}
	begin := ",\n    "
	if v.n == 1 {
		begin = "{\n  \"found\": [\n    "
	}
	_, err = fmt.Fprintf(v.out, "%s%s", begin, line)
	return err
}

// end closes what found has begun.
func (v *violations) end(r audit.Result) error {
	if !v.json {
		return printVerdict(v.out, r)
	}
	text, err := json.MarshalIndent(r, "  ", "  ")
	if err != nil {
		return err
	}
	begin := "\n  ],\n"
	if v.n == 0 {
		begin = "{\n  \"found\": [],\n"
	}
	_, err = fmt.Fprintf(v.out, "%s  \"result\": %s\n}\n", begin, text)
	return err
}
