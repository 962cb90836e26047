package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/homedir"
	"rouse/internal/ledger"
	"rouse/internal/ledger/maint"
	"rouse/internal/ledger/store"
	"rouse/internal/text"
)

func newLedger(env *cli) *cobra.Command {
	var force bool
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

	cmd.Flags().BoolVar(&force, "force", false, "backup: replace FILE")
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return runLedger(cmd, env, force, args) }
	return withJSON(cmd)
}

func runLedger(cmd *cobra.Command, env *cli, force bool, args []string) error {
	word, rest := "", args
	if len(args) > 0 {
		word, rest = args[0], args[1:]
	}

	switch {
	case word == "":
		return env.with(toRead, ledgerState)(cmd, nil)
	case word == "backup" && len(rest) <= 1:
		return env.with(toChange, func(s *session, args []string) error {
			return backUpDatabase(s, "/v1/ledger/backups", strings.Join(args, ""), force)
		})(cmd, rest)
	case word == "backups" && len(rest) == 0:
		return ledgerBackups(cmd, env)
	case word == "restore" && len(rest) == 1:
		from, err := backupSource(rest[0])
		if err != nil {
			return err
		}
		return ledgerReplace(cmd, env, func(ctx context.Context, l ledger.Options) (maint.Replaced, error) {
			return maint.Restore(ctx, l, from)
		})
	case word == "reset" && len(rest) == 0:
		return ledgerReplace(cmd, env, maint.Reset)
	case word == "accept" && len(rest) == 0:
		return holdHome(cmd, env, func(l ledger.Options) error {
			if err := maint.Accept(cmd.Context(), l); err != nil {
				return err
			}
			return sayf(cmd.OutOrStdout(), "the ledger is accepted as it is\n")
		})
	}
	return usagef("say rouse ledger with one of: backup [FILE], backups, restore FROM, accept, reset; in full: rouse ledger --help")
}

func ledgerState(s *session, _ []string) error {
	var state store.FileState
	if err := s.get("/v1/ledger", nil, &state); err != nil {
		return err
	}
	if s.missing() {
		state = store.FileState{Path: filepath.Join(s.home, filepath.Base(state.Path))}
	}
	return jsonOr(s.cmd, state, func() error {
		if s.missing() {
			return sayf(s.out, "there is no ledger %s yet; the first run makes it\n", text.OneLine(state.Path))
		}
		return sayf(s.out, "%s: %s, of which %s are free\n", text.OneLine(state.Path), text.Size(state.Bytes), text.Size(state.FreeBytes))
	})
}

func ledgerBackups(cmd *cobra.Command, env *cli) error {
	home, err := env.homeDir()
	if err != nil {
		return err
	}
	if err := homedir.SharedLedger(home); err != nil {
		return err
	}
	// Read the folder, so that the list also works if the ledger is damaged or missing.
	all, err := store.Backups(homedir.LedgerOptions(home).Path)
	if err != nil {
		return err
	}
	return jsonOr(cmd, all, func() error {
		return printBackups(cmd.OutOrStdout(), all, fmt.Sprintf("there is no backup of the ledger in %s; make one: rouse ledger backup", home))
	})
}

// backupSource returns the name of a backup, or the path of a file if from names one.
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

// holdHome locks the home for a command that replaces or checks the whole ledger.
func holdHome(cmd *cobra.Command, env *cli, do func(ledger.Options) error) error {
	home, err := env.homeDir()
	if err != nil {
		return err
	}
	release, err := homedir.Hold(cmd.Context(), home, env.printWaiting)
	if err != nil {
		return err
	}
	defer release()
	return do(homedir.LedgerOptions(home))
}

func ledgerReplace(cmd *cobra.Command, env *cli, replace func(context.Context, ledger.Options) (maint.Replaced, error)) error {
	return holdHome(cmd, env, func(l ledger.Options) error {
		r, err := replace(cmd.Context(), l)
		if err != nil {
			return err
		}
		return jsonOr(cmd, r, func() error {
			if err := printReplaced(cmd, "ledger", r); err != nil {
				return err
			}
			return sayf(cmd.OutOrStdout(), "an agent whose database holds runs that this ledger does not know is held when rouse next starts: rouse inbox asks, and rouse db AGENT accept answers\n")
		})
	})
}

// backUpDatabase copies an agent's database or the ledger. A terminal shows the progress.
func backUpDatabase(s *session, path, file string, force bool) (err error) {
	if file != "" {
		// The daemon writes the file, and the daemon has a different working directory.
		if file, err = filepath.Abs(file); err != nil {
			return err
		}
	}
	b, err := withProgress(s.cmd, ofBytes, func(show func(done, of int64)) (api.Backup, error) {
		return s.Backup(s.cmd.Context(), path, api.BackupRequest{File: api.Path(file), Force: force}, show)
	})
	if err != nil {
		return err
	}
	return jsonOr(s.cmd, b, func() error { return sayf(s.out, "%s (%s)\n", text.OneLine(b.Path), text.Size(b.Bytes)) })
}

func printBackups(w io.Writer, all []api.Backup, none string) error {
	return list(w, all, none, "NAME AT WHY SIZE PATH", func(b api.Backup) []string {
		return []string{b.Name, text.When(b.At, time.Now()), b.Why, text.Size(b.Bytes), b.Path}
	})
}

func dbBackups(s *session, o dbOptions, _ []string) error {
	var all []api.Backup
	return s.show(o.path("backups"), nil, &all, func() error {
		return printBackups(s.out, all, fmt.Sprintf("there is no backup of %s in its folder; make one: rouse db %[1]s backup", o.agent))
	})
}

// dbRestore restores the database of an agent from a named backup or from a file.
func dbRestore(s *session, o dbOptions, args []string) error {
	from, err := backupSource(args[0])
	if err != nil {
		return err
	}
	return dbReplace(s, o, "restore", api.RestoreRequest{From: api.Path(from), Force: o.force})
}

func dbReset(s *session, o dbOptions, _ []string) error {
	return dbReplace(s, o, "reset", api.ResetRequest{Force: o.force})
}

func dbReplace(s *session, o dbOptions, verb string, ask any) error {
	var r api.Replaced
	return s.send(o.path(verb), ask, &r, func() error {
		return printReplaced(s.cmd, "database of "+r.Agent, maint.Replaced{From: r.From, Kept: r.Kept, Skipped: r.Skipped})
	})
}

// printReplaced prints which backup replaced a database.
func printReplaced(cmd *cobra.Command, what string, r maint.Replaced) error {
	for _, name := range r.Skipped {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: the backup %s is newer, but damaged\n", text.OneLine(name))
	}
	done := "empty"
	if r.From != "" {
		done = "restored from " + text.OneLine(r.From)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "the %s is %s\n", what, done)
	if r.Kept != "" {
		return sayf(cmd.OutOrStdout(), "the one before is kept in %s\n", text.OneLine(r.Kept))
	}
	return nil
}

func dbAccept(s *session, o dbOptions, _ []string) error {
	if err := s.post(o.path("accept"), struct{}{}, nil); err != nil {
		return err
	}
	accepted := struct {
		Agent    string `json:"agent"`
		Accepted bool   `json:"accepted"`
	}{o.agent, true}
	return jsonOr(s.cmd, accepted, func() error {
		return sayf(s.out, "the database of %s is accepted as it is; the changelog does not hold what another program changed\n", o.agent)
	})
}
