package yaml

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"rouse/agent/redact"
	"rouse/cmd/internal/config"
	"rouse/scheduler/schedule"
)

// complete sets the defaults that depend on other settings or on the environment.
func (d *decoder) complete(cfg *config.Config) {
	if cfg.Home == "" {
		home, err := config.DefaultHome(d.Getenv)
		if err != nil {
			d.Problem(d.Place(""), "home", "%s", err.Error())
		}
		cfg.Home = config.Path(home)
	}

	if len(cfg.Models) == 0 {
		d.modelOfEnvironment(cfg)
	}

	for path, m := range config.Each("models", cfg.Models) {
		d.keyOfEnvironment(path, m)
		m.Fill()
	}

	for i := range cfg.MCP {
		d.preset(reflect.ValueOf(&cfg.MCP[i]))
	}

	bounds, limitsSteps := map[string]config.Bounds{}, map[string]bool{} // by agent
	for path, a := range config.Each("agents", cfg.Agents) {
		if a.Name != "" {
			a.Settle(config.Path(filepath.Join(string(cfg.Home), "agents", string(a.Name), "work")))
		}

		if a.Model == "" && len(cfg.Models) > 0 {
			a.Model = string(cfg.Models[0].Name)
		}

		d.fold(&a.Instructions, &a.InstructionsFile, &a.TextFile, path+".instructions_file", cfg)
		d.fold(&a.Soul, &a.SoulFile, &a.SoulText, path+".soul_file", cfg)
		d.preset(reflect.ValueOf(a))
		a.SelfScheduling.Fill()
		a.Executor.HomeOf(cfg.Home, string(a.Name))
		a.DefaultSteps = !d.Given(path + ".bounds.steps")
		bounds[string(a.Name)], limitsSteps[string(a.Name)] = a.Bounds, !a.DefaultSteps
	}

	for path, j := range config.Each("jobs", cfg.Jobs) {
		// Jobs inherit the completed bounds of their agent, before their own defaults.
		inherit(reflect.ValueOf(&j.Bounds).Elem(), reflect.ValueOf(bounds[j.Agent]))
		if !j.Prompts() && !limitsSteps[j.Agent] && !d.Given(path+".bounds.steps") {
			j.Bounds.Steps = j.Bounds.Calls // each call is a step, and the default of steps is for models
		}
		j.Executor.HomeOf(cfg.Home, j.Agent)
		d.fold(&j.Prompt, &j.PromptFile, &j.TextFile, path+".prompt_file", cfg)
	}

	d.preset(reflect.ValueOf(cfg))
	zone, _ := schedule.MachineZone()
	cfg.SetMachineZone(zone)
	d.limitCost(cfg)

	for path, j := range config.Each("jobs", cfg.Jobs) {
		if j.Watch != nil {
			// Last, because it depends on mode, which has a default, and on bounds, which may be
			// inherited.
			j.Watch.Fill(j, d.Given(path+".watch.mode"))
		}
	}
}

// inherit copies fields that are not set.
func inherit(into, from reflect.Value) {
	for i := range into.NumField() {
		if into.Field(i).IsZero() {
			into.Field(i).Set(from.Field(i))
		}
	}
}

// fold reads a file that contains a setting. A change of the file changes the configuration.
func (d *decoder) fold(into *string, file *config.Path, from *string, path string, cfg *config.Config) {
	if *file == "" || *into != "" {
		return
	}

	d.Origins = append(d.Origins, Origin{What: "the text of " + path[strings.LastIndex(path, ".")+1:], Path: string(*file), At: d.Place(path)})
	text, err := cfg.Sources.Read(string(*file), config.ReadPlain)
	if err != nil {
		d.Problem(d.Place(path), path, "%s", err.Error())
		return
	}

	if *into = string(text); strings.TrimSpace(*into) == "" {
		d.Problem(d.Place(path), path, "%s is empty", config.Display(string(*file)))
	}

	if !slices.Contains(cfg.Files, string(*file)) {
		cfg.Files, cfg.Texts = append(cfg.Files, string(*file)), append(cfg.Texts, string(*file))
	}

	// From here on the text counts as written in place, by the writers of the file.
	*from, *file = string(*file), ""
}

// keyOfEnvironment sets a missing API key from the provider's variable, only for its default URL.
func (d *decoder) keyOfEnvironment(path string, m *config.Model) {
	p, _ := config.ProviderOf(m.Provider)
	if p.Key == "" || m.APIKey != "" || len(m.Headers) > 0 || d.Given(path+".api_key") || d.Given(path+".base_url") {
		return
	}
	if m.APIKey = d.Getenv(p.Key); m.APIKey != "" {
		d.secret(d.Place(path), path, m.APIKey)
	}
}

// modelOfEnvironment adds a model of the environment or of Ollama if no model is configured.
func (d *decoder) modelOfEnvironment(cfg *config.Config) {
	if d.Given("models") {
		return
	}

	for _, p := range config.Providers {
		if p.Preset == "" || d.Getenv(p.Key) == "" { // the provider has no preset model or no key
			continue
		}

		m := config.Model{Name: config.Name(p.Name), Provider: p.Name, Model: d.Getenv(p.Model), BaseURL: d.Getenv(p.Address), APIKey: d.Getenv(p.Key), At: config.Position{File: "$" + p.Key}}
		if m.Model == "" {
			m.Model = p.Preset
		}

		m.Fill()
		// The decoder did not read the model, so register its secrets here.
		d.secret(m.At, "", m.APIKey)
		d.urlSecret(m.At, "", m.BaseURL)
		cfg.Models = []config.Model{m}
		price := "whose price nobody knows"
		if rate, ok := m.Rate(); ok {
			price = fmt.Sprintf("for $%v (read) and $%v (written) per million tokens", rate.Input, rate.Output)
		}

		d.Problem(d.Place(""), "models", "none is configured, and %s is set: prompts go to %s at %s, %s", p.Key, m.Model, redact.Masked(masked, d.secrets).Replace(m.BaseURL), price).Warning = true
		return
	}
	// Looking for Ollama sends a request to this machine. Skip it for files without agents.
	if d.Ollama == nil || !d.Given("agents") {
		return
	}

	if name, address, ok := d.Ollama(); ok {
		cfg.Models = []config.Model{{Name: "ollama", Provider: "ollama", Model: name, BaseURL: address, At: config.Position{File: "Ollama"}}}
		d.Problem(d.Place(""), "models", "none is configured, and Ollama runs here: prompts go to %s at %s, for nothing", name, address).Warning = true
	}
}

// defaultCost is the daily cost limit in US dollars if a model has a price.
const defaultCost = 5

// limitCost sets a daily cost limit if runs can cost money and no limit is configured.
func (d *decoder) limitCost(c *config.Config) {
	if c.Limits.CostUSDPerDay != 0 || d.Given("limits.cost_usd_per_day") {
		return
	}
	for _, m := range c.Models {
		if rate, ok := m.Rate(); ok && !rate.Free() {
			c.Limits.CostUSDPerDay = defaultCost
		}
	}
	if len(config.Executors(c)) > 0 { // runs cost money on the executor's own account
		c.Limits.CostUSDPerDay = defaultCost
	}
}
