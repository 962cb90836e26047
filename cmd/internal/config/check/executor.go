package check

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"rouse/agent/clirun"
	"rouse/agent/plan"
	"rouse/agent/tool/executor"
	"rouse/cmd/internal/config"
)

// checkExecutors checks each executor and the settings that it makes useless.
func (c *checker) checkExecutors() {
	for _, e := range config.Executors(c.cfg) {
		c.executor(e)
		if a := c.cfg.Agent(e.Agent); a != nil {
			c.contradicts(e.Path, "", a.Mode == plan.ModeNone, "is a program, and with mode: none its agent runs none")
		}
	}

	for path, a := range config.Each("agents", c.cfg.Agents) {
		c.besideExecutor(path, a)
	}
	for path, j := range config.Each("jobs", c.cfg.Jobs) {
		switch e := c.cfg.ExecutorOf(j); {
		case j.Executor != nil && !j.Prompts():
			c.bad(path+".executor", "goes with prompt: a playbook and a skill are done by rouse itself")
		case e != nil && j.At.Line > 0:
			c.jobBesideExecutor(path, j, e)
		}
	}
}

func (c *checker) executor(e config.PlacedExecutor) {
	if !c.d.Given(e.Path+".argv") || !c.hasNoProblem(e.Path+".argv") {
		return
	}
	if len(e.Argv) == 0 || strings.TrimSpace(e.Argv[0]) == "" {
		c.bad(e.Path+".argv", "must name a program").Hint = "as in argv: [claude, -p, --output-format, stream-json, --verbose]"
		return
	}
	if strings.Contains(e.Argv[0], "{{") {
		c.bad(e.Path+".argv[0]", "the program is no template")
		return
	}

	c.fromFile(e.Path+".argv", e.Argv, "")
	for at, word := range config.Each(e.Path+".argv", e.Argv) { // skip the program itself, which is not a template
		c.template(at, *word, clirun.ArgvNames())
	}
	located, err := executor.Locate(e.Argv[0])
	if err != nil {
		c.warn(e.Path+".argv[0]", "%s; until then each run fails", err.Error())
	}
	for _, f := range e.Settings().Folders(located) {
		except := ""
		if f.Own {
			except = e.Agent
		}
		c.ownersFolder(e.Path+"."+f.Key, f.Path, except)
	}

	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		at, value := e.Path+".env."+name, e.Env[name]
		e.HasSecret = e.HasSecret || c.d.HoldsSecret(value)
		switch {
		case !envName.MatchString(name):
			c.bad(at, "%q is no name of a variable", name)
		case strings.ContainsRune(value, 0):
			c.bad(at, "holds a NUL, which no environment can")
		case name == "HOME":
			c.bad(at, "HOME is set by executor.home")
		}
	}
	if e.Network != "host" {
		c.warn(e.Path, "the program has no network, so that it reaches no model but one within its own process").Hint = "if its model is elsewhere, write network: host"
	}
	for at, l := range config.Each(e.Path+".limits", e.Limits) {
		if l.Match == "" && c.d.Given(at+".match") {
			c.bad(at+".match", "must not be empty: it would match every message")
		}
		if _, err := regexp.Compile(l.Match); err != nil {
			c.bad(at+".match", "is not a regular expression: %v", err).Hint = "write the words of the message, and a backslash before each of . ? * + ( ) [ ] { } | ^ $"
		}
	}
	for at, l := range config.Each(e.Path+".login", e.Login) {
		if l.Write {
			c.warn(at, "the program can leave settings in %s that your own sessions follow; sign in once for it alone, with HOME=%s", config.Display(string(l.Path)), config.Display(string(e.Home)))
		}
	}
}

// agentBesides lists the agent keys that configure the built-in loop.
var agentBesides = []string{"model", "loop", "skills", "skill_access", "skill_style", "skill_allowed_tools", "tools", "self_scheduling", "grants.commands", "grants.network", "grants.secrets"}

// besideExecutor warns of loop settings of an agent if its runs do not use the loop.
func (c *checker) besideExecutor(path string, a *config.Agent) {
	if a.Executor == nil {
		return
	}
	if slices.ContainsFunc(c.jobsOf[string(a.Name)], func(i int) bool { return !c.cfg.Jobs[i].Prompts() }) {
		return // those jobs use the settings
	}
	for _, key := range agentBesides {
		if at := path + "." + key; c.d.Given(at) {
			c.warn(at, "has no effect on what the executor does, which has tools and a model of its own; it holds for manual calls, playbooks and skills of the agent alone")
		}
	}
}

// jobBesideExecutor reports settings of a job that have no effect on its executor.
func (c *checker) jobBesideExecutor(path string, j *config.Job, e *config.Executor) {
	if at := path + ".model"; c.d.Given(at) {
		c.bad(at, "an executor does this job, and chooses its model by its own arguments (executor.argv)")
	}
	if at := path + ".record"; j.Record && c.d.Given(at) {
		c.warn(at, "has no effect: what an executor and its model say to each other is not seen, so that the run cannot be replayed")
	}

	key, budget := j.Budget.CostKey()
	if limit := max(j.Bounds.CostUSD, budget); limit > 0 && e.Output == "text" && e.Price == nil {
		at := path + ".bounds.cost_usd"
		if j.Bounds.CostUSD == 0 {
			at = path + ".budget." + key
		}
		c.warn(at, "with output: text the executor does not report its cost, so each run is booked with an estimate: write price: {input: …, output: …} (USD per million tokens) into executor, or {input: 0, output: 0} if a run costs nothing")
	}
	if w := j.Watch; w != nil && w.Mode != config.Converge {
		if a := c.agent(j); a != nil && slices.ContainsFunc(a.Writes(), func(folder string) bool { return c.overlap(folder, string(w.Path)) }) {
			c.warn(path+".watch.path", "the executor can write in %s, and what it leaves there while it works may start further runs before it is known to be its own; watch a folder that it only reads, or use mode: converge", config.Display(string(w.Path)))
		}
	}
}
