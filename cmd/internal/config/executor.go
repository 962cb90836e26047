package config

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"rouse/agent"
	"rouse/agent/plan"
	"rouse/agent/tool/executor"
)

// Executor is an installed agent program that does prompts in the place of the loop.
type Executor struct {
	Argv    []string          `key:"argv" need:"yes" say:"the program by its name or its path, and its arguments, which are templates; with {{ .Prompt }} in one of them the task is told there, otherwise it is the program's input" eg:"[claude, -p, --output-format, stream-json]"`
	Output  string            `key:"output" enum:"json|text" default:"json" say:"what it prints: JSON as claude, codex and gemini print it, or the documented form; or text, which is its answer"`
	Network string            `key:"network" enum:"none|host" default:"none" say:"host lets it reach its model, and everything else"`
	Env     map[string]string `key:"env" say:"variables of its environment; secret:NAME and ${NAME} stand for secrets" eg:"{ANTHROPIC_API_KEY: secret:anthropic}"`
	Private *bool             `key:"private" default:"true" say:"false: what env and login open is not private data, as with the key of a model's API, so that its use does not make a run ask"`
	Login   []loginGrant      `key:"login" say:"files and folders by which it is signed in, which it finds in its HOME under the names that they have in yours: paths, or {path: X, write: true}"`
	Home    Path              `key:"home" say:"the folder that it has as HOME, and keeps" unset:"HOME/agents/NAME/home" eg:"./homes/claude"`
	Read    []Path            `key:"read" say:"what else it has to read to work, as the folder that it was installed to" eg:"[/opt/claude]"`
	Memory  Size              `key:"memory" positive:"yes" say:"of it and all that it starts" unset:"2GiB"`
	Price   *price            `key:"price" say:"price in USD per million tokens of a program that does not report its cost; {input: 0, output: 0} for one that costs nothing per run, such as a subscription"`

	Limits []sentence `key:"limits" say:"messages of the program that mean that its model cannot be asked now, beside those that rouse knows: the run waits instead of failing"`

	At     Position
	secret bool
}

// sentence is a message by which a program reports that its model cannot be asked now.
type sentence struct {
	Match string   `key:"match" need:"yes" say:"regular expression for the error message" eg:"quota of the team is used up"`
	Wait  Duration `key:"wait" positive:"yes" say:"time until the run starts again" unset:"until the time in the message, else as for a model that is down" eg:"1h"`
}

// loginGrant is a path, or a mapping that says more of it.
type loginGrant struct {
	Path  Path `key:"path" need:"yes" say:"the file or folder" eg:"~/.claude.json"`
	Write bool `key:"write" say:"it may change what is there, as for tokens that it renews; a program that strangers could talk into it can leave settings there that your own sessions follow"`
}

// ExecutorOf is the program that does a job, nil where the loop does.
func (c *Config) ExecutorOf(j *Job) *Executor {
	if !j.Prompts() || j.Executor != nil {
		return j.Executor
	}
	if a := c.agentOf(j); a != nil {
		return a.Executor
	}
	return nil
}

// agentOf is the agent of a job, nil if there is none of that name.
func (c *Config) agentOf(j *Job) *Agent {
	return find(c.agentNamed, c.Agents, j.Agent, func(a *Agent) Name { return a.Name })
}

// Settings is a program as the runner starts it.
func (e *Executor) Settings() *executor.Settings {
	if e == nil {
		return nil
	}

	s := &executor.Settings{
		Argv: e.Argv, Prompt: slices.ContainsFunc(e.Argv, namesPrompt), JSON: e.Output == "json", Secret: e.secret,
		Home: string(e.Home), Network: e.Network == "host", Memory: int64(e.Memory), Public: !On(e.Private),
	}
	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		s.Env = append(s.Env, name+"="+e.Env[name])
	}
	for _, p := range e.Read {
		s.Read = append(s.Read, string(p))
	}
	for _, l := range e.Login {
		s.Login = append(s.Login, executor.Login{Path: string(l.Path), Write: l.Write})
	}
	if e.Price != nil {
		s.Price, _ = Model{Price: e.Price}.Rate()
		s.Free = s.Price.Free()
	}
	for _, l := range e.Limits {
		if match, err := regexp.Compile(l.Match); err == nil { // checked before
			s.Limits = append(s.Limits, executor.Limit{Match: match, Wait: time.Duration(l.Wait)})
		}
	}
	return s
}

