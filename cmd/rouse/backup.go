package main

import (
	"time"

	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/backup"
	"rouse/internal/text"
)

type backupOptions struct{ json, secrets, noFiles, verify bool }

func newBackup(at *place) *cobra.Command {
	var o backupOptions
	cmd := &cobra.Command{
		Use:   "backup DIR|FILE",
		Short: "Copies the whole home, while it is used",
		Long: `Copies the whole home at one instant, while runs go on: the ledger, the agents' databases and
files, large values, recordings, skills, and the configuration with its includes. DIR gets a folder
with the time in its name for each backup; FILE, which ends in .tar.zst or .tar.gz, is an archive
of the same. What was written is read again before it gets its name. It is removed if that fails,
and the backups before are left as they are.

Secrets, sign-ins and the access to the pages are left out; --with-secrets copies what is kept of
them in the home, and whoever has the backup has them then. What lies in the system's keyring is
never copied. Values of secrets in the configuration are replaced by [secret].

--verify checks a backup: each file, each database, and all that rouse audit proves.`,
		Example: `  rouse backup /mnt/usb/rouse
  rouse backup --verify /mnt/usb/rouse
  rouse backup home.tar.zst`,
		Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error { return runBackup(cmd, at, o, args[0]) }),
	}

	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	cmd.Flags().BoolVar(&o.secrets, "with-secrets", false, "copy also what is kept of secrets")
	cmd.Flags().BoolVar(&o.noFiles, "without-files", false, "leave out the files in the agents' workdirs in the home")
	cmd.Flags().BoolVar(&o.verify, "verify", false, "check a backup instead: a folder of one, or of several (the newest), or an archive")
	return cmd
}

func runBackup(cmd *cobra.Command, at *place, o backupOptions, dest string) error {
	// The daemon writes it, and its working folder is another one.
	dest, err := filepath.Abs(dest)
	if err != nil {
		return err
	}
	if o.verify {
		return verifyBackup(cmd, dest, o.json)
	}

	s, err := at.open(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	show, clear := progressLine(cmd.ErrOrStderr(), ofBytes)
	b, err := s.BackUpHome(cmd.Context(), api.HomeBackupRequest{Dest: api.Path(dest), Secrets: o.secrets, NoFiles: o.noFiles}, show)
	clear()
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(cmd.OutOrStdout(), b)
	}
	return printBackup(cmd.OutOrStdout(), cmd.ErrOrStderr(), b)
}

func ofBytes(done, of int64) string { return text.Size(done) + " of " + text.Size(of) }

func printBackup(out, warn io.Writer, b api.HomeBackup) error {
	for _, path := range b.Unusable {
		fmt.Fprintf(warn, "warning: the database %s cannot be used (rouse doctor says why), and was copied as it is\n", text.OneLine(path))
	}
	secrets := false
	for _, l := range b.LeftOut {
		if l.Why == backup.WhySecret || l.Why == backup.WhyLogins {
			secrets = true
			continue
		}
		if l.Why != backup.WhyCopies {
			fmt.Fprintf(warn, "warning: %s was left out: %s\n", text.OneLine(l.Path), text.OneLine(l.Why))
		}
	}

	fmt.Fprintf(out, "%s (%s, %s, %s)\n", text.OneLine(b.Path), text.Plural(b.Databases, "database"), text.Plural(b.Files, "file"), text.Size(b.Bytes))
	var err error
	switch {
	case b.Secrets:
		_, err = fmt.Fprintln(out, "secrets are in it: whoever can read it has them")
	case secrets:
		_, err = fmt.Fprintln(out, "secrets are not in it; --with-secrets copies them")
	}
	return err
}

// verifyBackup checks a backup and says what is wrong with it.
func verifyBackup(cmd *cobra.Command, src string, asJSON bool) error {
	show, clear := progressLine(cmd.ErrOrStderr(), ofBytes)
	c, err := backup.Check(cmd.Context(), src, backup.Hear{Progress: show, Found: func(v ledger.Violation) error {
		clear()
		return printViolation(cmd.ErrOrStderr(), v)
	}})
	clear()
	if err != nil {
		return err
	}
	if asJSON {
		if err := printJSON(cmd.OutOrStdout(), c); err != nil {
			return err
		}
	} else if err := printChecked(cmd.OutOrStdout(), c); err != nil {
		return err
	}
	if c.Audit.Violations > 0 {
		return errSilent
	}
	return nil
}

func printChecked(out io.Writer, c backup.Checked) error {
	fmt.Fprintf(out, "%s: the home %s as it was at %s, of rouse %s\n", text.OneLine(c.Path), text.OneLine(c.Home), api.LocalTime(c.At, time.Local), text.OneLine(c.Rouse))
	fmt.Fprintf(out, "%s (%s) are what was backed up, and the databases are sound\n", text.Plural(c.Files, "file"), text.Size(c.Bytes))
	if c.NotTried != "" {
		return sayf(out, "not audited: %s\n", c.NotTried)
	}
	return printVerdict(out, c.Audit)
}
