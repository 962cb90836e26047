package imports_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/imports"
)

func itoa(n int) string { return strconv.Itoa(n) }

// failing is implemented by *testing.T and *rapid.T.
type failing interface {
	Fatalf(format string, args ...any)
}

func carriedIn(t *rapid.T, dir, text string) (*config.Config, *imports.Document, string) {
	d := imports.Crontab([]imports.File{{Name: "c", Text: text}}, imports.CrontabOptions{})
	written, err := d.Settle(checkIn(dir))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := readText(dir, filepath.Join(dir, "home"), written)
	if err != nil {
		t.Fatalf("%v\n%s", err, written)
	}
	return cfg, d, string(written)
}

// whole fails the test unless the output is a valid configuration with all jobs and without control
// characters.
func whole(t *testing.T, dir string, d *imports.Document) string {
	t.Helper()
	written, err := d.Settle(checkIn(dir))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := readText(dir, filepath.Join(dir, "home"), written)
	if err != nil {
		t.Fatalf("%v\n%s", err, written)
	}
	if len(cfg.Jobs) != len(d.Jobs()) {
		t.Fatalf("%d jobs are written, %d were read:\n%s", len(cfg.Jobs), len(d.Jobs()), written)
	}
	if at := strings.IndexFunc(string(written), func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) && r != ' ' }); at >= 0 {
		t.Fatalf("%q would reach a terminal", written[at:min(at+20, len(written))])
	}
	return string(written)
}
