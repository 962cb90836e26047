package placement_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/pool"
)

// BenchmarkWrite measures a write of one row, into a local file and shipped before it is
// acknowledged.
func BenchmarkWrite(b *testing.B) {
	c := newCluster(b)
	alone, err := pool.New(pool.Options{Dir: filepath.Join(b.TempDir(), "agents")})
	if err != nil {
		b.Fatal(err)
	}
	defer alone.Close()
	for _, w := range []struct {
		name string
		pool *pool.Pool
	}{{"alone", alone}, {"shipped", c.start("north", b.TempDir()).pool}} {
		b.Run(w.name, func(b *testing.B) {
			db, release, err := w.pool.Get(b.Context(), "clerk")
			if err != nil {
				b.Fatal(err)
			}
			defer release()
			if _, err := db.Execute(b.Context(), changelog.By{}, agentdb.ExecuteSpec{SQL: `create table if not exists notes (text text)`}); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := db.Insert(b.Context(), changelog.By{}, "notes", []map[string]any{{"text": "a note"}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMove measures a run at a node that must first fetch a database of a given size: start,
// read one row, end.
func BenchmarkMove(b *testing.B) {
	for _, rows := range []int{100, 100_000} {
		b.Run(fmt.Sprint(rows, "rows"), func(b *testing.B) {
			c := newCluster(b)
			nodes := []*nodeName{c.start("north", b.TempDir()), c.start("south", b.TempDir())}
			r, err := nodes[0].run("clerk")
			if err != nil {
				b.Fatal(err)
			}
			nodes[0].mustWrite("clerk", makeNotes)
			nodes[0].mustWrite("clerk", fmt.Sprintf(`with recursive c(n) as (select 1 union all select n + 1 from c where n < %d) insert into notes (text) select 'a note, the ' || n || '. of many' from c`, rows))
			nodes[0].finish(r)
			for i := 1; b.Loop(); i++ {
				n := nodes[i%2]
				if r, err = n.run("clerk"); err != nil {
					b.Fatal(err)
				}
				n.mustWrite("clerk", fmt.Sprintf(addNote, "one more"))
				n.finish(r)
			}
		})
	}
}
