package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rouse/agentdb"
	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

func newDB(at *place) *cobra.Command {
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
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "print JSON")
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
	cmd.RunE = verb(func(cmd *cobra.Command, args []string) error { return runDB(cmd, at, o, args) })
	return cmd
}

// runDB does what the word after the agent says.
func runDB(cmd *cobra.Command, at *place, o dbOptions, args []string) error {
	if len(args) == 0 {
		return usagef("say whose database: rouse db AGENT; the agents are in rouse config show")
	}

	o.agent = args[0]
	if len(args) == 1 {
		return dbStats(cmd, at, o)
	}

	// The agent comes before the verb, so cobra's subcommands cannot be used here.
	switch verb, rest := args[1], args[2:]; {
	case verb == "schema" && len(rest) == 0:
		return dbSchema(cmd, at, o)
	case verb == "query" && len(rest) == 1:
		return dbQuery(cmd, at, o, rest[0])
	case verb == "import" && len(rest) == 1:
		return dbImport(cmd, at, o, rest[0])
	case verb == "export" && len(rest) == 1:
		return dbExport(cmd, at, o, rest[0])
	case verb == "log" && len(rest) == 0:
		return dbLog(cmd, at, o)
	case verb == "views" && len(rest) == 0:
		return dbViews(cmd, at, o)
	case verb == "run-view" && len(rest) == 1:
		return dbRunView(cmd, at, o, rest[0])
	case verb == "undo" && len(rest) == 1:
		return undoRun(cmd, at, rest[0], api.UndoRequest{Agent: o.agent, Only: api.UndoDatabase, Force: o.force, DryRun: o.dryRun}, o.json)
	}

	if known, err := dbBackupVerb(cmd, at, o, args[1], args[2:]); known {
		return err
	}

	return usagef("say rouse db AGENT with one of: schema, query SQL, import FILE, export SQL, log, views, run-view NAME, undo RUN, backup [FILE], backups, restore FROM, accept, reset; in full: rouse db --help")
}

type dbOptions struct {
	agent               string
	json, deleted       bool
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

func dbSchema(cmd *cobra.Command, at *place, o dbOptions) error {
	s, err := at.openToRead(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	var schema api.Schema
	if done, err := s.fetch(cmd, o.json, o.path("schema"), nil, &schema); done || err != nil {
		return err
	}

	if len(schema.Tables) == 0 {
		return sayf(cmd.OutOrStdout(), "%s has no tables yet\n", o.agent)
	}

	var rows [][]string
	for _, t := range schema.Tables {
		for _, c := range t.Columns {
			rows = append(rows, []string{t.Name, strconv.FormatInt(t.RowCount, 10), c.Name, c.Type, columnText(t, c), t.Purpose})
		}
	}

	return table(cmd.OutOrStdout(), "TABLE ROWS COLUMN TYPE RULES PURPOSE", rows)
}

// columnText says what holds for a column: "not null, default 'misc', unique with day".
func columnText(t agentdb.Table, c agentdb.Column) string {
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
		// DeleteFunc changes its slice in place, and the index is looked at again for the next column.
		if others := slices.DeleteFunc(slices.Clone(index.Columns), func(name string) bool { return name == c.Name }); len(others) > 0 {
			rule += " with " + strings.Join(others, ", ")
		}

		rules = append(rules, rule)
	}

	return strings.Join(rules, ", ")
}

func dbQuery(cmd *cobra.Command, at *place, o dbOptions, sql string) error {
	s, err := at.openToRead(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	var out api.Rows
	q := api.QueryRequest{SQL: sql, Limit: o.limit, Offset: o.offset, IncludeDeleted: o.deleted}
	if done, err := s.send(cmd, o.json, o.path("query"), q, &out); done || err != nil {
		return err
	}

	return printRows(cmd.OutOrStdout(), out)
}

// shownCell is how many characters of a value a terminal shows; a file, a pipe and --json get
// all of it.
const shownCell = 60

func printRows(w io.Writer, out api.Rows) error {
	terminal := text.IsTerminal(w)
	rows := [][]string{slices.Clone(out.Columns)}
	for _, r := range out.Rows {
		row := make([]string, len(out.Columns))
		for i, c := range out.Columns {
			// NULL is an empty cell, as in the files that export writes.
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
		fmt.Fprintln(w, "… more rows; page on with --offset, or raise --limit")
	}

	return nil
}

// cell prints a value as a person reads it: 1200000, not 1.2e+06.
func cell(v any) string {
	switch v := v.(type) {
	case json.Number:
		if _, err := v.Int64(); err == nil {
			return v.String() // to its last digit
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

// decimalText leaves out the last digits of a number whose digits go on, such as a third; of one so large that
// they would be those of an amount, none. Queries have left out what is noise already.
func decimalText(f float64) string {
	const digits, most = 14, 1e9
	if math.Abs(f) < most {
		if rounded, err := strconv.ParseFloat(strconv.FormatFloat(f, 'g', digits, 64), 64); err == nil {
			f = rounded
		}
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}
