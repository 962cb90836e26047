package sqltext

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestToColumns(t *testing.T) {
	got := strings.Join(ToColumns([]string{
		"Amount (EUR)", "amount  eur", " Größe ", "", "金額", "2024", "order", "rowid", "a\"b", "_created_at", "Café", "0a", "9z", "AZaz09",
	}), " ")
	want := "Amount_EUR amount_eur_2 Gro_e column_4 column_5 _2024 order c_rowid a_b _created_at Cafe _0a _9z AZaz09"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	rapid.Check(t, func(t *rapid.T) {
		taken := map[string]bool{}
		for _, name := range ToColumns(rapid.SliceOf(rapid.String()).Draw(t, "headings")) {
			if !IsIdentifier(name) || len(name) > MaxName || taken[strings.ToLower(name)] {
				t.Fatalf("%q is not a column name, or not the first such", name)
			}
			taken[strings.ToLower(name)] = true
		}
	})
}
