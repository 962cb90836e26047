package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/viper"

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
	// Ollama finds a local model. It is called if no model and no key is configured. Optional.
	Ollama func() (model, address string, ok bool)
	// Secret finds what secret:NAME stands for; nil: nothing is set.
	Secret func(name string) (value string, set bool, err error)
	// HoldSecrets lets a missing secret hold only the jobs that need it (Config.Held), with a warning.
	HoldSecrets bool
	// Unchecked leaves out what only the whole can show, for who wants to know no more than names.
	Unchecked bool
}

var jobType = reflect.TypeFor[Job]()

// Load reads and checks a configuration. It returns all problems as *Errors, with what it could read.
func Load(o LoadOptions) (*Config, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}

	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("the configuration %s: %w", o.Path, err)
	}

	cfg, d := &Config{}, newDecoder(o.Getenv)
	d.LoadOptions = o
	root, err := d.read(path, cfg)
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
	cfg.secrets, cfg.refs, cfg.unset, cfg.held = d.sorted(), d.references(), d.unset, d.held

	return cfg, d.verdict(cfg)
}

// read fills the settings from a file and what it includes. The tree is nil after problems that leave none.
func (d *decoder) read(path string, cfg *Config) (*node, error) {
	from := readMain
	if d.Text != nil {
		from = func(string) ([]byte, error) { return d.Text, nil }
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

	// In this order: defaults apply to included jobs, and flags and the environment win over the file.
	d.include(root, root, []string{path}, cfg)
	d.overlayScalars(root)
	applyDefaults(d, root)
	d.value(root, "", reflect.ValueOf(cfg).Elem(), field{})
	d.complete(cfg)
	return root, nil
}

// complete fills in what was left out.
func (d *decoder) complete(cfg *Config) {
	if cfg.Home == "" {
		home, err := DefaultHome(d.Getenv)
		if err != nil {
			d.problem(d.place(""), "home", "%s", err.Error())
		}
		cfg.Home = Path(home)
	}

	if len(cfg.Models) == 0 {
		d.modelOfEnvironment(cfg)
	}

	for path, m := range each("models", cfg.Models) {
		d.keyOfEnvironment(path, m)
		m.fill()
	}

	for i := range cfg.MCP {
		d.preset(reflect.ValueOf(&cfg.MCP[i]))
	}

	bounds, limitsSteps := map[string]Bounds{}, map[string]bool{} // of agents
	for path, a := range each("agents", cfg.Agents) {
		if a.Name != "" {
			a.settle(Path(filepath.Join(string(cfg.Home), "agents", string(a.Name), "work")))
		}

		if a.Model == "" && len(cfg.Models) > 0 {
			a.Model = string(cfg.Models[0].Name)
		}

		d.fold(&a.Instructions, &a.InstructionsFile, &a.TextFile, path+".instructions_file", cfg)
		d.fold(&a.Soul, &a.SoulFile, &a.SoulText, path+".soul_file", cfg)
		d.preset(reflect.ValueOf(a))
		a.SelfScheduling.fill()
		a.Executor.homeOf(cfg.Home, string(a.Name))
		a.DefaultSteps = !d.given(path + ".bounds.steps")
		bounds[string(a.Name)], limitsSteps[string(a.Name)] = a.Bounds, !a.DefaultSteps
	}

	for path, j := range each("jobs", cfg.Jobs) {
		// Before the presets of the job: what it leaves out is the agent's, and the agent's are complete.
		inherit(reflect.ValueOf(&j.Bounds).Elem(), reflect.ValueOf(bounds[j.Agent]))
		if !j.Prompts() && !limitsSteps[j.Agent] && !d.given(path+".bounds.steps") {
			j.Bounds.Steps = j.Bounds.Calls // each call is a step, and the default is for models
		}
		j.Executor.homeOf(cfg.Home, j.Agent)
		d.fold(&j.Prompt, &j.PromptFile, &j.TextFile, path+".prompt_file", cfg)
	}

	d.preset(reflect.ValueOf(cfg))
	cfg.machine, _ = schedule.MachineZone()
	cfg.limitCost(d)

	for path, j := range each("jobs", cfg.Jobs) {
		if j.Watch != nil {
			// Last, since it depends on the mode, a preset, and on bounds, which may be inherited.
			j.Watch.fill(j, d.given(path+".watch.mode"))
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

// fold reads a file that holds a setting: a change of the file is a change of the configuration.
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

// overlayScalars overrides the daemon's scalars by flags and then by the environment.
func (d *decoder) overlayScalars(root *node) {
	v, keys := viper.New(), scalarKeys(reflect.TypeFor[Config](), "")
	for _, key := range keys {
		if value := d.Getenv(environmentName(key)); value != "" {
			v.SetDefault(key, value)
		}
	}
	if d.Home != "" {
		v.Set("home", d.Home)
	}

	for _, key := range keys {
		if !v.IsSet(key) {
			continue
		}

		text, at := v.GetString(key), Position{File: "$" + environmentName(key)}
		if key == "home" {
			if d.Home != "" {
				at.File = "--home"
			}
			if abs, err := filepath.Abs(text); err == nil { // the working folder is what a shell's paths are relative to
				text = abs
			}
		}

		// Escaped, since the decoder expands it: a value of the environment is not a template.
		put(root, strings.Split(key, "."), word(escape(text), at))
	}
}

// environmentName is the variable that may set a key.
func environmentName(key string) string {
	return "ROUSE_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

func scalarKeys(t reflect.Type, path string) []string {
	var out []string
	for _, f := range fieldsOf(t) {
		inner := t.Field(f.index).Type
		switch {
		case f.env:
			out = append(out, join(path, f.key))
		case inner.Kind() == reflect.Struct:
			out = append(out, scalarKeys(inner, join(path, f.key))...)
		}
	}

	return out
}

// put sets a value in a tree, making the mappings on the way.
func put(n *node, path []string, value *node) {
	if n.kind != mapping {
		return // which the decoder refuses
	}

	e := n.entry(path[0])
	if e == nil {
		n.entries = append(n.entries, entry{path[0], value.at, &node{kind: mapping, at: value.at}})
		e = &n.entries[len(n.entries)-1]
	}

	if len(path) == 1 {
		e.value = value
		return
	}

	put(e.value, path[1:], value)
}
