package main

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/endtoend"
	"rouse/cmd/internal/plan"
)

// handbook returns the pages that people wrote: README.md and docs, without what is generated.
func handbook(t *testing.T) []string {
	t.Helper()
	pages := []string{"../../README.md"}
	err := filepath.WalkDir("../../docs", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == "reference":
			return fs.SkipDir
		case filepath.Ext(path) == ".md":
			pages = append(pages, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// block is a fenced block of a page.
type block struct {
	line       int
	kind, text string
}

var fence = regexp.MustCompile("(?ms)^```([a-z]*)[^\n]*\n(.*?)^```$")

func blocks(t *testing.T, page string) (out []block) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range fence.FindAllSubmatchIndex(text, -1) {
		out = append(out, block{1 + strings.Count(string(text[:m[0]]), "\n"), string(text[m[2]:m[3]]), string(text[m[4]:m[5]])})
	}
	return out
}

var (
	variable   = regexp.MustCompile(`\benv:([A-Z_0-9]+)|\$\{([A-Z_0-9]+)\}`)
	secretName = regexp.MustCompile(`\bsecret:([A-Za-z0-9_-]+)|secrets:\s*(?:\[|-)\s*\{\s*name: ([A-Za-z0-9_-]+)`)
)

// TestDocsConfigurations checks every YAML block of the handbook as a configuration of its own.
func TestDocsConfigurations(t *testing.T) {
	endtoend.Unraced(t)
	for _, page := range handbook(t) {
		for _, b := range blocks(t, page) {
			if b.kind != "yaml" {
				continue
			}
			dir := t.TempDir()
			for _, m := range variable.FindAllStringSubmatch(b.text, -1) {
				t.Setenv(m[1]+m[2], "a-value-of-the-test")
			}
			for _, m := range secretName.FindAllStringSubmatch(b.text, -1) {
				value := "https://hooks.example.com/a-value-of-the-test"
				if m[1] == "ledger" {
					value = "postgres://rouse@127.0.0.1/rouse"
				}
				t.Setenv("ROUSE_SECRET_"+strings.ToUpper(strings.ReplaceAll(m[1]+m[2], "-", "_")), value)
			}
			file := filepath.Join(dir, "rouse.yaml")
			if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := plan.Check(file, filepath.Join(dir, "home")); err != nil {
				t.Errorf("%s:%d: the configuration has problems:\n%v", page, b.line, err)
			}
		}
	}
}

// TestDocsCommands checks that every command line of the handbook names a command and flags that exist.
func TestDocsCommands(t *testing.T) {
	for _, page := range handbook(t) {
		for _, b := range blocks(t, page) {
			if b.kind != "sh" {
				continue
			}
			lines := strings.Split(strings.ReplaceAll(b.text, "\\\n", " "), "\n")
			for _, line := range lines {
				line, _, _ = strings.Cut(strings.TrimPrefix(line, "$ "), " #")
				line = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(line), "&"))
				for _, start := range []string{"rouse ", "./rouse ", "go run ./cmd/rouse "} {
					if args, ok := strings.CutPrefix(line, start); ok {
						if why := wrongCommand(t.Context(), args); why != "" {
							t.Errorf("%s:%d: %s: %s", page, b.line, line, why)
						}
					}
				}
			}
		}
	}
}

var word = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)

// wrongCommand returns why a command line cannot be parsed, or "".
func wrongCommand(ctx context.Context, line string) string {
	line, _, _ = strings.Cut(line, " | ")
	line, _, _ = strings.Cut(line, " > ")
	args := word.FindAllString(line, -1)
	for i, a := range args {
		args[i] = strings.Trim(a, `'"`)
	}
	root := newRoot(&cli{stderr: io.Discard})
	root.InitDefaultCompletionCmd()
	root.SetContext(ctx)
	if slices.Contains(args, "--help") || args[0] == "help" {
		args = slices.DeleteFunc(args, func(a string) bool { return a == "--help" || a == "help" })
	}
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err.Error()
	}
	if cmd == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && !isTopic(root, rest[0]) {
		return "there is no command " + rest[0]
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err.Error()
	}
	return ""
}

func isTopic(root *cobra.Command, name string) bool {
	return slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == name })
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)?(#[^)\s]+)?\)`)

// TestDocsLinks follows every link between pages, to the heading that it names.
func TestDocsLinks(t *testing.T) {
	headings := map[string][]string{}
	headingsOf := func(page string) []string {
		if headings[page] == nil {
			text, err := os.ReadFile(page)
			if err != nil {
				return nil
			}
			for _, m := range regexp.MustCompile(`(?m)^#+ +(.+)$`).FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
				headings[page] = append(headings[page], anchor(m[1]))
			}
		}
		return headings[page]
	}
	for _, page := range handbook(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			target := page
			if m[1] != "" {
				if strings.Contains(m[1], ":") {
					continue // an address
				}
				target = filepath.Join(filepath.Dir(page), m[1])
				if _, err := os.Stat(target); err != nil {
					t.Errorf("%s links to %s, which does not exist", page, m[1])
					continue
				}
			}
			if m[2] != "" && filepath.Ext(target) == ".md" && !slices.Contains(headingsOf(target), m[2][1:]) {
				t.Errorf("%s links to %s%s, and there is no such heading", page, m[1], m[2])
			}
		}
	}
}

// anchor returns the name of a heading in addresses, as GitHub makes it.
func anchor(heading string) string {
	heading = strings.ToLower(strings.TrimSpace(heading))
	heading = regexp.MustCompile(`[^\p{L}\p{N}\- _]`).ReplaceAllString(heading, "")
	return strings.ReplaceAll(heading, " ", "-")
}