// namesPrompt reports whether an argument holds the task.
func namesPrompt(word string) bool {
	_, rest, ok := strings.Cut(word, "{{")
	return ok && strings.Contains(rest, ".Prompt")
}

// homeOf fills in the HOME of a program.
func (e *Executor) homeOf(home Path, agent string) {
	if e != nil && e.Home == "" && agent != "" {
		e.Home = Path(filepath.Join(string(home), "agents", agent, "home"))
	}
}

// executors are all programs with the paths at which they stand, those of agents first.
func (c *Config) executors() (out []placedExecutor) {
	for i := range c.Agents { // without the paths of each, because it is called for each agent
		if a := &c.Agents[i]; a.Executor != nil {
			out = append(out, placedExecutor{a.Executor, itemOf("agents", i) + ".executor", string(a.Name)})
		}
	}
	for i := range c.Jobs {
		if j := &c.Jobs[i]; j.Executor != nil {
			out = append(out, placedExecutor{j.Executor, itemOf("jobs", i) + ".executor", j.Agent})
		}
	}
	return out
}

type placedExecutor struct {
	*Executor
	path, agent string
}

// writes are the places beside an agent's own that a program may change.
func (e *Executor) writes() []string {
	out := []string{string(e.Home)}
	for _, l := range e.Login {
		if l.Write {
			out = append(out, string(l.Path))
		}
	}
	return out
}

// ExecutorPlaces are the folders in which agent programs keep what is theirs, and make names.
func (c *Config) ExecutorPlaces() (out []string) {
	for _, e := range c.executors() {
		out = append(out, e.writes()...)
	}
	return out
}

// checkExecutors checks what each program is given, and what has no meaning beside it.
func (c *checker) checkExecutors() {
	for _, e := range c.cfg.executors() {
		c.executor(e)
		if a := c.cfg.agentNamed[e.agent]; a != nil {
			c.contradicts(e.path, "", a.Mode == plan.ModeNone, "is a program, and with mode: none its agent runs none")
		}
	}

	for path, a := range each("agents", c.cfg.Agents) {
		c.besideExecutor(path, a)
	}
	for path, j := range each("jobs", c.cfg.Jobs) {
		switch e := c.cfg.ExecutorOf(j); {
		case j.Executor != nil && !j.Prompts():
			c.bad(path+".executor", "goes with prompt: a playbook and a skill are done by rouse itself")
		case e != nil && j.At.Line > 0:
			c.jobBesideExecutor(path, j, e)
		}
	}
}

func (c *checker) executor(e placedExecutor) {
	if !c.d.given(e.path+".argv") || !c.hasNoProblem(e.path+".argv") {
		return
	}
	if len(e.Argv) == 0 || strings.TrimSpace(e.Argv[0]) == "" {
		c.bad(e.path+".argv", "must name a program").Hint = "as in argv: [claude, -p, --output-format, stream-json, --verbose]"
		return
	}
	if strings.Contains(e.Argv[0], "{{") {
		c.bad(e.path+".argv[0]", "the program is no template")
		return
	}

	c.fromFile(e.path+".argv", e.Argv, "")
	for at, word := range each(e.path+".argv", e.Argv) { // the program itself is no template, see above
		c.template(at, *word, agent.ExecutorNames())
	}
	located, err := executor.Locate(e.Argv[0])
	if err != nil {
		c.warn(e.path+".argv[0]", "%s; until then each run fails", err.Error())
	}
	for _, f := range e.Settings().Folders(located) {
		except := ""
		if f.Own {
			except = e.agent
		}
		c.ownersFolder(e.path+"."+f.Key, f.Path, except)
	}

	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		at, value := e.path+".env."+name, e.Env[name]
		e.secret = e.secret || slices.ContainsFunc(c.d.secrets, func(s string) bool { return strings.Contains(value, s) })
		switch {
		case !variableName.MatchString(name):
			c.bad(at, "%q is no name of a variable", name)
		case strings.ContainsRune(value, 0):
			c.bad(at, "holds a NUL, which no environment can")
		case name == "HOME":
			c.bad(at, "HOME is set by executor.home")
		}
	}
	if e.Network != "host" {
		c.warn(e.path, "the program has no network, so that it reaches no model but one within its own process").Hint = "if its model is elsewhere, write network: host"
	}
	for at, l := range each(e.path+".limits", e.Limits) {
		if l.Match == "" && c.d.given(at+".match") {
			c.bad(at+".match", "must not be empty: it would match every message")
		}
		if _, err := regexp.Compile(l.Match); err != nil {
			c.bad(at+".match", "is not a regular expression: %v", err).Hint = "write the words of the message, and a backslash before each of . ? * + ( ) [ ] { } | ^ $"
		}
	}
	for at, l := range each(e.path+".login", e.Login) {
		if l.Write {
			c.warn(at, "the program can leave settings in %s that your own sessions follow; sign in once for it alone, with HOME=%s", display(string(l.Path)), display(string(e.Home)))
		}
	}
}

