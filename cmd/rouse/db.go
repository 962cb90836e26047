package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rouse/agentdb"
	"rouse/agentdb/schema"
	"rouse/cmd/internal/api"
	"rouse/internal/atomicfile"
	"rouse/internal/owner"
	"rouse/internal/text"
)

func newDB(env *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "db AGENT [schema|query|import|export|log|views|run-view|undo|backup|backups|restore|accept|reset]",
		Short: "Reads and fills an agent's database, as actor user",
		Long: `Reads and fills an agent's database, as actor user. Without a verb it shows sizes: tables,
rows, the changelog, the quota.

  schema           its tables and columns
  query SQL        one SELECT
  import FILE      rows of csv, tsv, json, jsonl or xlsx into a table
  export SQL       the answer of a SELECT as such a file
  log              who changed what, the newest first
  views            the queries that the agent saved
  run-view NAME    asks one of them now; --param name=value for each of its parameters
  undo RUN         undoes what a run of the agent wrote, as rouse undo does
  backup [FILE]    copies the database while it is used; without FILE to the agent's folder
  backups          lists the copies there: those you made, those that are made before a run
                   changes the schema (the newest 5 are kept), and databases that were replaced
  restore FROM     brings back a backup: its name or how that begins, "last", or a file. What
                   was there is kept. Refused while a run of the agent is half-way
  accept           accepts a database as it is that another program changed, or that holds runs
                   which the ledger does not know
  reset            starts over with an empty database; what was there is kept

To change rows by SQL, give the agent the call: rouse call AGENT db_execute '{"sql":"…"}'.
That is a run, so rouse undo undoes it.`,
		Example: `  rouse db bookkeeper schema
  rouse db bookkeeper query "select category, sum(amount) from expenses group by 1"
  rouse db bookkeeper import statements.csv --table expenses
  rouse db bookkeeper export "select * from expenses" --to expenses.xlsx`,
	}

	var o dbOptions
	cmd.Args = cobra.ArbitraryArgs
	f := cmd.Flags()
	f.BoolVar(&o.force, "force", false, "undo: also where rows were changed later; backup: replace FILE; restore: also another agent's database; restore, reset: also while runs of the agent wait")
	f.BoolVar(&o.dryRun, "dry-run", false, "undo: change nothing, say what would become of it")
	f.StringArrayVar(&o.params, "param", nil, "run-view: a value for a parameter, `name=value`")
	f.IntVar(&o.limit, "limit", 1000, "query: at most this many rows (5000 at most)")
	o.log.flags(f, 20, "change", "log: ")
	f.StringVar(&o.run, "run", "", "log: of one `run`")
	f.IntVar(&o.offset, "offset", 0, "query: leave out this many rows first")
	f.BoolVar(&o.deleted, "include-deleted", false, "query: with rows that were deleted")
	f.StringVar(&o.table, "table", "", "import: `name` of the table (default the file's name); log: of one table")
	f.StringVar(&o.format, "format", "", "import, export: csv, tsv, json, jsonl or xlsx (default by the file's name)")
	f.StringVar(&o.to, "to", "", "export: `file` to write (default standard output)")
	f.BoolVar(&o.overwrite, "overwrite", false, "export: replace the file if it exists")
	f.StringVar(&o.mode, "mode", "", "import: insert or upsert (default insert)")
	f.StringSliceVar(&o.keys, "key", nil, "import: key `columns` for upsert")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return runDB(cmd, env, o, args) }
	return withJSON(cmd)
}

// dbVerb is a command on a database. The agent precedes the verb, so cobra subcommands do not fit.
type dbVerb struct {
	name, usage string
	least, most int // number of arguments after the verb
	purpose     purpose
	run         func(s *session, o dbOptions, args []string) error
}

var dbVerbs = []dbVerb{
	{"", "", 0, 0, toRead, dbStats},
	{"schema", "schema", 0, 0, toRead, dbSchema},
	{"query", "query SQL", 1, 1, toRead, dbQuery},
	{"import", "import FILE", 1, 1, toChange, dbImport},
	{"export", "export SQL", 1, 1, toRead, dbExport},
	{"log", "log", 0, 0, toRead, dbLog},
	{"views", "views", 0, 0, toRead, dbViews},
	{"run-view", "run-view NAME", 1, 1, toRead, dbRunView},
	{"undo", "undo RUN", 1, 1, toRead, func(s *session, o dbOptions, args []string) error {
		return undoRun(s, args[0], api.UndoRequest{Agent: o.agent, Only: api.UndoDatabase, Force: o.force, DryRun: o.dryRun})
	}},
	{"backup", "backup [FILE]", 0, 1, toChange, func(s *session, o dbOptions, args []string) error {
		return backUpDatabase(s, o.path("backups"), strings.Join(args, ""), o.force)
	}},
	{"backups", "backups", 0, 0, toRead, dbBackups},
	{"restore", "restore FROM", 1, 1, toChange, dbRestore},
	{"accept", "accept", 0, 0, toChange, dbAccept},
	{"reset", "reset", 0, 0, toChange, dbReset},
}

