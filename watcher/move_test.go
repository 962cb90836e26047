package watcher

import (
	"strings"
	"testing"
)

func TestNumbered(t *testing.T) {
	long := strings.Repeat("ä", 125) + ".csv"
	for _, c := range []struct {
		name string
		i    int
		want string
	}{
		{"a.csv", 0, "a.csv"}, {"a.csv", 1, "a-2.csv"}, {"a.tar.gz", 2, "a.tar-3.gz"}, {"a", 1, "a-2"}, {".env", 1, ".env-2"},
		{long, 0, long}, {long, 1, strings.Repeat("ä", 124) + "-2.csv"},
	} {
		if got := numbered(c.name, c.i); got != c.want || len(got) > maxName {
			t.Errorf("%s, %d: %s", c.name, c.i, got)
		}
	}
}
