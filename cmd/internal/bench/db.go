package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"rouse/agentdb"
)

// dbSizes are how much is measured with.
type dbSizes struct {
	rows    int    // of the file that is imported, with five columns
	writes  int    // rows written one by one
	batch   int    // rows of a call that writes many
	reads   int    // of one row by its key
	agents  int    // with a database each
	sqlite3 string // the command line program, "" when it is not installed
}

func benchDB(ctx context.Context, o Options) ([]Figure, error) {
	sizes := dbSizes{rows: 1_000_000, writes: 500, batch: 1000, reads: 2000, agents: 1000}
	path, err := exec.LookPath("sqlite3")
	if err != nil {
		fmt.Fprintln(o.Progress, "the program sqlite3 is not installed, so the import is measured against the bare driver alone; install it with: apt-get install sqlite3")
	}
	sizes.sqlite3 = path
	return measureDB(ctx, o.Progress, o.Passes, sizes)
}

// measureDB alternates between an agent's database, with its changelog, its journal and its
// checks, and the same work done without them.
func measureDB(ctx context.Context, progress io.Writer, passes int, sizes dbSizes) ([]Figure, error) {
	dir, err := os.MkdirTemp("", "rouse-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	file := filepath.Join(dir, "rows.csv")
	if err := writeBenchFile(file, sizes.rows); err != nil {
		return nil, err
	}

	var all dbCosts
	for pass := range passes {
		fmt.Fprintf(progress, "pass %d of %d\n", pass+1, passes)
		at := filepath.Join(dir, fmt.Sprint(pass))
		if err := all.measure(ctx, at, file, sizes); err != nil {
			return nil, err
		}
		// Each pass writes large databases; they must not add up on the disk.
		if err := os.RemoveAll(at); err != nil {
			return nil, err
		}
	}

	return all.figures(sizes), nil
}

// dbCosts are what each pass found: ours, and of the bare driver or the program sqlite3.
type dbCosts struct {
	program, load, imported []float64 // s
	undone                  []float64 // s, of that import
	keyed, keyedUndone      []float64 // s, of an import by a text key
	one, bareOne            []float64 // rows/s
	many, bareMany          []float64 // rows/s
	read, bareRead          []float64 // 1/s
	visit, bareVisit        []float64 // ms
	memory, bareMemory      []float64 // MiB
}

func (c *dbCosts) measure(ctx context.Context, dir, file string, sizes dbSizes) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}

	for _, m := range []struct {
		into    *[]float64
		measure func() (float64, error)
	}{
		{&c.program, func() (float64, error) {
			return programImport(ctx, sizes.sqlite3, filepath.Join(dir, "program.db"), file)
		}},
		{&c.imported, func() (float64, error) { return ownImport(ctx, filepath.Join(dir, "own.db"), file, sizes.rows, nil) }},
		{&c.undone, func() (float64, error) { return ownUndo(ctx, filepath.Join(dir, "own.db"), sizes.rows) }},
		{&c.keyed, func() (float64, error) {
			return ownImport(ctx, filepath.Join(dir, "keyed.db"), file, sizes.rows, []string{"a"})
		}},
		{&c.keyedUndone, func() (float64, error) { return ownUndo(ctx, filepath.Join(dir, "keyed.db"), sizes.rows) }},
		{&c.load, func() (float64, error) { return bareLoad(ctx, filepath.Join(dir, "load.db"), file) }},
		{&c.bareOne, func() (float64, error) { return bareInserts(ctx, filepath.Join(dir, "bare.db"), sizes.writes, 1) }},
		{&c.one, func() (float64, error) { return ownInserts(ctx, filepath.Join(dir, "one.db"), sizes.writes, 1) }},
		{&c.bareMany, func() (float64, error) { return bareInserts(ctx, filepath.Join(dir, "bare-many.db"), 20, sizes.batch) }},
		{&c.many, func() (float64, error) { return ownInserts(ctx, filepath.Join(dir, "many.db"), 20, sizes.batch) }},
		{&c.bareRead, func() (float64, error) { return bareReads(ctx, filepath.Join(dir, "bare-many.db"), sizes.reads) }},
		{&c.read, func() (float64, error) { return ownReads(ctx, filepath.Join(dir, "many.db"), sizes.reads) }},
	} {
		// In this order: an undo needs the import before it, and the reads the rows of the inserts.
		value, err := m.measure()
		if err != nil {
			return err
		}
		*m.into = append(*m.into, value)
	}

	visit, memory, err := bareVisits(ctx, filepath.Join(dir, "bare-agents"), sizes.agents)
	if err != nil {
		return err
	}

	c.bareVisit, c.bareMemory = append(c.bareVisit, visit), append(c.bareMemory, memory)
	if visit, memory, err = ownVisits(ctx, filepath.Join(dir, "agents"), sizes.agents); err != nil {
		return err
	}

	c.visit, c.memory = append(c.visit, visit), append(c.memory, memory)
	return nil
}

