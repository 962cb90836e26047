package bench

import (
	"path/filepath"
	"testing"
)

// BenchmarkInserts is one row of `rouse bench db`: twenty calls that insert a thousand rows, and bare SQLite.
func BenchmarkInserts(b *testing.B) {
	const calls, rows = 20, 1000
	for _, m := range []struct {
		name   string
		insert func(path string) (float64, error)
	}{
		{"bare", func(path string) (float64, error) { return bareInserts(b.Context(), path, calls, rows) }},
		{"agentdb", func(path string) (float64, error) { return ownInserts(b.Context(), path, calls, rows) }},
	} {
		b.Run(m.name, func(b *testing.B) {
			var rates []float64
			for b.Loop() {
				rate, err := m.insert(filepath.Join(b.TempDir(), "db.sqlite"))
				if err != nil {
					b.Fatal(err)
				}
				rates = append(rates, rate)
			}
			b.ReportMetric(median(rates), "rows/s")
		})
	}
}
