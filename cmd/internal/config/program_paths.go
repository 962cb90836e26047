package config

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"rouse/agent/tool/shell"
)

// fromFile resolves the program and script of a command relative to the configuration file if they begin with ./, ../ or
// ~/. A path that exists only in the agent's workdir stays relative to the workdir.
func (c *checker) fromFile(path string, argv []string, workdir string) {
	if len(argv) == 1 && strings.Contains(argv[0], " ") && !strings.ContainsAny(argv[0], `/\`) {
		words := strings.Fields(argv[0])
		for i, word := range words {
			words[i] = "'" + strings.ReplaceAll(word, "'", "''") + "'"
		}
		c.bad(path, "%s is one word, the name of a program", display(argv[0])).Hint = "write the program and each argument by itself: [" + strings.Join(words, ", ") + "]"
		return
	}
	scripts := shell.Scripts(argv)
	for i, word := range argv {
		if err := shellPath(word); err != nil {
			c.bad(path, "%s", err.Error())
			return
		}
		if slices.Contains(scripts, word) {
			argv[i] = c.programPath(path, word, workdir)
		}
	}
}

// programPath resolves one word of a command like fromFile.
func (c *checker) programPath(path, word, workdir string) string {
	slashed := filepath.ToSlash(word)
	if !strings.HasPrefix(slashed, "./") && !strings.HasPrefix(slashed, "../") && !strings.HasPrefix(slashed, "~/") {
		return word
	}

	place := c.d.place(path)
	file := c.d.resolve(place.File, word)
	if strings.ContainsAny(file, "*?[{") { // argv would treat them as patterns or templates
		return word
	}
	if _, err := os.Stat(file); err == nil {
		return file
	}
	if workdir != "" && slashed[0] != '~' {
		if _, err := os.Stat(filepath.Join(workdir, word)); err == nil {
			return word
		}
	}
	return file
}

// commandScript matches a relative path of the program of a command line, or of the script of its interpreter.
var commandScript = regexp.MustCompile(`^\s*(?:(?:[\w./-]*/)?(?:(?:ba|da|z|k)?sh|python[0-9.]*|perl|ruby|node|deno|bun|php)\s+)?((?:\.{1,2}|~)/[\w./+@%:-]+)(?:\s|$)`)

// plainScript matches a path that needs no quotes in a command line.
var plainScript = regexp.MustCompile(`^[\w./+@%:-]+$`)

// commandFromFile resolves the command of a playbook's call like fromFile.
func (c *checker) commandFromFile(path string, call PlaybookCall, agent *Agent) {
	command, _ := call.With["command"].(string)
	m := commandScript.FindStringSubmatch(command)
	if m == nil || strings.HasPrefix(command, "= ") {
		return
	}

	file := c.programPath(path, m[1], string(agent.Workdir))
	if file == m[1] {
		return
	}
	if !plainScript.MatchString(file) {
		file = "'" + strings.ReplaceAll(file, "'", `'\''`) + "'"
	}
	call.With["command"] = strings.Replace(command, m[1], file, 1)
}

// elsewhere warns of a granted program that is in the user's PATH but that commands do not find, with the line to write.
func (c *checker) elsewhere(path string, argv []string) {
	if len(argv) == 0 || strings.ContainsAny(argv[0], `/\*?[`) || shell.HasProgram(argv[0]) {
		return
	}
	if found := shell.Elsewhere(argv[0]); found != "" {
		line := &node{kind: list, items: []*node{word(found, Position{})}}
		for _, argument := range argv[1:] {
			line.items = append(line.items, word(argument, Position{}))
		}
		c.warn(path, "%s is at %s, but commands find programs only in the system folders (%s)", argv[0], found, shell.SearchPath()).Hint =
			"write argv: " + flow(line) + ", and the same path in the command"
	}
}