func (c *dbCosts) figures(sizes dbSizes) []Figure {
	rows := thousands(sizes.rows) + " × 5"
	var out []Figure
	if sizes.sqlite3 == "" {
		// The goal is about the program, so without it the figure has none.
		out = append(out, compared("import of "+rows+", with changelog", "s, of the bare driver", c.imported, c.load))
	} else {
		out = append(out,
			against("import of "+rows+", with changelog", "s", "sqlite3 program", 1.5, c.imported, c.program),
			against("load of "+rows+" alone", "s", "sqlite3 program", 1.3, c.load, c.program))
	}

	agents := thousands(sizes.agents) + " agents"
	return append(out,
		compared("undo of that import", "s, of the import", c.undone, c.imported),
		compared("undo of an upsert by a text key", "s, of the upsert", c.keyedUndone, c.keyed),
		compared("insert of one row, one caller", "1/s, of bare SQLite", c.one, c.bareOne),
		atLeast(fmt.Sprintf("insert of %s rows", thousands(sizes.batch)), "rows/s, of bare SQLite", 0.5, c.many, c.bareMany),
		atLeast("query of one row", "1/s, of bare SQLite", 0.4, c.read, c.bareRead),
		compared("first row of each of "+agents, "ms, of bare SQLite", c.visit, c.bareVisit),
		Figure{"memory after " + agents, median(c.memory), median(c.bareMemory), "MiB more, of bare", 0, "", true})
}

// compared is a figure without a goal.
func compared(name, unit string, values, baselines []float64) Figure {
	return Figure{name, median(values), median(baselines), unit, median(ratios(values, baselines)), "", true}
}

// atLeast is a rate whose goal is a part of the baseline's.
func atLeast(name, unit string, part float64, values, baselines []float64) Figure {
	ratio := median(ratios(values, baselines))
	return Figure{name, median(values), median(baselines), unit, ratio, fmt.Sprintf("≥ %v", part), ratio >= part}
}

// writeBenchFile makes a CSV file of a text, two numbers, a date and a word.
func writeBenchFile(path string, rows int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()

	w := bufio.NewWriter(f)
	fmt.Fprintln(w, "a,b,c,d,e")
	for i := range rows {
		fmt.Fprintf(w, "some name %d,%d,%d.5,2026-01-%02d,food\n", i, i, i%1000, i%28+1)
	}

	if err := w.Flush(); err != nil {
		return err
	}

	return f.Close()
}

// ownImport is one call, from the file until its rows are durable; with keys it looks for rows
// to update.
func ownImport(ctx context.Context, path, file string, rows int, keys []string) (float64, error) {
	db, err := agentdb.Open(ctx, agentdb.Options{Path: path})
	if err != nil {
		return 0, err
	}
	defer db.Close()

	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()

	begin := time.Now()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}

	spec := agentdb.ImportSpec{Table: "t", Name: file, Source: f, Size: info.Size(), KeyColumns: keys}
	if keys != nil {
		spec.Mode = "upsert"
	}

	in, err := db.Import(ctx, agentdb.By{Run: 1, Key: "1"}, spec)
	took := time.Since(begin).Seconds()
	if err == nil && in.RowsImported != int64(rows) {
		err = fmt.Errorf("%d of %d rows were imported", in.RowsImported, rows)
	}

	return took, err
}

