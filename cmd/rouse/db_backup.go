package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"rouse/cmd/internal/web"
)

// dbBackupVerb does what can be done with the database as a whole.
func dbBackupVerb(cmd *cobra.Command, at *place, o dbOptions, verb string, args []string) (known bool, err error) {
	switch {
	case verb == "backup" && len(args) <= 1:
		return true, dbBackup(cmd, at, o, strings.Join(args, ""))
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

// dbBackup copies the database. On a terminal a long copy says how far it is.
func dbBackup(cmd *cobra.Command, at *place, o dbOptions, file string) error {
	if file != "" {
		var err error
		if file, err = filepath.Abs(file); err != nil {
			return err
		}
	}
	s, err := at.open(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()
	show, clear := progressLine(cmd.ErrOrStderr(), func(done, of int64) string { return sizeText(done) + " of " + sizeText(of) })
	b, err := s.Backup(cmd.Context(), o.path("backups"), web.BackupAsk{File: file, Force: o.force}, show)
	clear()
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(cmd.OutOrStdout(), b)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s (%s)\n", oneLine(b.Path), sizeText(b.Bytes))
	return err
}

func sizeText(n int64) string { return humanize.IBytes(uint64(max(n, 0))) } //nolint:gosec // a size

func dbBackups(cmd *cobra.Command, at *place, o dbOptions) error {
	var all []web.Backup
	if done, err := dbGet(cmd, at, o, "backups", nil, &all); done || err != nil {
		return err
	}
	if len(all) == 0 {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "there is no backup of %s in its folder; make one: rouse db %[1]s backup\n", o.agent)
		return err
	}
	var rows [][]string
	now := time.Now()
	for _, b := range all {
		rows = append(rows, []string{b.Name, local(web.Time{Time: b.At}, now), b.Why, sizeText(b.Bytes), b.Path})
	}
	return table(cmd.OutOrStdout(), "NAME AT WHY SIZE PATH", rows)
}

// dbRestore takes the name of a backup, or else a file.
func dbRestore(cmd *cobra.Command, at *place, o dbOptions, from string) error {
	if _, err := os.Stat(from); err == nil || strings.ContainsRune(from, filepath.Separator) {
		if errors.Is(err, fs.ErrNotExist) {
			return usagef("there is no file %s", from)
		}
		if from, err = filepath.Abs(from); err != nil {
			return err
		}
	}
	return dbReplace(cmd, at, o, "restore", web.RestoreAsk{From: from, Force: o.force}, func(w io.Writer, r web.Replaced) {
		for _, name := range r.Passed {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: the backup %s is newer, but damaged\n", oneLine(name))
		}
		fmt.Fprintf(w, "the database of %s is restored from %s\n", r.Agent, oneLine(r.From))
	})
}

func dbReset(cmd *cobra.Command, at *place, o dbOptions) error {
	return dbReplace(cmd, at, o, "reset", web.ResetAsk{Force: o.force}, func(w io.Writer, r web.Replaced) {
		fmt.Fprintf(w, "the database of %s is empty\n", r.Agent)
	})
}

func dbReplace(cmd *cobra.Command, at *place, o dbOptions, verb string, ask any, say func(io.Writer, web.Replaced)) error {
	s, err := at.open(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()
	var r web.Replaced
	if err := s.Post(cmd.Context(), o.path(verb), ask, &r); err != nil {
		return err
	}
	if o.json {
		return printJSON(cmd.OutOrStdout(), r)
	}
	say(cmd.OutOrStdout(), r)
	if r.Kept != "" {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "the one before is kept in %s\n", oneLine(r.Kept))
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
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "the database of %s is taken as it is; the changelog does not hold what another program changed\n", o.agent)
	return err
}
