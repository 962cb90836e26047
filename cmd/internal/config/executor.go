package config

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"rouse/agent/tool/executor"
)

// Executor is an installed agent program that runs prompts instead of the built-in loop.
type Executor struct {
	Argv    []string          `key:"argv" required:"yes" doc:"the program by its name or its path, and its arguments, which are templates; with {{ .Prompt }} in one of them the task is told there, otherwise it is the program's input" example:"[claude, -p, --output-format, stream-json]"`
	Output  string            `key:"output" enum:"json|text" default:"json" doc:"what it prints: JSON as claude, codex and gemini print it, or the documented form; or text, which is its answer"`
	Network string            `key:"network" enum:"none|host" default:"none" doc:"host lets it reach its model, and everything else"`
	Env     map[string]string `key:"env" doc:"variables of its environment; secret:NAME and ${NAME} stand for secrets" example:"{ANTHROPIC_API_KEY: secret:anthropic}"`
	Private *bool             `key:"private" default:"true" doc:"false: what env and login open is not private data, as with the key of a model's API, so that its use does not make a run ask"`
	Login   []LoginGrant      `key:"login" doc:"files and folders by which it is signed in, which it finds in its HOME under the names that they have in yours: paths, or {path: X, write: true}"`
	Home    Path              `key:"home" doc:"the folder that it has as HOME, and keeps" defaultdoc:"HOME/agents/NAME/home" example:"./homes/claude"`
	Read    []Path            `key:"read" doc:"what else it has to read to work, as the folder that it was installed to" example:"[/opt/claude]"`
	Memory  Size              `key:"memory" positive:"yes" doc:"of it and all that it starts" defaultdoc:"2GiB"`
	Price   *Price            `key:"price" doc:"price in USD per million tokens of a program that does not report its cost; {input: 0, output: 0} for one that costs nothing per run, such as a subscription"`

	Limits []sentence `key:"limits" doc:"messages of the program that mean that its model cannot be asked now, beside those that rouse knows: the run waits instead of failing"`

	At Position
	// HasSecret reports whether the environment contains a secret.
	HasSecret bool `json:"-"`
}

// sentence is a message by which a program reports that its model is unavailable.
type sentence struct {
	Match string   `key:"match" required:"yes" doc:"regular expression for the error message" example:"quota of the team is used up"`
	Wait  Duration `key:"wait" positive:"yes" doc:"time until the run starts again" defaultdoc:"until the time in the message, else as for a model that is down" example:"1h"`
}

// LoginGrant is an entry of login: a path, or a mapping with a path and options.
type LoginGrant struct {
	Path  Path `key:"path" required:"yes" doc:"the file or folder" example:"~/.claude.json"`
	Write bool `key:"write" doc:"it may change what is there, as for tokens that it renews; a program that strangers could talk into it can leave settings there that your own sessions follow"`
}

// ExecutorOf returns the program that runs a job, or nil if the built-in loop runs it.
func (c *Config) ExecutorOf(j *Job) *Executor {
	if !j.Prompts() || j.Executor != nil {
		return j.Executor
	}
	if a := c.Agent(j.Agent); a != nil {
		return a.Executor
	}
	return nil
}

// Settings converts the executor to the settings of the runner. It returns nil for nil.
func (e *Executor) Settings() *executor.Settings {
	if e == nil {
		return nil
	}

	s := &executor.Settings{
		Argv: e.Argv, Prompt: slices.ContainsFunc(e.Argv, namesPrompt), JSON: e.Output == "json", Secret: e.HasSecret,
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
		if match, err := regexp.Compile(l.Match); err == nil { // the check has refused invalid expressions
			s.Limits = append(s.Limits, executor.Limit{Match: match, Wait: time.Duration(l.Wait)})
		}
	}
	return s
}

// namesPrompt reports whether an argument contains the template of the prompt.
func namesPrompt(word string) bool {
	_, rest, ok := strings.Cut(word, "{{")
	return ok && strings.Contains(rest, ".Prompt")
}

// HomeOf sets the program's HOME to its default if HOME is not configured.
func (e *Executor) HomeOf(home Path, agent string) {
	if e != nil && e.Home == "" && agent != "" {
		e.Home = Path(filepath.Join(string(home), "agents", agent, "home"))
	}
}

// Executors returns all programs with their paths in the configuration, those of agents first.
func Executors(c *Config) (out []PlacedExecutor) {
	for i := range c.Agents { // not config.Each: this runs once per agent, and building all paths is slow
		if a := &c.Agents[i]; a.Executor != nil {
			out = append(out, PlacedExecutor{a.Executor, ItemOf("agents", i) + ".executor", string(a.Name)})
		}
	}
	for i := range c.Jobs {
		if j := &c.Jobs[i]; j.Executor != nil {
			out = append(out, PlacedExecutor{j.Executor, ItemOf("jobs", i) + ".executor", j.Agent})
		}
	}
	return out
}

// PlacedExecutor is a program with its path in the configuration and the name of its agent.
type PlacedExecutor struct {
	*Executor
	Path, Agent string
}

// Writes returns the paths outside the agent's folders that the program may change.
func (e *Executor) Writes() []string {
	out := []string{string(e.Home)}
	for _, l := range e.Login {
		if l.Write {
			out = append(out, string(l.Path))
		}
	}
	return out
}

// ExecutorPlaces returns the paths in which agent programs keep their own files.
func ExecutorPlaces(c *Config) (out []string) {
	for _, e := range Executors(c) {
		out = append(out, e.Writes()...)
	}
	return out
}

// Locate finds the program on this machine. If it fails, the error lists the places searched.
func (e *Executor) Locate() (executor.Located, error) { return executor.Locate(e.Argv[0]) }

// MissingLogins returns the configured login paths that do not exist.
func (e *Executor) MissingLogins() (out []string) {
	for _, l := range e.Login {
		if _, err := os.Stat(string(l.Path)); err != nil {
			out = append(out, string(l.Path))
		}
	}
	return out
}
