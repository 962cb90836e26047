package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/backup"
	"rouse/cmd/internal/homedir"
	"rouse/cmd/internal/replicate"
	where "rouse/cmd/internal/replicate/target"
	"rouse/internal/ledger/integrity"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

func newBackup(env *cli) *cobra.Command {
	var ask api.HomeBackupRequest
	var verify bool
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
		RunE: func(cmd *cobra.Command, args []string) error {
			// The daemon writes the backup, and the daemon has a different working directory.
			dest, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if verify {
				return verifyBackup(cmd, dest)
			}
			ask.Dest = api.Path(dest)
			return env.with(toChange, func(s *session, _ []string) error { return backUpHome(s, ask) })(cmd, args)
		},
	}

	cmd.Flags().BoolVar(&ask.Secrets, "with-secrets", false, "copy also what is kept of secrets")
	cmd.Flags().BoolVar(&ask.NoFiles, "without-files", false, "leave out the files in the agents' workdirs in the home")
	cmd.Flags().BoolVar(&verify, "verify", false, "check a backup instead: a folder of one, or of several (the newest), or an archive")
	return withJSON(cmd)
}

func backUpHome(s *session, ask api.HomeBackupRequest) error {
	b, err := withProgress(s.cmd, ofBytes, func(show func(done, of int64)) (api.HomeBackup, error) {
		return s.BackUpHome(s.cmd.Context(), ask, show)
	})
	if err != nil {
		return err
	}
	return jsonOr(s.cmd, b, func() error { return printBackup(s.out, s.cmd.ErrOrStderr(), b) })
}

func ofBytes(done, of int64) string { return text.Size(done) + " of " + text.Size(of) }

func printBackup(out, warn io.Writer, b api.HomeBackup) error {
	for _, path := range b.Unusable {
		fmt.Fprintf(warn, "warning: the database %s cannot be used (rouse doctor says why), and was copied as it is\n", text.OneLine(path))
	}
	secrets := false
	for _, l := range b.LeftOut {
		switch l.Why {
		case backup.WhySecret, backup.WhyLogins:
			secrets = true
		case backup.WhyCopies:
		default:
			fmt.Fprintf(warn, "warning: %s was left out: %s\n", text.OneLine(l.Path), text.OneLine(l.Why))
		}
	}

	fmt.Fprintf(out, "%s (%s, %s, %s)\n", text.OneLine(b.Path), text.Plural(b.Databases, "database"), text.Plural(b.Files, "file"), text.Size(b.Bytes))
	switch {
	case b.Secrets:
		return sayf(out, "secrets are in it: whoever can read it has them\n")
	case secrets:
		return sayf(out, "secrets are not in it; --with-secrets copies them\n")
	}
	return nil
}

// verifyBackup checks a backup and prints the errors that it finds.
func verifyBackup(cmd *cobra.Command, src string) error {
	c, err := hearing(cmd, func(hear backup.Hear) (backup.Checked, error) { return backup.Check(cmd.Context(), src, hear) })
	if err != nil {
		return err
	}
	return failIf(c.Audit.Violations > 0, jsonOr(cmd, c, func() error { return printChecked(cmd.OutOrStdout(), c) }))
}

// hearing runs a check or a restore. It prints the progress and each violation.
func hearing[T any](cmd *cobra.Command, do func(backup.Hear) (T, error)) (T, error) {
	show, clear := progressLine(cmd.ErrOrStderr(), ofBytes)
	defer clear()
	return do(backup.Hear{Progress: show, Found: func(v integrity.Violation) error {
		clear()
		return printViolation(cmd.ErrOrStderr(), v)
	}})
}

func printChecked(out io.Writer, c backup.Checked) error {
	fmt.Fprintf(out, "%s: the home %s as it was at %s, of rouse %s\n", text.OneLine(c.Path), text.OneLine(c.Home), api.LocalTime(c.At, time.Local), text.OneLine(c.Rouse))
	fmt.Fprintf(out, "%s (%s) are what was backed up, and the databases are sound\n", text.Plural(c.Files, "file"), text.Size(c.Bytes))
	if c.NotTried != "" {
		return sayf(out, "not audited: %s\n", c.NotTried)
	}
	return printVerdict(out, c.Audit)
}

