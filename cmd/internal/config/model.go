package config

import (
	"net"
	"net/url"
	"strings"
	"time"

	"rouse/agent/model"
)

// provider holds the known properties of a model provider.
type provider struct {
	Name    string
	baseURL string // the default of base_url
	Example string // of a base_url
	// Environment variables of other programs for the key, the model and the address.
	Key, Model, Address string
	Preset              string // model used if no variable names one
	Compatible          bool   // has an API compatible with OpenAI's chat completions
}

// Providers lists the known providers. If several keys are set in the environment, the first wins.
var Providers = []provider{
	{"anthropic", "https://api.anthropic.com", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "ANTHROPIC_MODEL", "ANTHROPIC_BASE_URL", "claude-sonnet-5", false},
	{"openai", "https://api.openai.com/v1", "http://127.0.0.1:8080/v1", "OPENAI_API_KEY", "OPENAI_MODEL", "OPENAI_BASE_URL", "gpt-5-mini", true},
	{"gemini", "https://generativelanguage.googleapis.com", "https://generativelanguage.googleapis.com", "GEMINI_API_KEY", "GEMINI_MODEL", "GOOGLE_GEMINI_BASE_URL", "gemini-3.8-flash", false},
	{Name: "ollama", baseURL: "http://127.0.0.1:11434", Example: "http://127.0.0.1:11434"},
	compatible("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
	compatible("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
	compatible("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
	compatible("deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY"),
	compatible("together", "https://api.together.ai/v1", "TOGETHER_API_KEY"),
	compatible("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
	compatible("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
	compatible("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
}

// compatible returns a provider with an API compatible with OpenAI's.
func compatible(name, baseURL, key string) provider {
	return provider{Name: name, baseURL: baseURL, Example: baseURL, Key: key, Compatible: true}
}

// ProviderOf returns the provider with a name and whether it is known.
func ProviderOf(name string) (provider, bool) {
	for _, p := range Providers {
		if p.Name == name {
			return p, true
		}
	}
	return provider{Example: "http://127.0.0.1:8080/v1"}, false
}

const (
	// loading is the idle timeout for Ollama, which is silent while it reads a model from disk.
	loading = Duration(4 * time.Minute)
	// room is the context window for Ollama, in tokens. Ollama's own default is too small for the
	// instructions of an agent.
	room = 16_384
)

// Fill sets the defaults of the model's provider.
func (m *Model) Fill() {
	p, _ := ProviderOf(m.Provider)
	if m.BaseURL == "" {
		m.BaseURL = p.baseURL
	}

	if u, err := url.Parse(m.BaseURL); m.API == "" && p.Compatible && err == nil {
		m.API = "chat"
		// All compatible servers have chat completions; only OpenAI has the Responses API.
		if u.Hostname() == "api.openai.com" {
			m.API = "responses"
		}
	}

	if p.Name != "ollama" {
		return
	}

	if m.Idle == 0 {
		m.Idle = loading
	}

	if m.ContextWindow == 0 {
		m.ContextWindow = room
	}
}

// ReplayProvider is the name of the provider that answers from a recording.
const ReplayProvider = "replay"

// Rate returns the configured or known price, or false if it is unknown. Local models cost zero.
func (m Model) Rate() (model.Price, bool) {
	if p := m.Price; p != nil {
		// Cached input without its own price costs as much as input, so that costs are not
		// underestimated.
		rate := model.Price{Input: p.Input, Output: p.Output, Cached: p.Input}
		if p.CachedInput != nil {
			rate.Cached = *p.CachedInput
		}
		return rate, true
	}

	if m.Provider == "ollama" || m.Provider == ReplayProvider || local(m.BaseURL) {
		return model.Price{}, true
	}

	known, ok := model.Lookup(m.Model)
	return known.Price, ok
}

// Window returns the size of the model's context in tokens, or 0 if it is unknown.
func (m Model) Window() int {
	if m.ContextWindow > 0 {
		return m.ContextWindow
	}
	known, _ := model.Lookup(m.Model)
	return known.Window
}

// local reports whether a URL is on this machine.
func local(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// MicroUSD converts US dollars to the unit of cost accounting, millionths of a dollar.
func MicroUSD(usd float64) int64 {
	const most = 1 << 50 // a billion dollars, in effect no limit
	if usd <= 0 {
		return 0
	}
	// At least 1, because 0 means no limit.
	return max(int64(min(usd*1e6, most)), 1)
}
