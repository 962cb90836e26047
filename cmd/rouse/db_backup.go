package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

// dbBackupVerb does what can be done with the database as a whole.
func dbBackupVerb(cmd *cobra.Command, at *place, o dbOptions, verb string, args []string) (known bool, err error) {
	switch {
	case verb == "backup" && len(args) <= 1:
		return true, backUpDatabase(cmd, at, o.path("backups"), strings.Join(args, ""), o.force, o.json)
	case verb == "backups" && len(args) == 0:
		return true, dbBackups(cmd, at, o)
	case verb == "restore" && len(args) == 1:
		return true, dbRestore(cmd, at, o, args[0])
	case verb == "reset" && len(args) == 0:
		return true, dbReset(cmd, at, o)
	case verb == "accept" && len(args) == 0:
		return true, dbAccept(cmd, at, o)
	}
	return false, nil
}

// backUpDatabase copies an agent's database or the ledger. On a terminal it shows the progress of a long copy.
func backUpDatabase(cmd *cobra.Command, at *place, path, file string, force, asJSON bool) error {
	if file != "" {
		var err error
		// The daemon writes the file, and its working folder is another one.
		if file, err = filepath.Abs(file); err != nil {
			return err
		}
	}

	s, err := at.open(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	show, clear := progressLine(cmd.ErrOrStderr(), func(done, of int64) string { return text.Size(done) + " of " + text.Size(of) })
	b, err := s.Backup(cmd.Context(), path, api.BackupRequest{File: api.Path(file), Force: force}, show)
	clear()
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), b)
	}

	return sayf(cmd.OutOrStdout(), "%s (%s)\n", text.OneLine(b.Path), text.Size(b.Bytes))
}

func printBackups(cmd *cobra.Command, all []api.Backup) error {
	var rows [][]string
	now := time.Now()
	for _, b := range all {
		rows = append(rows, []string{b.Name, when(api.At(b.At), now), b.Why, text.Size(b.Bytes), b.Path})
	}
	return table(cmd.OutOrStdout(), "NAME AT WHY SIZE PATH", rows)
}

func dbBackups(cmd *cobra.Command, at *place, o dbOptions) error {
	var all []api.Backup
	if done, err := dbGet(cmd, at, o, "backups", nil, &all); done || err != nil {
		return err
	}

	if len(all) == 0 {
		return sayf(cmd.OutOrStdout(), "there is no backup of %s in its folder; make one: rouse db %[1]s backup\n", o.agent)
	}

	return printBackups(cmd, all)
}

// dbRestore takes the name of a backup, or else a file.
func dbRestore(cmd *cobra.Command, at *place, o dbOptions, from string) error {
	from, err := backupSource(from)
	if err != nil {
		return err
	}

	return dbReplace(cmd, at, o, "restore", api.RestoreRequest{From: api.Path(from), Force: o.force}, func(w io.Writer, r api.Replaced) {
		for _, name := range r.Skipped {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: the backup %s is newer, but damaged\n", text.OneLine(name))
		}
		fmt.Fprintf(w, "the database of %s is restored from %s\n", r.Agent, text.OneLine(r.From))
	})
}

func dbReset(cmd *cobra.Command, at *place, o dbOptions) error {
	return dbReplace(cmd, at, o, "reset", api.ResetRequest{Force: o.force}, func(w io.Writer, r api.Replaced) {
		fmt.Fprintf(w, "the database of %s is empty\n", r.Agent)
	})
}

func dbReplace(cmd *cobra.Command, at *place, o dbOptions, verb string, ask any, say func(io.Writer, api.Replaced)) error {
	s, err := at.open(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	var r api.Replaced
	if done, err := s.send(cmd, o.json, o.path(verb), ask, &r); done || err != nil {
		return err
	}

	say(cmd.OutOrStdout(), r)
	if r.Kept != "" {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "the one before is kept in %s\n", text.OneLine(r.Kept))
	}

	return err
}

func dbAccept(cmd *cobra.Command, at *place, o dbOptions) error {
	s, err := at.open(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	if err := s.Post(cmd.Context(), o.path("accept"), struct{}{}, nil); err != nil {
		return err
	}

	if o.json {
		return printJSON(cmd.OutOrStdout(), struct {
			Agent    string `json:"agent"`
			Accepted bool   `json:"accepted"`
		}{o.agent, true})
	}

	return sayf(cmd.OutOrStdout(), "the database of %s is accepted as it is; the changelog does not hold what another program changed\n", o.agent)
}