// runDB executes the verb that follows the agent.
func runDB(cmd *cobra.Command, env *cli, o dbOptions, args []string) error {
	if len(args) == 0 {
		return usagef("say whose database: rouse db AGENT; the agents are in rouse config show")
	}

	o.agent = args[0]
	name, rest := "", args[1:]
	if len(rest) > 0 {
		name, rest = rest[0], rest[1:]
	}
	var usages []string
	for _, v := range dbVerbs {
		if v.name == name && len(rest) >= v.least && len(rest) <= v.most {
			return env.with(v.purpose, func(s *session, args []string) error { return v.run(s, o, args) })(cmd, rest)
		}
		usages = append(usages, v.usage)
	}
	return usagef("say rouse db AGENT with one of: %s; in full: rouse db --help", strings.Join(usages[1:], ", "))
}

type dbOptions struct {
	agent               string
	deleted             bool
	force, dryRun       bool
	params              []string
	limit, offset       int
	log                 pages
	run                 string
	table, format, mode string
	to                  string
	overwrite           bool
	keys                []string
}

func (o dbOptions) path(verb string) string {
	return "/v1/agents/" + url.PathEscape(o.agent) + "/" + verb
}

func dbSchema(s *session, o dbOptions, _ []string) error {
	var schema api.Schema
	return s.show(o.path("schema"), nil, &schema, func() error {
		if len(schema.Tables) == 0 {
			return sayf(s.out, "%s has no tables yet\n", o.agent)
		}
		var rows [][]string
		for _, t := range schema.Tables {
			for _, c := range t.Columns {
				rows = append(rows, []string{t.Name, strconv.FormatInt(t.RowCount, 10), c.Name, c.Type, columnText(t, c), t.Purpose})
			}
		}
		return table(s.out, "TABLE ROWS COLUMN TYPE RULES PURPOSE", rows)
	})
}

// columnText describes the constraints of a column: "not null, default 'misc', unique with day".
func columnText(t schema.Table, c schema.Column) string {
	var rules []string
	switch {
	case c.PrimaryKey:
		rules = append(rules, "primary key")
	case c.Nullable != nil && !*c.Nullable:
		rules = append(rules, "not null")
	}

	var def string
	if json.Unmarshal(c.Default, &def) == nil && def != "" {
		rules = append(rules, "default "+def)
	}

	for _, index := range t.Indexes {
		if !index.Unique || !slices.Contains(index.Columns, c.Name) {
			continue
		}
		rule := "unique"
		// Clone the columns: DeleteFunc changes its slice, and later columns need it, too.
		if others := slices.DeleteFunc(slices.Clone(index.Columns), func(name string) bool { return name == c.Name }); len(others) > 0 {
			rule += " with " + strings.Join(others, ", ")
		}
		rules = append(rules, rule)
	}
	return strings.Join(rules, ", ")
}

func dbQuery(s *session, o dbOptions, args []string) error {
	var out api.Rows
	q := api.QueryRequest{SQL: args[0], Limit: o.limit, Offset: o.offset, IncludeDeleted: o.deleted}
	return s.send(o.path("query"), q, &out, func() error { return printRows(s.out, out) })
}

// shownCell is the maximum number of characters of a value on a terminal. Other output is complete.
const shownCell = 60

func printRows(w io.Writer, out api.Rows) error {
	terminal := text.IsTerminal(w)
	rows := [][]string{slices.Clone(out.Columns)}
	for _, r := range out.Rows {
		row := make([]string, len(out.Columns))
		for i, c := range out.Columns {
			// NULL is an empty cell, as in exported files.
			if v := r[c]; v != nil {
				row[i] = cell(v)
			}
			if terminal {
				row[i] = shorten(row[i], shownCell)
			}
		}
		rows = append(rows, row)
	}
	if err := align(w, rows); err != nil {
		return err
	}
	if out.Truncated {
		return sayf(w, "… more rows; page on with --offset, or raise --limit\n")
	}
	return nil
}

// cell formats a value for people: 1200000, not 1.2e+06.
func cell(v any) string {
	switch v := v.(type) {
	case json.Number:
		if _, err := v.Int64(); err == nil {
			return v.String() // with all its digits
		}
		if f, err := v.Float64(); err == nil {
			return decimalText(f)
		}
		return v.String()
	case float64:
		return decimalText(v)
	case map[string]any, []any:
		if raw, err := json.Marshal(v); err == nil {
			return string(raw)
		}
	}
	return fmt.Sprint(v)
}