// agentBesides are the keys of an agent that say something of its loop.
var agentBesides = []string{"model", "loop", "skills", "skill_access", "skill_style", "skill_allowed_tools", "tools", "self_scheduling", "grants.commands", "grants.network", "grants.secrets"}

// besideExecutor warns of what nobody uses: keys for the loop, of an agent in whose runs there is none.
func (c *checker) besideExecutor(path string, a *Agent) {
	if a.Executor == nil {
		return
	}
	if slices.ContainsFunc(c.jobsOf[string(a.Name)], func(i int) bool { return !c.cfg.Jobs[i].Prompts() }) {
		return // that work uses them
	}
	for _, key := range agentBesides {
		if at := path + "." + key; c.d.given(at) {
			c.warn(at, "has no effect on what the executor does, which has tools and a model of its own; it holds for manual calls, playbooks and skills of the agent alone")
		}
	}
}

// jobBesideExecutor says what of a job has no meaning for the program that does it.
func (c *checker) jobBesideExecutor(path string, j *Job, e *Executor) {
	if at := path + ".model"; c.d.given(at) {
		c.bad(at, "an executor does this job, and chooses its model by its own arguments (executor.argv)")
	}
	if at := path + ".record"; j.Record && c.d.given(at) {
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
	if w := j.Watch; w != nil && w.Mode != modeConverge {
		if a := c.agent(j); a != nil && slices.ContainsFunc(a.writes(), func(folder string) bool { return c.overlap(folder, string(w.Path)) }) {
			c.warn(path+".watch.path", "the executor can write in %s, and what it leaves there while it works may start further runs before it is known to be its own; watch a folder that it only reads, or use mode: converge", display(string(w.Path)))
		}
	}
}

// executorReach adds the lines of the programs of an agent that bring labels.
func (c *checker) executorReach(r *reach, a *Agent) {
	for _, e := range c.cfg.executors() {
		if e.agent != string(a.Name) || e.Network != "host" && a.Sandbox != "off" {
			continue
		}
		at := c.d.place(e.path)
		r.add(untrusted, "an executor with network", at)
		r.add(outward, "an executor with network", at)
	}
}

// executorPrivate adds the lines of the programs of an agent that open what is for its owner alone.
func (c *checker) executorPrivate(r *reach, a *Agent) {
	for _, e := range c.cfg.executors() {
		if e.agent != string(a.Name) || !On(e.Private) {
			continue
		}
		if e.secret {
			r.add(privateData, "executor.env (private: false beside it if it opens nothing private)", c.d.place(e.path+".env"))
		}
		if len(e.Login) > 0 {
			r.add(privateData, "executor.login (private: false beside it if it opens nothing private)", c.d.place(e.path+".login"))
		}
	}
}

// Locate finds the program on this machine. The error says what was looked for.
func (e *Executor) Locate() (executor.Located, error) { return executor.Locate(e.Argv[0]) }

// MissingLogins are the places by which a program is signed in that are not there.
func (e *Executor) MissingLogins() (out []string) {
	for _, l := range e.Login {
		if _, err := os.Stat(string(l.Path)); err != nil {
			out = append(out, string(l.Path))
		}
	}
	return out
}
