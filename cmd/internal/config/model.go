package config

import (
	"net"
	"net/url"
	"strings"
	"time"

	"rouse/agent/model"
)

// provider is what is known of a way to reach models.
type provider struct {
	Name    string
	baseURL string // the default of base_url
	Example string // of a base_url
	// The variables that other programs take a key, a model and an address from.
	Key, Model, Address string
	Preset              string // the model when no variable names one
	Compatible          bool   // speaks OpenAI's chat completions API
}

// Providers are in the order in which a key in the environment counts.
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

// compatible returns the preset of a provider with an OpenAI-compatible API.
func compatible(name, baseURL, key string) provider {
	return provider{Name: name, baseURL: baseURL, Example: baseURL, Key: key, Compatible: true}
}

func ProviderOf(name string) (provider, bool) {
	for _, p := range Providers {
		if p.Name == name {
			return p, true
		}
	}
	return provider{Example: "http://127.0.0.1:8080/v1"}, false
}

const (
	// loading is how long Ollama may be silent while it reads a model from the disk.
	loading = Duration(4 * time.Minute)
	// room is the context of Ollama, in tokens: its default does not hold an agent's instructions.
	room = 16_384
)

// Fill gives a model the defaults of its provider.
func (m *Model) Fill() {
	p, _ := ProviderOf(m.Provider)
	if m.BaseURL == "" {
		m.BaseURL = p.baseURL
	}

	if u, err := url.Parse(m.BaseURL); m.API == "" && p.Compatible && err == nil {
		m.API = "chat"
		// All OpenAI-compatible servers know chat completions; the Responses API is OpenAI's own.
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

// ReplayProvider is the provider that answers from a recording.
const ReplayProvider = "replay"

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

	if m.Provider == "ollama" || m.Provider == ReplayProvider || local(m.BaseURL) {
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
