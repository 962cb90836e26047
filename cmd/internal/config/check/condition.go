package check

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"rouse/cmd/internal/config"
	"rouse/internal/text"
)

// longestQuery is the maximum duration of a query on an agent's database.
const longestQuery = 10 * time.Second

// conditionParameters lists the parameters in the SQL of a condition.
var conditionParameters = []string{":last_success", ":last_run", ":now"}

func (c *checker) conditions(path string, j *config.Job, agent *config.Agent) {
	for at, g := range config.Each(path, j.When) {
		c.condition(at, g, agent, scope(j))
	}
	// Conditions in defaults are meant for jobs with other triggers.
	if other := len(config.Timings(j)) > 0 || j.RunOnStart || j.Webhook != nil || len(j.Follows) > 0; len(j.When) > 0 && j.Watch != nil && !other && !c.d.Given("defaults.when") {
		c.warn(path, "is not asked for the files of a watch, and this job has no other trigger")
	}
}

func (c *checker) condition(path string, g *config.Condition, agent *config.Agent, names []string) {
	kind := c.oneOf(path, "sql", "command", "http", "file", "that")
	if kind == "" || !c.hasNoProblem(path+"."+kind) {
		return
	}

	for _, key := range []string{"write", "read", "network", "sandbox", "reason"} {
		if kind != "command" && c.d.Given(path+"."+key) {
			c.bad(path+"."+key, "is for conditions with a command")
		}
	}

	switch path += "." + kind; kind {
	case "sql":
		c.conditionSQL(path, g, agent)
	case "command":
		c.conditionCommand(path, g, agent)
	case "http":
		c.address(path, g.HTTP, "https://example.com/health")
	case "that":
		c.notEmpty(path, g.That, "is empty")
		if strings.TrimSpace(g.That) != "" {
			c.expression(path, g.That, names)
		}
	case "file":
		if !doublestar.ValidatePathPattern(string(g.File)) {
			c.bad(path, "the pattern %q is broken", g.File)
		}
	}
}

// sqlWord matches the words of a SQL text, and also strings and comments, to skip them.
var sqlWord = regexp.MustCompile("(?s)'[^']*'|\"[^\"]*\"|`[^`]*`|\\[[^\\]]*\\]|--[^\n]*|/\\*.*?\\*/|[A-Za-z_\u0080-\U0010FFFF][A-Za-z0-9_$\u0080-\U0010FFFF]*|[:@$][A-Za-z0-9_]+|\\?[0-9]*")

func (c *checker) conditionSQL(path string, g *config.Condition, agent *config.Agent) {
	c.notEmpty(path, g.SQL, "is empty")
	c.needsDatabase(path, agent)
	if time.Duration(g.Timeout) > longestQuery {
		c.warn(path, "a query is stopped after %s, whatever its timeout", longestQuery)
	}

	for _, word := range sqlWord.FindAllString(g.SQL, -1) {
		if strings.Contains(":@$?", word[:1]) && !slices.Contains(conditionParameters, ":"+word[1:]) {
			c.bad(path, "%s", text.NoSuch("value", word, conditionParameters))
		}
	}
}

// interpreters matches programs that run the file in their first argument.
var interpreters = regexp.MustCompile(`(?i)^(ba|da|z|k|fi)?sh$|^(python|perl|ruby|node|deno|bun|php|lua|pwsh|powershell)[0-9.]*$`)

func (c *checker) conditionCommand(path string, g *config.Condition, agent *config.Agent) {
	if !c.hasNoProblem(path + "[0]") {
		return
	}

	if len(g.Command) == 0 || strings.TrimSpace(g.Command[0]) == "" {
		c.bad(path, "is empty; give a program and its arguments, like [test, -d, /mnt/backup]")
		return
	}

	workdir := ""
	if agent != nil {
		workdir = string(agent.Workdir)
	}
	if !c.fromFile(path, g.Command, workdir) {
		return
	}
	program := &g.Command[0]
	if strings.ContainsRune(filepath.ToSlash(*program), '/') { // like any other path, relative to the file that contains it
		*program = c.d.Resolve(g.At.File, *program)
	}

	condition := strings.TrimSuffix(path, ".command")
	c.sandboxOff(condition, g.Sandbox, g.Reason, "this command runs")
	if agent == nil {
		return
	}

	if asks := asksMachine(g.Command); asks != "" && g.Sandbox != "off" && agent.Sandbox != "off" {
		c.warn(path, "%s asks about the machine, and sees only itself in the sandbox, so that its answer is always the same", asks).
			Hint = "say sandbox: off with a reason, beside the command"
	}

	c.conditionFolders(condition, g, agent)
}

