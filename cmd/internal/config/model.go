package config

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"rouse/agent/model"
	"rouse/agent/model/replay"
	"rouse/agent/redact"
)

// provider is what is known of a way to reach models.
type provider struct {
	name    string
	baseURL string // the default of base_url
	example string // of a base_url
	// The variables that other programs take a key, a model and an address from.
	key, model, address string
	preset              string // the model when no variable names one
	compatible          bool   // speaks OpenAI's chat completions API
}

// providers are in the order in which a key in the environment counts.
var providers = []provider{
	{"anthropic", "https://api.anthropic.com", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "ANTHROPIC_MODEL", "ANTHROPIC_BASE_URL", "claude-sonnet-5", false},
	{"openai", "https://api.openai.com/v1", "http://127.0.0.1:8080/v1", "OPENAI_API_KEY", "OPENAI_MODEL", "OPENAI_BASE_URL", "gpt-5-mini", true},
	{"gemini", "https://generativelanguage.googleapis.com", "https://generativelanguage.googleapis.com", "GEMINI_API_KEY", "GEMINI_MODEL", "GOOGLE_GEMINI_BASE_URL", "gemini-3.8-flash", false},
	{name: "ollama", baseURL: "http://127.0.0.1:11434", example: "http://127.0.0.1:11434"},
	compatible("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
	compatible("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
	compatible("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
	compatible("deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY"),
	compatible("together", "https://api.together.ai/v1", "TOGETHER_API_KEY"),
	compatible("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
	compatible("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
	compatible("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
}

// compatible returns the preset of a provider with an OpenAI-compatible API.
func compatible(name, baseURL, key string) provider {
	return provider{name: name, baseURL: baseURL, example: baseURL, key: key, compatible: true}
}

func providerOf(name string) (provider, bool) {
	for _, p := range providers {
		if p.name == name {
			return p, true
		}
	}
	return provider{example: "http://127.0.0.1:8080/v1"}, false
}

const (
	// loading is how long Ollama may be silent while it reads a model from the disk.
	loading = Duration(4 * time.Minute)
	// room is the context of Ollama, in tokens: its default does not hold an agent's instructions.
	room = 16_384
)

// keyOfEnvironment takes a missing key from the variable of the provider, for its own address alone.
func (d *decoder) keyOfEnvironment(path string, m *Model) {
	p, _ := providerOf(m.Provider)
	if p.key == "" || m.APIKey != "" || len(m.Headers) > 0 || d.given(path+".api_key") || d.given(path+".base_url") {
		return
	}
	if m.APIKey = d.Getenv(p.key); m.APIKey != "" {
		d.secret(d.place(path), path, m.APIKey)
	}
}

// fill gives a model the defaults of its provider.
func (m *Model) fill() {
	p, _ := providerOf(m.Provider)
	if m.BaseURL == "" {
		m.BaseURL = p.baseURL
	}

	if u, err := url.Parse(m.BaseURL); m.API == "" && p.compatible && err == nil {
		m.API = "chat"
		// All OpenAI-compatible servers know chat completions; the Responses API is OpenAI's own.
		if u.Hostname() == "api.openai.com" {
			m.API = "responses"
		}
	}

	if p.name != "ollama" {
		return
	}

	if m.Idle == 0 {
		m.Idle = loading
	}

	if m.ContextWindow == 0 {
		m.ContextWindow = room
	}
}

// modelOfEnvironment adds a model of the environment or of Ollama if none is configured.
func (d *decoder) modelOfEnvironment(cfg *Config) {
	if d.given("models") {
		return
	}

	for _, p := range providers {
		if p.preset == "" || d.Getenv(p.key) == "" { // no model to choose
			continue
		}

		m := Model{Name: Name(p.name), Provider: p.name, Model: d.Getenv(p.model), BaseURL: d.Getenv(p.address), APIKey: d.Getenv(p.key), At: Position{File: "$" + p.key}}
		if m.Model == "" {
			m.Model = p.preset
		}

		m.fill()
		// It was taken from the environment without the decoder, so nobody has registered it.
		d.secret(m.At, "", m.APIKey)
		d.urlSecret(m.At, "", m.BaseURL)
		cfg.Models = []Model{m}
		price := "whose price nobody knows"
		if rate, ok := m.Rate(); ok {
			price = fmt.Sprintf("for $%v (read) and $%v (written) per million tokens", rate.Input, rate.Output)
		}

		d.problem(d.place(""), "models", "none is configured, and %s is set: prompts go to %s at %s, %s", p.key, m.Model, redact.Masked(masked, d.secrets).Replace(m.BaseURL), price).Warning = true
		return
	}
	// Looking for Ollama is a request to this machine: not for a file that has no agents.
	if d.Ollama == nil || !d.given("agents") {
		return
	}

	if name, address, ok := d.Ollama(); ok {
		cfg.Models = []Model{{Name: "ollama", Provider: "ollama", Model: name, BaseURL: address, At: Position{File: "Ollama"}}}
		d.problem(d.place(""), "models", "none is configured, and Ollama runs here: prompts go to %s at %s, for nothing", name, address).Warning = true
	}
}

// replays is the provider that answers from a recording.
const replays = "replay"

// recording looks at the file that a model answers from.
func (c *checker) recording(path string, m *Model) {
	at := path + ".recording"
	switch {
	case m.Provider != replays:
		if c.d.given(at) {
			c.bad(at, "belongs to the provider replay")
		}
	case m.Recording == "":
		c.bad(path, "has no recording; name the file that it answers from, as rouse replay RUN --save FILE writes it")
	default:
		// Through Sources, so that a change of the recording reloads the configuration.
		_, err := c.cfg.Sources.read(string(m.Recording), func(file string) ([]byte, error) {
			text, err := os.ReadFile(file)
			if err == nil {
				_, err = replay.Parse(display(file), text)
			}
			return text, err
		})
		if err != nil {
			c.bad(at, "%s", err.Error())
		}
	}
}

// version is the end of an address that all but OpenAI's servers add by themselves.
var version = regexp.MustCompile(`/(v1|v1beta|api)/?$`)

func (c *checker) model(path string, m *Model) {
	p, known := providerOf(m.Provider)
	if at := path + ".base_url"; c.d.given(at) && m.BaseURL != "" {
		if u := c.address(at, m.BaseURL, p.example); u != nil && known && !p.compatible && version.MatchString(u.Path) {
			c.bad(at, "leave out %s: the provider %s adds what belongs there", version.FindString(u.Path), p.name)
		}
	} else if known && p.key != "" && m.APIKey == "" && !c.d.given(path+".api_key") && len(m.Headers) == 0 {
		c.warn(path, "has no api_key, and %s wants one; to take it from the environment, write api_key: ${%s}", m.BaseURL, p.key)
	}

	// No header can carry it, which would only show when the first run fails.
	if strings.ContainsFunc(strings.TrimSpace(m.APIKey), unicode.IsControl) {
		c.bad(path+".api_key", "holds a line break or another control character, which no key does").Hint = "set the secret again, in one line"
	}

	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		if strings.ContainsFunc(m.Headers[name], unicode.IsControl) {
			c.bad(path+".headers."+name, "holds a line break or another control character, which no header does").Hint = "set it again, in one line"
		}
	}

	if at := path + ".api"; c.d.given(at) && known && !p.compatible && m.API != "" {
		c.bad(at, "applies to the OpenAI API; %s has its own API", p.name)
	}

	c.recording(path, m)
	switch at := path + ".model"; {
	case m.Model != "" || m.Provider == replays:
	case !c.d.given(at):
		c.bad(path, "the key %q is missing", "model")
	case c.hasNoProblem(at):
		c.bad(at, "is empty; it is what the server calls the model")
	}
}

// fallbacks refuses unknown models and circles.
func (c *checker) fallbacks() {
	after := map[string]string{}
	for _, m := range c.cfg.Models {
		after[string(m.Name)] = m.Fallback
	}

	for path, m := range each("models", c.cfg.Models) {
		at := path + ".fallback"
		c.reference(at, "model", m.Fallback, c.models)
		way := []string{string(m.Name)}
		for next := m.Fallback; next != ""; next = after[next] {
			seen := slices.Contains(way, next)
			way = append(way, next)
			if next == string(m.Name) {
				c.bad(at, "goes in a circle: %s", strings.Join(way, " → "))
			}

			if seen { // a circle that starts at a later model is reported there
				break
			}
		}
	}
}

// fallbackChain are a model and those that it may take over from.
func (c *checker) fallbackChain(name string) []string {
	out := []string{name}
	for i := 0; i < len(out); i++ {
		for _, m := range c.cfg.Models {
			// The list grows while it is walked; the check for known names ends a circle.
			if m.Fallback == out[i] && !slices.Contains(out, string(m.Name)) {
				out = append(out, string(m.Name))
			}
		}
	}

	return out
}

// defaultCost is the daemon's limit of a day when a model has a price, in USD.
const defaultCost = 5

// Rate returns the configured or known price, zero for a local model. It reports false otherwise.
func (m Model) Rate() (model.Price, bool) {
	if p := m.Price; p != nil {
		// Without a price of its own cached input costs as much as input: too much rather than too little.
		rate := model.Price{Input: p.Input, Output: p.Output, Cached: p.Input}
		if p.CachedInput != nil {
			rate.Cached = *p.CachedInput
		}
		return rate, true
	}

	if m.Provider == "ollama" || m.Provider == replays || local(m.BaseURL) {
		return model.Price{}, true
	}

	known, ok := model.Lookup(m.Model)
	return known.Price, ok
}

// Window is how many tokens the model's context holds, 0 when nobody knows.
func (m Model) Window() int {
	if m.ContextWindow > 0 {
		return m.ContextWindow
	}
	known, _ := model.Lookup(m.Model)
	return known.Window
}

// local reports whether a server is on this machine.
func local(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// MicroUSD is money as it is counted.
func MicroUSD(usd float64) int64 {
	const most = 1 << 50 // a billion dollars: no limit at all
	if usd <= 0 {
		return 0
	}
	// At least 1: a tiny limit must not turn into 0, which means none.
	return max(int64(min(usd*1e6, most)), 1)
}

// limitCost gives a daemon that could spend money a limit.
func (c *Config) limitCost(d *decoder) {
	if c.Limits.CostUSDPerDay != 0 || d.given("limits.cost_usd_per_day") {
		return
	}
	for _, m := range c.Models {
		if rate, ok := m.Rate(); ok && !rate.Free() {
			c.Limits.CostUSDPerDay = defaultCost
		}
	}
	if len(c.executors()) > 0 { // whose own account pays
		c.Limits.CostUSDPerDay = defaultCost
	}
}

// money refuses a limit in money for a model whose price nobody knows.
func (c *checker) money() {
	for path, m := range each("models", c.cfg.Models) {
		if m.Name == "" || m.Provider == "" || m.Model == "" && m.Provider != replays {
			continue // which was refused
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

// limitOf describes the first limit in money for a model, or returns "" if there is none or no agent
// uses the model.
func (c *checker) limitOf(name string) string {
	used := false
	limit := func(path string, budget Budget, run float64) string {
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
	for path, a := range each("agents", c.cfg.Agents) {
		own := a.Model == name
		byJob := slices.ContainsFunc(c.jobsOf[string(a.Name)], func(i int) bool { return c.cfg.Jobs[i].Model == name && On(c.cfg.Jobs[i].Enabled) })
		if !On(a.Enabled) || !own && !byJob {
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

	for path, j := range each("jobs", c.cfg.Jobs) {
		agent := c.agent(j)
		if !On(j.Enabled) || j.Playbook != nil || agent == nil || !On(agent.Enabled) || cmp.Or(j.Model, agent.Model) != name {
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
	case key == "cost_usd_per_day" && !c.d.given("limits."+key):
		return fmt.Sprintf("limits.cost_usd_per_day is %v USD by default, since another model has a price", usd)
	}
	return fmt.Sprintf("limits.%s limits it to %v USD", key, usd)
}
