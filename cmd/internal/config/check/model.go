package check

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"rouse/agent/model/replay"
	"rouse/cmd/internal/config"
)

// modelChecks checks models, their fallbacks and budgets.
type modelChecks struct {
	report
	connections
	*lookup
	models []string // names of all models
}

// recording checks the recording that a model answers from.
func (c *modelChecks) recording(path string, m *config.Model) {
	at := path + ".recording"
	switch {
	case m.Provider != config.ReplayProvider:
		if c.d.Given(at) {
			c.bad(at, "belongs to the provider replay")
		}
	case m.Recording == "":
		c.bad(path, "has no recording; name the file that it answers from, as rouse replay RUN --save FILE writes it")
	default:
		// Read through Sources, so that a change of the recording reloads the configuration.
		_, err := c.cfg.Sources.Read(string(m.Recording), func(file string) ([]byte, error) {
			text, err := os.ReadFile(file)
			if err == nil {
				_, err = replay.Parse(config.Display(file), text)
			}
			return text, err
		})
		if err != nil {
			c.bad(at, "%s", err.Error())
		}
	}
}

// version matches the end of a URL that all providers except OpenAI add by themselves.
var version = regexp.MustCompile(`/(v1|v1beta|api)/?$`)

func (c *modelChecks) model(path string, m *config.Model) {
	p, known := config.ProviderOf(m.Provider)
	if at := path + ".base_url"; c.d.Given(at) && m.BaseURL != "" {
		if u := c.address(at, m.BaseURL, p.Example); u != nil && known && !p.Compatible && version.MatchString(u.Path) {
			c.bad(at, "leave out %s: the provider %s adds what belongs there", version.FindString(u.Path), p.Name)
		}
	} else if known && p.Key != "" && m.APIKey == "" && !c.d.Given(path+".api_key") && len(m.Headers) == 0 {
		c.warn(path, "has no api_key, and %s wants one; to take it from the environment, write api_key: ${%s}", m.BaseURL, p.Key)
	}

	// A header cannot contain control characters. Without this check, the first run would fail.
	if strings.ContainsFunc(strings.TrimSpace(m.APIKey), unicode.IsControl) {
		c.bad(path+".api_key", "holds a line break or another control character, which no key does").Hint = "set the secret again, in one line"
	}

	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		if strings.ContainsFunc(m.Headers[name], unicode.IsControl) {
			c.bad(path+".headers."+name, "holds a line break or another control character, which no header does").Hint = "set it again, in one line"
		}
	}

	if at := path + ".api"; c.d.Given(at) && known && !p.Compatible && m.API != "" {
		c.bad(at, "applies to the OpenAI API; %s has its own API", p.Name)
	}

	c.recording(path, m)
	switch at := path + ".model"; {
	case m.Model != "" || m.Provider == config.ReplayProvider:
	case !c.d.Given(at):
		c.bad(path, "the key %q is missing", "model")
	case c.hasNoProblem(at):
		c.bad(at, "is empty; it is what the server calls the model")
	}
}

// fallbacks refuses unknown models and cycles.
func (c *modelChecks) fallbacks() {
	after := map[string]string{}
	for _, m := range c.cfg.Models {
		after[string(m.Name)] = m.Fallback
	}

	for path, m := range config.Each("models", c.cfg.Models) {
		at := path + ".fallback"
		c.reference(at, "model", m.Fallback, c.models)
		way := []string{string(m.Name)}
		for next := m.Fallback; next != ""; next = after[next] {
			seen := slices.Contains(way, next)
			way = append(way, next)
			if next == string(m.Name) {
				c.bad(at, "goes in a circle: %s", strings.Join(way, " → "))
			}

			if seen { // a cycle that starts at a later model is reported there
				break
			}
		}
	}
}

// fallbackChain returns a model and the models that it can take over from.
func (c *modelChecks) fallbackChain(name string) []string {
	out := []string{name}
	for i := 0; i < len(out); i++ {
		for _, m := range c.cfg.Models {
			// The list grows during the loop. The check for known names ends a cycle.
			if m.Fallback == out[i] && !slices.Contains(out, string(m.Name)) {
				out = append(out, string(m.Name))
			}
		}
	}

	return out
}

// money refuses a cost limit for a model without a known price.
func (c *modelChecks) money() {
	for path, m := range config.Each("models", c.cfg.Models) {
		if m.Name == "" || m.Provider == "" || m.Model == "" && m.Provider != config.ReplayProvider {
			continue // this was reported
		}
		if _, ok := m.Rate(); ok {
			continue
		}
		for _, user := range c.fallbackChain(string(m.Name)) {
			if limit := c.limitOf(user); limit != "" {
				c.bad(path, "nobody knows what the model %q costs, and %s", m.Model, limit).Hint =
					"add what its provider takes in USD per million tokens, like price: {input: 1.25, output: 10, cached_input: 0.125}, or all 0 when it is free"
				break
			}
		}
	}
}

// limitOf describes the first cost limit that applies to a model. It returns "" if costs are not
// limited or the model is not used.
func (c *modelChecks) limitOf(name string) string {
	used := false
	limit := func(path string, budget config.Budget, run float64) string {
		key, usd := budget.CostKey()
		if key == "" && run > 0 {
			key, usd = "bounds.cost_usd", run
		} else if key != "" {
			key = "budget." + key
		}
		if key == "" {
			return ""
		}
		return fmt.Sprintf("%s.%s limits it to %v USD", path, key, usd)
	}
	for path, a := range config.Each("agents", c.cfg.Agents) {
		own := a.Model == name
		byJob := slices.ContainsFunc(c.jobsOf[string(a.Name)], func(i int) bool { return c.cfg.Jobs[i].Model == name && config.On(c.cfg.Jobs[i].Enabled) })
		if !config.On(a.Enabled) || !own && !byJob {
			continue
		}
		used = true
		run := a.Bounds.CostUSD
		if !own {
			run = 0
		}
		if said := limit(path, a.Budget, run); said != "" {
			return said
		}
	}

	for path, j := range config.Each("jobs", c.cfg.Jobs) {
		agent := c.agent(j)
		if !config.On(j.Enabled) || j.Playbook != nil || agent == nil || !config.On(agent.Enabled) || cmp.Or(j.Model, agent.Model) != name {
			continue
		}
		if said := limit(path, j.Budget, j.Bounds.CostUSD); said != "" {
			return said
		}
	}

	key, usd := c.cfg.Limits.Budget().CostKey()
	switch {
	case !used || key == "":
		return ""
	case key == "cost_usd_per_day" && !c.d.Given("limits."+key):
		return fmt.Sprintf("limits.cost_usd_per_day is %v USD by default, since another model has a price", usd)
	}
	return fmt.Sprintf("limits.%s limits it to %v USD", key, usd)
}