func (c *checker) conditionFolders(path string, g *config.Condition, agent *config.Agent) {
	type given struct{ key, folder string }
	var all []given
	for at, p := range config.Each(path+".read", g.Read) {
		all = append(all, given{at, string(*p)})
	}
	for at, word := range config.Each(path+".command", g.Command) {
		if filepath.IsAbs(*word) {
			all = append(all, given{at, *word})
		}
	}
	for _, one := range all {
		c.notOfTheHome(one.key, one.folder)
	}

	off := g.Sandbox == "off" || agent.Sandbox == "off"
	if g.Network != "host" && !off {
		return
	}
	if g.Write {
		all = append(all, given{path + ".write", string(agent.Workdir)})
	}
	for _, one := range all {
		own := c.overlap(one.folder, string(agent.Workdir))
		if own {
			c.sending[agent] = true
		}
		c.given = append(c.given, givenFolder{one.key, one.folder, agent, off || !own})
	}
}

// givenFolder is a folder that an unconfined or networked condition can access.
type givenFolder struct {
	path, folder string
	agent        *config.Agent
	private      bool // the condition always has private data
}

// warnConditions warns of conditions that will stop working once an agent has written untrusted
// content into a folder that they can access.
func (c *checker) warnConditions(reached map[*config.Agent]*reach) {
	for _, g := range c.given {
		private := g.private || slices.ContainsFunc(g.agent.PrivateFolders, func(folder string) bool { return c.overlap(folder, g.folder) })
		for i := range c.cfg.Agents {
			a := &c.cfg.Agents[i]
			r := reached[a]
			if !private || r == nil || len(r.sources[untrusted]) == 0 || !slices.ContainsFunc(a.Writes(), func(folder string) bool { return c.overlap(folder, g.folder) }) {
				continue
			}
			c.warn(g.path, "the agent %s can leave untrusted content in %s; then the condition does not start, because it has private data and the network, or no sandbox, as well", a.Name, config.Display(g.folder)).
				Hint = "give the condition a folder in which no agent writes, or take network: host or sandbox: off away"
			break
		}
	}
}

// machinePrograms lists programs that inspect the machine. In the sandbox they see only
// themselves.
var machinePrograms = []string{"df", "docker", "findmnt", "free", "fuser", "journalctl", "launchctl", "loginctl", "lsof", "mount", "mountpoint", "netstat", "pgrep", "pidof", "pkill", "podman", "ps", "service", "ss", "systemctl", "top", "uptime", "users", "w", "who"}

// scriptProgram matches the programs in a shell script, if they are at the start of a command.
var scriptProgram = regexp.MustCompile(`(?:^|[;&|(\x60!\n]|\b(?:if|then|else|elif|while|until|do|exec|sudo)\s)\s*([\w./-]+)`)

// asksMachine returns the first program of a command or its shell script that inspects the
// machine.
func asksMachine(argv []string) string {
	known := func(program string) bool {
		return slices.Contains(machinePrograms, filepath.Base(program))
	}

	switch {
	case known(argv[0]):
		return filepath.Base(argv[0])
	case len(argv) < 3 || !interpreters.MatchString(filepath.Base(argv[0])) || !strings.HasPrefix(argv[1], "-") || !strings.HasSuffix(argv[1], "c"):
		return ""
	}

	for _, found := range scriptProgram.FindAllStringSubmatch(argv[2], -1) {
		if known(found[1]) {
			return filepath.Base(found[1])
		}
	}
	return ""
}
