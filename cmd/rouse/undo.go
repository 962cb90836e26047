package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"rouse/agentdb/changelog"
	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

func newUndo(env *cli) *cobra.Command {
	var ask api.UndoRequest
	cmd := &cobra.Command{
		Use:   "undo RUN",
		Short: "Undoes what a run wrote: its files and its agent's database",
		Long: `Undoes what a finished run wrote. Files that it made go, files that it changed or
removed become what they were. In its agent's database rows that it added go, rows that it
changed or deleted become what they were, tables that it made go when nobody else has rows
in them; the changelog records that. Files and database are undone together, or neither.

Where another run or a person changed the same files or rows later, nothing is done and they
are named. --force does it all the same: what came later is lost there, except in the
changelog. --dry-run changes nothing and says what would become of it.

What went out stays, and is listed: commands, requests, notices, artifacts; so do saved views
and files without a kept copy. A call that was refused, or could not be started, did nothing
and is not listed; of one that failed the list says that it may have done something. An undo
that was cut off is finished by making it again. Another attempt at the run (rouse retry) does
its writes again. A file that started the run starts another one when it is dropped again; one
that lies there after the undo waits for: rouse run JOB --file FILE --again. Exits 1 when
something stands in the way.`,
		Example: `  rouse undo 42 --dry-run
  rouse undo 42
  rouse undo 42 --force
  rouse undo 42 --only files`,
		RunE: env.with(toRead, func(s *session, args []string) error { return undoRun(s, args[0], ask) }),
	}

	cmd.Flags().BoolVar(&ask.Force, "force", false, "also where files or rows were changed later; what came later is lost there")
	cmd.Flags().StringVar(&ask.Only, "only", "", "one part alone: `files` or database")
	cmd.Flags().BoolVar(&ask.DryRun, "dry-run", false, "change nothing, say what would become of it")
	return withJSON(cmd)
}

// undoRun undoes a run. On a terminal it shows the progress of a long undo.
func undoRun(s *session, run string, ask api.UndoRequest) error {
	out, err := withProgress(s.cmd, func(done, of int64) string {
		return fmt.Sprintf("%s of %s entries of the changelog", text.Comma(done), text.Comma(of))
	}, func(show func(done, of int64)) (api.Undo, error) { return s.Undo(s.cmd.Context(), run, ask, show) })
	if err != nil {
		return err
	}
	return failIf(!out.Done && (!ask.DryRun || !out.CanUndo), jsonOr(s.cmd, out, func() error { return printUndo(s.out, out, ask) }))
}

func printUndo(w io.Writer, out api.Undo, ask api.UndoRequest) error {
	var b strings.Builder
	d := out.Database
	would, later := "would be ", "in the way: "
	if out.Done {
		would, later = "", "lost: "
	}

	words := fileWords(out.Files)
	for _, f := range out.Files {
		switch {
		// Obstacles come before words, because the path of an obstacle may also have words.
		case f.Why != "" && out.Done: // already listed as a remainder
		case f.Why != "":
			fmt.Fprintf(&b, "%s%s\n", later, text.OneLine(f.Path+": "+f.Why))
		case words[f.Path] != "":
			fmt.Fprintf(&b, "%s: %s%s\n", text.OneLine(f.Path), would, words[f.Path])
			// Print one line per path, even if the run changed the path several times.
			delete(words, f.Path) // one line covers all its changes
		}
	}

	if out.Checkout != "" {
		fmt.Fprintf(&b, "the clone and its branch %s: %sdiscarded\n", text.OneLine(out.Checkout), would)
	}
	for _, t := range d.Tables {
		fmt.Fprintf(&b, "%s: %s\n", t.Name, undoCounts(t, would))
	}
	for _, change := range d.Schema {
		fmt.Fprintf(&b, "schema: %s\n", text.OneLine(change))
	}
	for _, c := range d.Conflicts {
		fmt.Fprintf(&b, "%s%s\n", later, text.OneLine(strings.TrimSpace(c.Table+" "+c.Key)+": "+c.Why))
	}
	// The daemon lists only the first conflicts.
	if more := d.ConflictCount - int64(len(d.Conflicts)); more > 0 {
		fmt.Fprintf(&b, "%s%s more\n", later, text.Comma(more))
	}
	for _, left := range out.Left { // sentences about the remainders
		fmt.Fprintln(&b, text.OneLine(left))
	}
	return sayf(w, "%s%s\n", &b, undoVerdict(out, ask))
}

// undoVerdict returns a sentence with the result of an undo and the command to run next.
func undoVerdict(out api.Undo, ask api.UndoRequest) string {
	changes := out.Database.Changes
	if out.Checkout != "" {
		changes++
	}
	where := "the files and the database of " + out.Agent
	switch {
	case ask.Only == api.UndoFiles, ask.Only == "" && changes == 0 && len(out.Files) > 0:
		where = "the files of " + out.Agent
	case ask.Only == api.UndoDatabase, len(out.Files) == 0 && changes > 0:
		where = "the database of " + out.Agent
	}

	switch {
	case changes == 0 && len(out.Files) == 0:
		return fmt.Sprintf("there is nothing of run %s in %s to undo", out.Run, where)
	case out.Done:
		return fmt.Sprintf("run %s is undone in %s", out.Run, where)
	case out.CanUndo:
		return fmt.Sprintf("run %s can be undone: rouse undo %[1]s", out.Run)
	case ask.DryRun:
		return fmt.Sprintf("run %s can be undone only with the loss of what is in the way: rouse undo %[1]s --force", out.Run)
	}

	return fmt.Sprintf("run %s was left as it is, because of what came later; to lose that: rouse undo %[1]s --force", out.Run)
}

// fileWords describes, for each path, the result of undoing all its changes. Changes are ordered
// from the newest. It omits files that the run both created and removed.
func fileWords(files []api.UndoneFile) map[string]string {
	words, after := map[string]string{}, map[string]bool{}
	for _, f := range files {
		// The newest change tells whether the file exists now, the last one what an undo leaves.
		there, later := after[f.Path]
		if !later {
			there = f.After
			after[f.Path] = there
		}

		switch {
		case f.Before && there:
			words[f.Path] = "changed back"
		case f.Before:
			words[f.Path] = "brought back"
		case there:
			words[f.Path] = "removed"
		default:
			delete(words, f.Path)
		}
	}

	return words
}

func undoCounts(t changelog.UndoneTable, would string) string {
	var out []string
	for _, c := range []struct {
		n    int64
		what string
	}{{t.Removed, "removed"}, {t.Changed, "changed back"}, {t.Restored, "brought back"}} {
		if c.n > 0 {
			out = append(out, text.Comma(c.n)+" "+text.Noun(c.n, "row")+" "+would+c.what)
		}
	}
	return cmp.Or(strings.Join(out, ", "), "nothing to do")
}