type restoreOptions struct {
	check, replace, force, goOn bool
	from, at                    string
}

func newRestore(env *cli) *cobra.Command {
	var o restoreOptions
	cmd := &cobra.Command{
		Use:   "restore DIR|FILE | --from URL",
		Short: "Puts a whole home back from a backup",
		Long: `Puts a whole home back from what rouse backup made: a folder of one backup, of several (the newest is
taken), or an archive. It is built beside its place and checked as a whole, as with --check, before
it gets its name: a crash leaves the home that was there, or the new one. A home that is there is
left alone, and with --replace moved aside. Never on a home that is in use.

--from takes what the continuous copies of replicate: have at a URL, as it was at the time that --at
names, else the newest. The key of a bucket is taken from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or
from ~/.aws/credentials.

Afterwards everything is paused: what was queued when the backup was made may have been done
since. Look at it (rouse runs, rouse inbox), cancel what was done, and then: rouse resume --all.
--go-on pauses nothing. Instants of schedules since the backup are missed ones, which each job's
on_miss decides about; notices that were to be delivered are not sent.`,
		Example: `  rouse restore --check /mnt/usb/rouse
  rouse restore /mnt/usb/rouse --replace
  rouse restore home.tar.zst --home /srv/rouse
  rouse restore --from file:///mnt/usb/rouse --at "2026-11-25 21:46:09" --replace`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case (len(args) == 1) == (o.from != ""):
				return usagef("name a backup, or the URL of continuous copies with --from")
			case o.at != "" && o.from == "":
				return usagef("--at is for --from: a backup is of one instant")
			case o.from != "":
				return restoreReplica(cmd, env, o)
			}
			return runRestore(cmd, env, o, args[0], "")
		},
	}

	cmd.Flags().BoolVar(&o.check, "check", false, "check the backup alone, and restore nothing")
	cmd.Flags().BoolVar(&o.replace, "replace", false, "move the home that is there aside")
	cmd.Flags().BoolVar(&o.force, "force", false, "restore also a backup that breaks promises of the record")
	cmd.Flags().StringVar(&o.from, "from", "", "the URL of continuous copies: file:///… or s3://…, as replicate.to has it")
	cmd.Flags().StringVar(&o.at, "at", "", "with --from: state of the home at this `time` in this machine's zone: -2h, yesterday 08:00, \"2026-11-25 21:46:09\", 2026-11-25T21:46:09Z")
	cmd.Flags().BoolVar(&o.goOn, "go-on", false, "pause nothing: what was queued runs when rouse next starts")
	return withJSON(cmd)
}

