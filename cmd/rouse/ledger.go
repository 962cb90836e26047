package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/daemon"
	"rouse/internal/text"
)

type ledgerOptions struct{ json, force bool }

func newLedger(at *place) *cobra.Command {
	var o ledgerOptions
	cmd := &cobra.Command{
		Use:   "ledger [backup|backups|restore|accept|reset]",
		Short: "Backs up the history, and brings it back",
		Long: `Backs up the history, HOME/ledger.db, and brings it back. Without a verb it shows its size, and
why it is read-only if it is.

  backup [FILE]    copies it while it is used; without FILE to HOME/backups
  backups          lists the copies there: those you made, the daily ones (the newest 7 are kept),
                   those from before a newer rouse changed the schema (5), and replaced ledgers
  restore FROM     brings back a backup: its name or how that begins, "last", or a file. What
                   was there is kept in HOME/replaced
  accept           accepts a ledger that another program changed, as it is
  reset            starts over with an empty ledger; what was there is kept

The last three need the daemon to be stopped.`,
		Example: `  rouse ledger backup /mnt/usb/ledger.sqlite
  rouse ledger restore last`,
	}

	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	cmd.Flags().BoolVar(&o.force, "force", false, "backup: replace FILE")
	cmd.RunE = verb(func(cmd *cobra.Command, args []string) error { return runLedger(cmd, at, o, args) })
	return cmd
}

func runLedger(cmd *cobra.Command, at *place, o ledgerOptions, args []string) error {
	word, rest := "", args
	if len(args) > 0 {
		word, rest = args[0], args[1:]
	}

	switch {
	case word == "":
		return ledgerState(cmd, at, o)
	case word == "backup" && len(rest) <= 1:
		return backUpDatabase(cmd, at, "/v1/ledger/backups", strings.Join(rest, ""), o.force, o.json)
	case word == "backups" && len(rest) == 0:
		return ledgerBackups(cmd, at, o)
	case word == "restore" && len(rest) == 1:
		from, err := backupSource(rest[0])
		if err != nil {
			return err
		}
		return ledgerReplace(cmd, at, o, func(ctx context.Context, l ledger.Options) (ledger.Replaced, error) {
			return ledger.Restore(ctx, l, from)
		})
	case word == "reset" && len(rest) == 0:
		return ledgerReplace(cmd, at, o, ledger.Reset)
	case word == "accept" && len(rest) == 0:
		return ledgerAccept(cmd, at)
	}

	return usagef("say rouse ledger with one of: backup [FILE], backups, restore FROM, accept, reset; in full: rouse ledger --help")
}

func ledgerState(cmd *cobra.Command, at *place, o ledgerOptions) error {
	s, err := at.openToRead(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	var state ledger.FileState
	if err := s.Get(cmd.Context(), "/v1/ledger", nil, &state); err != nil {
		return err
	}
	if s.missing() {
		state = ledger.FileState{Path: filepath.Join(s.home, filepath.Base(state.Path))}
	}
	if o.json {
		return printJSON(cmd.OutOrStdout(), state)
	}
	if s.missing() {
		return sayf(cmd.OutOrStdout(), "there is no ledger %s yet; the first run makes it\n", text.OneLine(state.Path))
	}

	return sayf(cmd.OutOrStdout(), "%s: %s, of which %s are free\n", text.OneLine(state.Path), text.Size(state.Bytes), text.Size(state.FreeBytes))
}

func ledgerBackups(cmd *cobra.Command, at *place, o ledgerOptions) error {
	home, err := at.homeDir()
	if err != nil {
		return err
	}

	if err := daemon.SharedLedger(home); err != nil {
		return err
	}
	// The folder tells, so this works whatever became of the ledger.
	all, err := ledger.Backups(daemon.LedgerOptions(home).Path)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(cmd.OutOrStdout(), all)
	}

	if len(all) == 0 {
		return sayf(cmd.OutOrStdout(), "there is no backup of the ledger in %s; make one: rouse ledger backup\n", home)
	}

	return printBackups(cmd, all)
}

// backupSource takes the name of a backup, or else a file.
func backupSource(from string) (string, error) {
	_, err := os.Stat(from)
	if err != nil && !strings.ContainsRune(from, filepath.Separator) {
		return from, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", usagef("there is no file %s", from)
	}
	return filepath.Abs(from)
}

// holdHome gets the home to oneself, for what changes the ledger as a whole.
func holdHome(ctx context.Context, at *place) (home string, release func(), err error) {
	if home, err = at.homeDir(); err != nil {
		return "", nil, err
	}

	release, err = daemon.HoldHome(ctx, home, at.sayWaiting)
	return home, release, err
}

func ledgerReplace(cmd *cobra.Command, at *place, o ledgerOptions, replace func(context.Context, ledger.Options) (ledger.Replaced, error)) error {
	home, release, err := holdHome(cmd.Context(), at)
	if err != nil {
		return err
	}
	defer release()

	r, err := replace(cmd.Context(), daemon.LedgerOptions(home))
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(cmd.OutOrStdout(), r)
	}

	for _, name := range r.Skipped {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: the backup %s is newer, but damaged\n", text.OneLine(name))
	}

	done := "the ledger is empty"
	if r.From != "" {
		done = "the ledger is restored from " + text.OneLine(r.From)
	}
	if r.Kept != "" {
		done += "\nthe one before is kept in " + text.OneLine(r.Kept)
	}
	done += "\nan agent whose database holds runs that this ledger does not know is held when rouse next starts: rouse inbox asks, and rouse db AGENT accept answers"

	return sayf(cmd.OutOrStdout(), "%s\n", done)
}

func ledgerAccept(cmd *cobra.Command, at *place) error {
	home, release, err := holdHome(cmd.Context(), at)
	if err != nil {
		return err
	}
	defer release()

	if err := ledger.Accept(cmd.Context(), daemon.LedgerOptions(home)); err != nil {
		return err
	}
	return sayf(cmd.OutOrStdout(), "the ledger is accepted as it is\n")
}