// ownUndo undoes the run of an import, until that is durable.
func ownUndo(ctx context.Context, path string, rows int) (float64, error) {
	db, err := agentdb.Open(ctx, agentdb.Options{Path: path})
	if err != nil {
		return 0, err
	}
	defer db.Close()

	begin := time.Now()
	out, err := db.Undo(ctx, agentdb.By{Actor: "user"}, agentdb.UndoSpec{Run: 1})
	took := time.Since(begin).Seconds()
	if err == nil && (!out.Done || len(out.Tables) != 1 || out.Tables[0].Removed != int64(rows)) {
		err = fmt.Errorf("the undo of %d rows: %+v", rows, out)
	}

	return took, err
}

// programImport is the same by the program sqlite3, into a table of the same types, with
// its own settings: a rollback journal, and as durable.
func programImport(ctx context.Context, program, path, file string) (float64, error) {
	if program == "" {
		return 0, nil
	}

	begin := time.Now()
	cmd := exec.CommandContext(ctx, program, path, "create table t(a text, b integer, c real, d text, e text)", ".mode csv", ".import --skip 1 "+file+" t")
	// Any output is a complaint of the program, whatever its exit code.
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		return 0, fmt.Errorf("the program sqlite3 failed: %w: %s", err, out)
	}
	return time.Since(begin).Seconds(), nil
}

// ownInserts writes rows by so many calls, each with its entry in the journal and in the
// changelog, and gives rows a second.
func ownInserts(ctx context.Context, path string, calls, rows int) (float64, error) {
	db, err := agentdb.Open(ctx, agentdb.Options{Path: path})
	if err != nil {
		return 0, err
	}
	defer db.Close()

	if err := benchTable(ctx, db); err != nil {
		return 0, err
	}

	list := make([]map[string]any, rows)
	for i := range list {
		list[i] = map[string]any{"name": fmt.Sprintf("some name %d", i), "n": i}
	}

	begin := time.Now()
	for i := range calls {
		if _, err := db.Insert(ctx, agentdb.By{Run: 1, Key: fmt.Sprint(i)}, "t", list); err != nil {
			return 0, err
		}
	}

	return float64(calls*rows) / time.Since(begin).Seconds(), nil
}

func benchTable(ctx context.Context, db *agentdb.DB) error {
	_, err := db.CreateTable(ctx, agentdb.By{Run: 1}, agentdb.TableSpec{Name: "t", Purpose: "rows", Columns: []agentdb.Column{{Name: "name", Type: "TEXT"}, {Name: "n", Type: "INTEGER"}}})
	return err
}

func ownReads(ctx context.Context, path string, reads int) (float64, error) {
	db, err := agentdb.Open(ctx, agentdb.Options{Path: path})
	if err != nil {
		return 0, err
	}
	defer db.Close()

	begin := time.Now()
	for i := range reads {
		rows, err := db.Query(ctx, agentdb.QuerySpec{SQL: "select name, n from t where id = ?", Params: []any{i + 1}})
		if err != nil {
			return 0, err
		}
		if len(rows.Rows) != 1 {
			return 0, fmt.Errorf("row %d is not there", i+1)
		}
	}

	return float64(reads) / time.Since(begin).Seconds(), nil
}

// ownVisits makes each of many agents create a table and write a row. Few of their databases
// stay open; it gives the time of a visit and what memory has grown by.
func ownVisits(ctx context.Context, dir string, agents int) (millis, memory float64, err error) {
	pool, err := agentdb.NewPool(agentdb.PoolOptions{Dir: dir})
	if err != nil {
		return 0, 0, err
	}
	defer pool.Close()

	visit := func(agent string) error {
		db, release, err := pool.Get(ctx, agent)
		if err != nil {
			return err
		}
		defer release()

		if err := benchTable(ctx, db); err != nil {
			return err
		}

		_, err = db.Insert(ctx, agentdb.By{Run: 1, Key: "1"}, "t", []map[string]any{{"name": "x", "n": 1}})
		return err
	}

	// After the pool is open: only what the visits add counts.
	before := residentBytes()
	begin := time.Now()

	for i := range agents {
		if err := visit(fmt.Sprint("agent", i)); err != nil {
			return 0, 0, err
		}
	}

	millis = time.Since(begin).Seconds() * 1000 / float64(agents)
	return millis, float64(residentBytes()-before) / (1 << 20), nil
}