// restoreReplica makes a backup from the continuous replicas and restores that backup.
func restoreReplica(cmd *cobra.Command, env *cli, o restoreOptions) (err error) {
	var when time.Time
	if o.at != "" {
		// The home and its configured zone do not exist yet, so use this machine's zone.
		w, err := schedule.ParseTime(o.at, time.Now(), time.Local, false)
		if err != nil {
			return usagef("--at: %w", err)
		}
		when = w.At
	}
	t, err := where.Parse(o.from)
	if err != nil {
		return usagef("--from %w", err)
	}
	store, err := t.Open(where.Keys{})
	if err != nil {
		return err
	}
	home, err := env.homeDir()
	if err != nil {
		return err
	}

	// Fetch into the parent folder of the home: the restored home needs that disk space anyway.
	if err := os.MkdirAll(filepath.Dir(home), 0o700); err != nil {
		return err
	}
	fetched, err := os.MkdirTemp(filepath.Dir(home), "."+filepath.Base(home)+".fetched-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fetched)) }()
	if err := replicate.Fetch(cmd.Context(), store, when, fetched); err != nil {
		return fmt.Errorf("%s cannot be restored from: %w", t, err)
	}
	return runRestore(cmd, env, o, fetched, t.String())
}

func runRestore(cmd *cobra.Command, env *cli, o restoreOptions, src, said string) error {
	src, err := filepath.Abs(src)
	if err != nil {
		return err
	}
	if o.check {
		return verifyBackup(cmd, src)
	}

	home, release, err := homeToReplace(cmd, env)
	if err != nil {
		return err
	}
	defer release()

	r, err := hearing(cmd, func(hear backup.Hear) (backup.Restored, error) {
		return backup.Restore(cmd.Context(), backup.RestoreOptions{
			Source: src, Said: said, Home: home, Replace: o.replace, Force: o.force, Paused: !o.goOn, Hear: hear,
		}, func(dir string) (func(), error) { return homedir.Hold(cmd.Context(), dir, env.printWaiting) })
	})
	if err != nil {
		return err
	}
	return jsonOr(cmd, r, func() error { return printRestored(cmd.OutOrStdout(), r) })
}

// homeToReplace returns the real path of the home to restore to, and locks it if it has content.
func homeToReplace(cmd *cobra.Command, env *cli) (home string, release func(), err error) {
	if home, err = env.homeDir(); err != nil {
		return "", nil, err
	}
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real
	}

	if entries, err := os.ReadDir(home); err != nil || len(entries) == 0 { // an empty home needs no lock
		return home, func() {}, nil //nolint:nilerr // replacing the home reports the error
	}
	release, err = homedir.Hold(cmd.Context(), home, env.printWaiting)
	return home, release, err
}

func printRestored(out io.Writer, r backup.Restored) error {
	fmt.Fprintf(out, "%s is restored from %s, as %s was at %s\n", text.OneLine(r.Home), text.OneLine(r.Path), text.OneLine(r.Info.Home), api.LocalTime(r.At, time.Local))
	if r.Kept != "" {
		fmt.Fprintf(out, "the home that was there is kept in %s\n", text.OneLine(r.Kept))
	}
	switch {
	case r.Config != "":
		fmt.Fprintf(out, "it goes on with the configuration %s\n", text.OneLine(r.Config))
	case r.ConfigCopy == "":
		fmt.Fprintln(out, "its configuration is not in the backup; the first one that it is started with is its")
	default:
		fmt.Fprintf(out, "its configuration, which lay elsewhere (%s), is in %s; put it where you want it: the first one that it is started with is its\n", text.OneLine(r.Info.Config), text.OneLine(r.ConfigCopy))
	}
	for _, e := range r.Manifest.Entries {
		if e.Redact {
			fmt.Fprintf(out, "values of secrets in %s were replaced by [secret]; put them back\n", text.OneLine(e.Of))
		}
	}
	if len(r.Dropped) > 0 {
		fmt.Fprintf(out, "%s of the backup was left out: rouse makes it itself, and no backup of this version holds it\n", strings.Join(r.Dropped, ", "))
	}
	const most = 20
	for _, d := range r.Disarmed[:min(len(r.Disarmed), most)] {
		fmt.Fprintf(out, "%s is a git repository, and was taken out of use by renaming, because git would run what its configuration says, and an agent may have made it. Look at its config and hooks; if you trust it: %s\n", text.Visible(d.Path), d.Undo())
	}
	if more := len(r.Disarmed) - most; more > 0 {
		fmt.Fprintf(out, "%d more repositories were taken out of use; --json names them\n", more)
	}
	if !r.Secrets {
		fmt.Fprintln(out, "secrets and sign-ins are not in the backup: rouse doctor says which are missing")
	}
	if r.Notices > 0 {
		fmt.Fprintf(out, "%s that were to be delivered are not sent, because they may have been since\n", text.Plural(r.Notices, "notice"))
	}

	switch {
	case r.Paused && r.Queued > 0:
		return sayf(out, "everything is paused; not over: %s. Look (rouse runs, rouse inbox), cancel what was done since, and then: rouse resume --all\n", text.Plural(r.Queued, "run"))
	case r.Paused:
		return sayf(out, "everything is paused; when it is to go on: rouse resume --all\n")
	}
	return sayf(out, "nothing is paused; what was queued runs when rouse next starts\n")
}
