package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/scheduler/schedule"
)

// LoadOptions say what to read.
type LoadOptions struct {
	Path   string
	Text   []byte              // what to read in place of the file at Path, as if it were there; nil: the file
	Home   string              // of a flag; "" leaves it to the environment and the file
	Getenv func(string) string // nil means os.Getenv
	Tools  tool.Specs          // that exist; nil leaves unchecked what is said of tools
	// Ollama finds a model on this machine and its address; it is asked when no model is
	// configured and the environment has no key. nil: nobody looks.
	Ollama func() (model, address string, ok bool)
	// Secret finds what secret:NAME stands for; nil: nothing is set.
	Secret func(name string) (value string, set bool, err error)
	// HoldSecrets has a secret that cannot be had hold the jobs that need it (Config.Held), with a warning, in place of refusing all of
	// the configuration.
	HoldSecrets bool
	// Unchecked leaves out what only the whole can show, for who wants to know no more than names.
	Unchecked bool
}

var jobType = reflect.TypeFor[Job]()

// Load reads and checks a configuration. Problems come back as *Errors, all of them;
// what could be read is returned beside it.
func Load(o LoadOptions) (*Config, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}

	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("the configuration %s: %w", o.Path, err)
	}

	cfg, d := &Config{}, newDecoder(o.Getenv)
	d.store, d.ollama, d.holdSecrets = o.Secret, o.Ollama, o.HoldSecrets
	root, err := d.read(path, o, cfg)
	if err != nil {
		return cfg, err
	}
	if root == nil {
		return cfg, d.verdict(cfg)
	}

	if o.Unchecked {
		return cfg, d.verdict(cfg)
	}

	check(d, cfg, o.Tools)
	// Compare and Show would list them besides what they led to.
	cfg.Include, cfg.Defaults = nil, nil // they have taken effect
	cfg.secrets, cfg.refs, cfg.unset, cfg.held = d.sorted(), d.references(cfg), d.unset, d.held

	return cfg, d.verdict(cfg)
}

// read fills the settings from a file and what it includes. The tree is nil after problems that leave none.
func (d *decoder) read(path string, o LoadOptions, cfg *Config) (*node, error) {
	from := readMain
	if o.Text != nil {
		from = func(string) ([]byte, error) { return o.Text, nil }
	}
	text, err := cfg.Sources.read(path, from)
	if err != nil {
		return nil, err
	}

	cfg.Files = []string{path}
	d.trusted = append(d.trusted, trusted{what: "the configuration", path: path})
	root := d.parse(path, text)
	if root == nil {
		return nil, nil
	}
	d.root = root

	// The order matters: defaults apply to included jobs too, and flags and the environment win over
	// what a file says.
	d.include(root, root, []string{path}, cfg)
	d.overlayScalars(root, o)
	applyDefaults(d, root)
	d.value(root, "", reflect.ValueOf(cfg).Elem(), field{})
	d.complete(cfg)
	return root, nil
}

// complete fills in what was left out.
func (d *decoder) complete(cfg *Config) {
	if cfg.Home == "" {
		home, err := DefaultHome(d.getenv)
		if err != nil {
			d.problem(d.place(""), "home", "%s", err.Error())
		}
		cfg.Home = Path(home)
	}

	if len(cfg.Models) == 0 {
		d.modelOfEnvironment(cfg)
	}

	for i := range cfg.Models {
		d.keyOfEnvironment(fmt.Sprintf("models[%d]", i), &cfg.Models[i])
		cfg.Models[i].fill()
	}

	for i := range cfg.MCP {
		d.preset(reflect.ValueOf(&cfg.MCP[i]))
	}

	bounds, limitsSteps := map[string]Bounds{}, map[string]bool{} // of agents
	for i := range cfg.Agents {
		a := &cfg.Agents[i]
		if a.Name != "" {
			a.settle(Path(filepath.Join(string(cfg.Home), "agents", string(a.Name), "work")))
		}

		if a.Model == "" && len(cfg.Models) > 0 {
			a.Model = string(cfg.Models[0].Name)
		}

		d.fold(&a.Instructions, &a.InstructionsFile, &a.TextFile, fmt.Sprintf("agents[%d].instructions_file", i), cfg)
		d.fold(&a.Soul, &a.SoulFile, &a.SoulText, fmt.Sprintf("agents[%d].soul_file", i), cfg)
		d.preset(reflect.ValueOf(a))
		a.SelfScheduling.fill()
		a.Executor.homeOf(cfg.Home, string(a.Name))
		a.DefaultSteps = !d.given(fmt.Sprintf("agents[%d].bounds.steps", i))
		bounds[string(a.Name)], limitsSteps[string(a.Name)] = a.Bounds, !a.DefaultSteps
	}

	for i := range cfg.Jobs {
		j := &cfg.Jobs[i]
		// Before the presets of the job: what it leaves out is the agent's, and the agent's are complete.
		inherit(reflect.ValueOf(&j.Bounds).Elem(), reflect.ValueOf(bounds[j.Agent]))
		if !j.Prompts() && !limitsSteps[j.Agent] && !d.given(fmt.Sprintf("jobs[%d].bounds.steps", i)) {
			j.Bounds.Steps = j.Bounds.Calls // each call is a step, and the default is for models
		}
		j.Executor.homeOf(cfg.Home, j.Agent)
		d.fold(&j.Prompt, &j.PromptFile, &j.TextFile, fmt.Sprintf("jobs[%d].prompt_file", i), cfg)
	}

	d.preset(reflect.ValueOf(cfg))
	cfg.machine, _ = schedule.MachineZone()
	cfg.limitCost(d)

	for i := range cfg.Jobs {
		if j := &cfg.Jobs[i]; j.Watch != nil {
			// Last, since it depends on the mode, a preset, and on bounds, which may be inherited.
			j.Watch.fill(j, d.given(fmt.Sprintf("jobs[%d].watch.mode", i)))
		}
	}
}

// inherit copies what is not set.
func inherit(into, from reflect.Value) {
	for i := range into.NumField() {
		if into.Field(i).IsZero() {
			into.Field(i).Set(from.Field(i))
		}
	}
}

// fold reads a file that holds a setting, so that the configuration holds all that it
// means and a change of the file is a change of the configuration.
func (d *decoder) fold(into *string, file *Path, from *string, path string, cfg *Config) {
	if *file == "" || *into != "" {
		return
	}

	d.trusted = append(d.trusted, trusted{what: "the text of " + path[strings.LastIndex(path, ".")+1:], path: string(*file), at: d.place(path)})
	text, err := cfg.Sources.read(string(*file), readPlain)
	if err != nil {
		d.problem(d.place(path), path, "%s", err.Error())
		return
	}

	if *into = string(text); strings.TrimSpace(*into) == "" {
		d.problem(d.place(path), path, "%s is empty", display(string(*file)))
	}

	if !slices.Contains(cfg.Files, string(*file)) {
		cfg.Files, cfg.texts = append(cfg.Files, string(*file)), append(cfg.texts, string(*file))
	}

	// Now it is as if the text had been written in place, by whoever can write the file.
	*from, *file = string(*file), ""
}
