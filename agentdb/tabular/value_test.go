package tabular

import "testing"

func TestKindOfCell(t *testing.T) {
	for cell, want := range map[string]Kind{
		"": unseen, "0": integer, "-12": integer, "007": textual, "+1": textual, "-0": textual, "1e5": textual, " 1": textual, "1,5": textual,
		"9007199254740992": integer, "9007199254740993": long, "9223372036854775808": textual,
		"1.5": real, "-0.50": real, "1.": textual, ".5": textual, "1234567890.123456": textual, "0x10": textual, "1_000": textual, "-": textual, "1.2.3": textual,
	} {
		if got := kindOfCell(cell); got != want {
			t.Errorf("%q: %d, want %d", cell, got, want)
		}
	}
	for _, c := range []struct{ a, b, want Kind }{
		{unseen, real, real}, {integer, real, real}, {long, real, textual}, {integer, long, long}, {boolean, integer, integer},
		{boolean, real, textual}, {integer, textual, textual}, {boolean, textual, textual},
	} {
		if c.a.merge(c.b) != c.want || c.b.merge(c.a) != c.want {
			t.Errorf("%d with %d: %d and %d, want %d", c.a, c.b, c.a.merge(c.b), c.b.merge(c.a), c.want)
		}
	}
}