// decimalText rounds a number to 14 significant digits, to remove the noise of binary fractions. It
// does not round numbers from 1e9, because their last digits may be part of an amount.
func decimalText(f float64) string {
	const digits, most = 14, 1e9
	if math.Abs(f) < most {
		if rounded, err := strconv.ParseFloat(strconv.FormatFloat(f, 'g', digits, 64), 64); err == nil {
			f = rounded
		}
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

func dbStats(s *session, o dbOptions, _ []string) error {
	var st api.Stats
	if err := s.get(o.path("stats"), nil, &st); err != nil {
		return err
	}
	if s.missing() {
		st = api.Stats{Path: strings.Replace(st.Path, s.opened, s.home, 1), Quota: st.Quota}
	}
	return jsonOr(s.cmd, st, func() error { return printStats(s.out, o.agent, st) })
}

func printStats(w io.Writer, agent string, s api.Stats) error {
	quota := "no quota"
	if s.Quota > 0 {
		quota = fmt.Sprintf("%d %% of the quota of %s", s.Bytes*100/s.Quota, text.Size(s.Quota))
	}
	fmt.Fprintf(w, "%s\n%s (%s), of it log %s, free %s\nchangelog %s %s, %s; call journal %s\n",
		text.OneLine(s.Path), text.Size(s.Bytes), quota, text.Size(s.LogBytes), text.Size(s.FreeBytes), text.Comma(s.Changes), text.Noun(s.Changes, "entry"), text.Size(s.ChangelogBytes), text.Size(s.JournalBytes))
	switch {
	case s.Quota > 0 && s.Bytes >= s.Quota:
		fmt.Fprintf(w, "full: nothing more is written until database.quota of %s is raised\n", agent)
	// Divided first: a quota near the largest integer must not overflow.
	case s.Quota > 0 && s.Bytes >= s.Quota/5*4:
		fmt.Fprintf(w, "nearly full: beyond the quota nothing more is written; raise database.quota of %s\n", agent)
	}
	return list(w, s.Tables, "no tables yet", "TABLE ROWS DELETED SIZE", func(t agentdb.TableStats) []string {
		return []string{t.Name, text.Comma(t.Rows), text.Comma(t.Deleted), text.Size(t.Bytes)}
	})
}

func dbLog(s *session, o dbOptions, _ []string) error {
	log, err := getPages(s, o.path("changes"), queryOf("table", o.table, "run", o.run), o.log, func(c api.Change) string { return strconv.FormatInt(c.ID, 10) })
	if err != nil {
		return err
	}
	return jsonOr(s.cmd, log, func() error {
		none := "nothing was changed"
		if o.table != "" {
			none += " in a table " + text.OneLine(o.table)
		}
		if o.run != "" {
			none += " by run " + text.OneLine(o.run)
		}
		return list(s.out, log, none, "ID AT WHO OP TABLE WHAT", func(c api.Change) []string {
			who := c.Actor
			// Run 0 is a change by the owner, outside any run.
			if c.Run != "0" {
				who += " run " + c.Run
			}
			if c.Run != "0" && c.Other {
				who += " of another ledger"
			}
			return []string{strconv.FormatInt(c.ID, 10), c.At, who, c.Op, c.Table, shorten(changeText(c), 100)}
		})
	})
}

// changeText describes a change in one line.
func changeText(c api.Change) string {
	var chunk struct{ Count int64 }
	null := func(v json.RawMessage) bool { return len(v) == 0 || string(v) == "null" }
	switch {
	case c.SQL != "":
		return c.SQL
	// A bulk change is one entry for a range of rows. Its key is an object with the count.
	case json.Unmarshal(c.Key, &chunk) == nil && chunk.Count > 1:
		return fmt.Sprintf("%s rows %s", text.Comma(chunk.Count), c.Key)
	case null(c.Before):
		return fmt.Sprintf("+ %s", c.After)
	case null(c.After):
		return fmt.Sprintf("- %s", c.Before)
	}

	return fmt.Sprintf("%s: %s → %s", c.Key, c.Before, c.After)
}

func dbViews(s *session, o dbOptions, _ []string) error {
	var views []api.View
	return s.show(o.path("views"), nil, &views, func() error {
		return list(s.out, views, o.agent+" has no saved views", "VIEW SHOWN REFRESH REFRESHED PARAMETERS DESCRIPTION SQL", func(v api.View) []string {
			return []string{v.Name, v.RenderHint, v.Refresh, cmp.Or(v.RefreshedAt, "never"), paramsText(v.Params), v.Description, shorten(v.SQL, 80)}
		})
	})
}

// paramsText returns the names of parameters with their defaults: "month=2026-01, least".
func paramsText(params []api.ViewParam) string {
	out := make([]string, len(params))
	for i, p := range params {
		if out[i] = p.Name; p.Default != nil {
			out[i] += "=" + cell(p.Default)
		}
	}
	return strings.Join(out, ", ")
}

func dbRunView(s *session, o dbOptions, args []string) error {
	ask := api.ViewRequest{Params: map[string]any{}}
	for _, given := range o.params {
		param, value, ok := strings.Cut(given, "=")
		if !ok || param == "" {
			return usagef("--param is name=value, not %q", given)
		}
		ask.Params[param] = value
	}
	var out api.ViewResult
	return s.send(o.path("views/"+url.PathEscape(args[0])+"/run"), ask, &out, func() error { return printRows(s.out, out.Rows) })
}

// dbImport imports a file as the owner. On a terminal it shows the progress of a long import.
func dbImport(s *session, o dbOptions, args []string) error {
	path := args[0]
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot read the file to import: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("cannot read the file to import: %w", err)
	}
	if info.IsDir() {
		return usagef("%s is a folder; name a file in it", path)
	}

	// The file is streamed, so the daemon gets the name and the size from the query. The name sets
	// the format and the table, the size is for the progress.
	q := queryOf("name", filepath.Base(path), "size", strconv.FormatInt(info.Size(), 10), "table", o.table, "format", o.format, "mode", o.mode)
	if len(o.keys) > 0 {
		q["key"] = o.keys
	}
	out, err := withProgress(s.cmd, func(done, of int64) string {
		return fmt.Sprintf("%s of %s rows", text.Comma(done), text.Comma(of))
	}, func(show func(done, of int64)) (api.Imported, error) {
		return s.Import(s.cmd.Context(), o.path("import"), q, f, show)
	})
	if err != nil {
		return err
	}
	return jsonOr(s.cmd, out, func() error {
		printWarnings(s.cmd.ErrOrStderr(), out.Warnings, out.SampleErrors)
		fmt.Fprintf(s.out, "%s into %s\n", text.Plural(out.RowsImported, "row"), out.Table)
		if out.RowsSkipped > 0 {
			return sayf(s.out, "%s left out\n", text.Plural(out.RowsSkipped, "row"))
		}
		return nil
	})
}

// withProgress calls do, and shows its progress on a terminal until do returns.
func withProgress[T any](cmd *cobra.Command, line func(done, of int64) string, do func(show func(done, of int64)) (T, error)) (T, error) {
	show, clear := progressLine(cmd.ErrOrStderr(), line)
	defer clear() // remove the progress line before an error is printed
	return do(show)
}

// progressLine returns functions that overwrite and clear a line of w if w is a terminal.
func progressLine(w io.Writer, line func(done, of int64) string) (show func(done, of int64), clear func()) {
	if !text.IsTerminal(w) {
		return func(int64, int64) {}, func() {}
	}

	width := 0
	return func(done, of int64) {
			now := line(done, of)
			// Pad a shorter line, so that it covers the longer one before it.
			width = max(width, len(now))
			fmt.Fprintf(w, "\r%-*s", width, now)
		}, func() {
			if width > 0 {
				fmt.Fprintf(w, "\r%s\r", strings.Repeat(" ", width))
			}
		}
}

func printWarnings(w io.Writer, warnings, samples []string) {
	for _, warning := range warnings {
		fmt.Fprintln(w, "warning:", warning)
	}
	for _, sample := range samples {
		fmt.Fprintln(w, "  "+sample)
	}
}

// dbExport writes the result of a query to standard output or, completely or not at all, to a file.
func dbExport(s *session, o dbOptions, args []string) error {
	var done api.Exported
	write := func(w io.Writer) (err error) {
		done, err = s.Export(s.cmd.Context(), o.path("export"), api.ExportRequest{SQL: args[0], Format: o.format, Name: o.to}, w)
		return err
	}
	var err error
	switch {
	case o.to == "":
		err = write(s.out)
	case o.overwrite:
		if err = atomicfile.Stream(o.to, 0o644, write); err == nil {
			err = os.Chmod(o.to, owner.ApplyUmask(0o644))
		}
	default:
		if err = writeNew(o.to, 0o644, write); errors.Is(err, fs.ErrExist) {
			return usagef("%s exists already; choose another name, or say --overwrite", o.to)
		}
	}
	if err != nil {
		return err
	}

	printWarnings(s.cmd.ErrOrStderr(), done.Warnings, nil) // standard output may carry the data
	if o.to == "" {
		return nil
	}
	said := struct {
		Path string `json:"path"`
		api.Exported
	}{o.to, done}
	return jsonOr(s.cmd, said, func() error { return sayf(s.out, "%s into %s\n", text.Plural(done.RowsExported, "row"), o.to) })
}
