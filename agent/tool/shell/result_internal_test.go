package shell

import (
	"fmt"
	"testing"
)

// What ran has a name that its owner knows it by, and the lines of its output are counted whatever pieces they
// are written in.
func TestResultInWords(t *testing.T) {
	for command, want := range map[string]string{
		"./backup.sh --all":         "backup.sh",
		"/usr/local/bin/backup.sh":  "backup.sh",
		"bash tools/backup.sh":      "backup.sh",
		"nice -n 5 python3 tidy.py": "tidy.py",
		"env A=1 ls -la":            "ls",
		"sudo":                      "sudo",
		"tar c . |\n gzip > a.gz":   "tar c . | gzip > a.gz",
		"echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; echo b": "echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…",
	} {
		l, err := parse(command)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.name(); got != want {
			t.Errorf("%s is %q, want %q", command, got, want)
		}
	}

	for _, c := range []struct {
		pieces []string
		lines  int64
	}{{nil, 0}, {[]string{""}, 0}, {[]string{"a"}, 1}, {[]string{"a\n"}, 1}, {[]string{"a", "\n", "b"}, 2}, {[]string{"a\nb\n", ""}, 2}, {[]string{"\n\n"}, 2}} {
		o := NewOutput(10)
		for _, piece := range c.pieces {
			fmt.Fprint(o, piece)
		}
		if got := o.Lines(); got != c.lines {
			t.Errorf("%q has %d lines, want %d", c.pieces, got, c.lines)
		}
	}
}
