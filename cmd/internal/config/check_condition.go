package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"rouse/internal/text"
)

// longestQuery is when a query on an agent's database is stopped in any case.
const longestQuery = 10 * time.Second

// conditionParameters are what the SQL of a condition can name.
var conditionParameters = []string{":last_success", ":last_run", ":now"}

func (c *checker) conditions(path string, j *Job, agent *Agent) {
	for i := range j.When {
		c.condition(fmt.Sprintf("%s[%d]", path, i), &j.When[i], agent)
	}
	// Conditions in defaults are meant for the jobs that have other triggers.
	if timed := len(sources(j)) > 0 || j.RunOnStart; len(j.When) > 0 && j.Watch != nil && !timed && !c.d.given("defaults.when") {
		c.warn(path, "is not asked for the files of a watch, and this job has no other trigger")
	}
}

func (c *checker) condition(path string, g *condition, agent *Agent) {
	if g.At.Line == 0 {
		return // no mapping, which was said
	}

	var kinds []string
	for _, key := range []string{"sql", "command", "http", "file"} {
		if c.d.given(path + "." + key) {
			kinds = append(kinds, key)
		}
	}

	if len(kinds) != 1 {
		if c.hasNoProblem(path) { // else it was misspelt
			c.bad(path, "give exactly one of sql, command, http and file")
		}
		return
	}

	if !c.hasNoProblem(path + "." + kinds[0]) {
		return
	}

	switch path += "." + kinds[0]; kinds[0] {
	case "sql":
		c.conditionSQL(path, g, agent)
	case "command":
		c.conditionCommand(path, g, agent)
	case "http":
		c.conditionURL(path, g)
	case "file":
		if !doublestar.ValidatePathPattern(string(g.File)) {
			c.bad(path, "the pattern %q is broken", g.File)
		}
	}
}

// sqlWord finds the words of a SQL text, and goes past what only looks like one.
var sqlWord = regexp.MustCompile("(?s)'[^']*'|\"[^\"]*\"|`[^`]*`|\\[[^\\]]*\\]|--[^\n]*|/\\*.*?\\*/|[A-Za-z_\u0080-\U0010FFFF][A-Za-z0-9_$\u0080-\U0010FFFF]*|[:@$][A-Za-z0-9_]+|\\?[0-9]*")

func (c *checker) conditionSQL(path string, g *condition, agent *Agent) {
	if strings.TrimSpace(g.SQL) == "" {
		c.bad(path, "is empty")
	}

	if agent != nil && !On(agent.Database.Enabled) {
		c.bad(path, "the agent %q has no database (database.enabled: false)", agent.Name)
	}

	if time.Duration(g.Timeout) > longestQuery {
		c.warn(path, "a query is stopped after %s, whatever its timeout", longestQuery)
	}

	for _, word := range sqlWord.FindAllString(g.SQL, -1) {
		if strings.Contains(":@$?", word[:1]) && !slices.Contains(conditionParameters, ":"+word[1:]) {
			c.bad(path, "%s", text.NoSuch("value", word, conditionParameters))
		}
	}
}

// interpreters run what their first argument names.
var interpreters = regexp.MustCompile(`(?i)^(ba|da|z|k|fi)?sh$|^(python|perl|ruby|node|deno|bun|php|lua|pwsh|powershell)[0-9.]*$`)

func (c *checker) conditionCommand(path string, g *condition, agent *Agent) {
	if !c.hasNoProblem(path + "[0]") {
		return
	}

	if len(g.Command) == 0 || strings.TrimSpace(g.Command[0]) == "" {
		c.bad(path, "is empty; give a program and its arguments, like [test, -d, /mnt/backup]")
		return
	}

	program := &g.Command[0]
	if words := strings.Fields(*program); len(g.Command) == 1 && len(words) > 1 && !strings.ContainsAny(words[0], `/\`) {
		c.bad(path, "%q is a line for a shell, and there is none", short(*program)).Hint = "write the words as a list: [" + strings.Join(words, ", ") + "]"
		return
	}

	if strings.ContainsRune(filepath.ToSlash(*program), '/') { // a path as any other: from the folder of the file that holds it
		*program = c.d.resolve(g.At.File, *program)
	}

	if agent == nil {
		return
	}

	// An agent that can change the program, or the script that an interpreter runs, would get its
	// code executed outside the sandbox with every check.
	programs := []string{*program}
	if base := strings.TrimSuffix(filepath.Base(*program), ".exe"); interpreters.MatchString(base) && len(g.Command) > 1 && !strings.HasPrefix(g.Command[1], "-") {
		programs = append(programs, filepath.Join(string(agent.Workdir), g.Command[1]))
		if filepath.IsAbs(g.Command[1]) {
			programs[1] = g.Command[1]
		}
	}

	for _, p := range programs {
		if filepath.IsAbs(p) && writable(agent, p) {
			c.warn(path, "the agent can write %s, and a condition is not confined as the agent is; keep it out of the agent's folders", display(p))
		}
	}
}

// writable says whether an agent may change a file.
func writable(a *Agent, path string) bool {
	roots := a.Grants.Write
	// Without grants.write an agent writes in all of its workdir.
	if len(roots) == 0 {
		roots = []Path{a.Workdir}
	}

	return slices.ContainsFunc(roots, func(root Path) bool {
		rel, err := filepath.Rel(string(root), path)
		return err == nil && filepath.IsLocal(rel)
	})
}

func (c *checker) conditionURL(path string, g *condition) {
	u, err := url.Parse(g.HTTP)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		c.bad(path, "must be a URL like https://example.com/health")
		return
	}

	// Registered, so that it is masked wherever the address is shown.
	if password, ok := u.User.Password(); ok && password != "" {
		c.d.secret(c.d.place(path), path, password)
	}
}

// Where is a place as messages of runs name it: relative to the folder of the main file.
func (c *Config) Where(at Position) string {
	if rel, err := filepath.Rel(filepath.Dir(c.Files[0]), at.File); err == nil && filepath.IsLocal(rel) {
		at.File = filepath.ToSlash(rel)
	}
	return at.String()
}
