package imports_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"rouse/cmd/internal/imports"
	"rouse/internal/text"
)

// seed adds the files in testdata to the corpus.
func seed(f *testing.F, pattern string) {
	f.Helper()
	found, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(found) == 0 {
		f.Fatalf("%s: %v", pattern, err)
	}
	for _, path := range found {
		raw, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(raw))
	}
}

// lost returns a line of the input that is missing from the output, or "".
func lost(input, written string, skip *regexp.Regexp) string {
	for line := range strings.SplitSeq(input, "\n") {
		line = strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(line), "#"))
		if line == "" || skip.MatchString(line) || utf8.RuneCountInString(line) > 1000 {
			continue
		}
		if !strings.Contains(written, strings.TrimRight(text.Visible(line), " ")) {
			return line
		}
	}
	return ""
}

// withheld matches lines that may contain secrets. The output may lack these lines.
var withheld = regexp.MustCompile(`(?i)key|secret|token|passw|credential`)

// FuzzCrontab checks that any crontab gives a valid configuration that contains each of its lines.
func FuzzCrontab(f *testing.F) {
	seed(f, "crontab/*.crontab")
	f.Add("@daily %\n* * * * * a%b\\%c%\n- 1 2 3\nA=\n@1 x\n0~ 1 * * * x")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, input string) {
		file, err := imports.ReadFile("-", strings.NewReader(input))
		if err != nil {
			return
		}
		for _, users := range []bool{false, true} {
			d := imports.Crontab([]imports.File{file}, imports.CrontabOptions{Users: users})
			if line := lost(file.Text, whole(t, dir, d), withheld); line != "" {
				t.Fatalf("%q is lost:\n%s", line, d.Write())
			}
		}
	})
}

// FuzzSystemd checks that any timer and service give a valid configuration, with each timer as a
// job or a comment.
func FuzzSystemd(f *testing.F) {
	for _, pattern := range []string{"systemd/*.timer", "systemd/*.service"} {
		seed(f, pattern)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, input string) {
		file, err := imports.ReadFile("-", strings.NewReader(input))
		if err != nil {
			return
		}
		o := imports.SystemdOptions{Home: "/home/ann", User: "ann"}
		timer, service := imports.File{Name: "f.timer", Text: file.Text}, imports.File{Name: "f.service", Text: file.Text}
		d := imports.Systemd([]imports.File{timer, {Name: "f.service", Text: "[Service]\nExecStart=/usr/bin/true\n"}}, o)
		whole(t, dir, d)
		if len(d.Jobs())+d.Comments() == 0 {
			t.Fatalf("the timer is lost:\n%s", d.Write())
		}
		d = imports.Systemd([]imports.File{{Name: "f.timer", Text: "[Timer]\nOnCalendar=daily\n"}, service}, o)
		whole(t, dir, d)
		if len(d.Jobs())+d.Comments() == 0 {
			t.Fatalf("the timer is lost:\n%s", d.Write())
		}
	})
}

// FuzzDagu checks that any DAG gives a valid configuration, with each DAG as a job or a comment.
func FuzzDagu(f *testing.F) {
	seed(f, "dagu/*.yaml")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, input string) {
		file, err := imports.ReadFile("-", strings.NewReader(input))
		if err != nil {
			return
		}
		d, err := imports.Dagu([]imports.File{file})
		if err != nil {
			return // not YAML
		}
		written := whole(t, dir, d)
		if len(d.Jobs())+d.Comments() == 0 && strings.Contains(input, "steps:") && !strings.Contains(input, "#") {
			t.Fatalf("a DAG is lost:\n%s", written)
		}
	})
}

// FuzzOpenClaw checks that any file of cron jobs gives a valid configuration, with each job as a
// job or a comment.
func FuzzOpenClaw(f *testing.F) {
	seed(f, "openclaw/*.json")
	seed(f, "openclaw/*.md")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, input string) {
		file, err := imports.ReadFile("-", strings.NewReader(input))
		if err != nil {
			return
		}
		if d, err := imports.OpenClaw([]imports.File{{Name: "jobs.json", Text: file.Text}}); err == nil {
			whole(t, dir, d)
		}
		d, err := imports.OpenClaw([]imports.File{{Name: "HEARTBEAT.md", Text: file.Text}})
		if err != nil {
			t.Fatal(err)
		}
		whole(t, dir, d)
	})
}
