package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/configtest"
	"rouse/cmd/internal/config/load"
	"rouse/cmd/internal/config/yaml"
)

// TestProviders checks the default URL and timeouts of each provider.
func TestProviders(t *testing.T) {
	for provider, want := range map[string]config.Model{
		"anthropic": {BaseURL: "https://api.anthropic.com", Idle: config.Duration(2 * time.Minute)},
		"openai":    {BaseURL: "https://api.openai.com/v1", Idle: config.Duration(2 * time.Minute)},
		"gemini":    {BaseURL: "https://generativelanguage.googleapis.com", Idle: config.Duration(2 * time.Minute)},
		"ollama":    {BaseURL: "http://127.0.0.1:11434", Idle: config.Duration(4 * time.Minute)},
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "models: [{name: m, provider: "+provider+", model: x, api_key: '${KEY}', context_window: 9000}]\n"), map[string]string{"KEY": "sk-canary"})
		if err != nil || len(cfg.Warnings) > 0 {
			t.Fatalf("%v %v", err, cfg.Warnings)
		}
		if m := cfg.Models[0]; m.BaseURL != want.BaseURL || m.Idle != want.Idle || time.Duration(m.Timeout) != 10*time.Minute || m.ContextWindow != 9000 {
			t.Errorf("%s: %+v", provider, m)
		}

		cfg, err = configtest.Load(configtest.Write(t, "rouse.yaml", "models: [{name: m, provider: "+provider+", model: x, base_url: 'http://model', idle: 5s}]\n"), nil)
		if err != nil || len(cfg.Warnings) > 0 || cfg.Models[0].BaseURL != "http://model" || (cfg.Models[0].Window() == 16_384) != (provider == "ollama") || time.Duration(cfg.Models[0].Idle) != 5*time.Second {
			t.Errorf("%s: %+v (%v, %v)", provider, cfg.Models, err, cfg.Warnings)
		}
	}
}

// TestModelMistakes checks that invalid models are reported.
func TestModelMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"provider: replay":                                                    `models[0]: has no recording; name the file that it answers from, as rouse replay RUN --save FILE writes it`,
		"provider: replay, recording: none.jsonl":                             `models[0].recording: open `,
		"provider: replay, recording: rouse.yaml":                             `models[0].recording: the recording `,
		"provider: openai, recording: a.jsonl":                                "models[0].recording: belongs to the provider replay",
		"provider: claude":                                                    `replay; write provider: anthropic`,
		"provider: lmstudio":                                                  `write provider: openai, base_url: http://127.0.0.1:1234/v1`,
		"provider: openrouter":                                                "models[0]: warning: has no api_key, and https://openrouter.ai/api/v1 wants one; to take it from the environment, write api_key: ${OPENROUTER_API_KEY}",
		"provider: ollama, base_url: 'http://127.0.0.1:11434/v1'":             "models[0].base_url: leave out /v1: the provider ollama adds what belongs there",
		"provider: ollama, base_url: 'http://h:1/api/'":                       "models[0].base_url: leave out /api/: the provider ollama adds what belongs there",
		"provider: gemini, base_url: 'https://g/v1beta'":                      "models[0].base_url: leave out /v1beta: the provider gemini adds what belongs there",
		"provider: anthropic, base_url: 'https://openrouter.ai/api/v1'":       "models[0].base_url: leave out /v1: the provider anthropic adds what belongs there",
		"provider: anthropic, base_url: 'localhost:80'":                       "models[0].base_url: must be a URL like https://api.anthropic.com",
		"provider: openai, base_url: 'http://127.0.0.1:8080/v1'":              "",
		"provider: anthropic, base_url: 'https://api.deepseek.com/anthropic'": "",
		"provider: anthropic":                                                 "models[0]: warning: has no api_key, and https://api.anthropic.com wants one; to take it from the environment, write api_key: ${ANTHROPIC_API_KEY}",
		"provider: openai":                                                    "models[0]: warning: has no api_key, and https://api.openai.com/v1 wants one; to take it from the environment, write api_key: ${OPENAI_API_KEY}",
		"provider: gemini":                                                    "models[0]: warning: has no api_key, and https://generativelanguage.googleapis.com wants one; to take it from the environment, write api_key: ${GEMINI_API_KEY}",
		"provider: gemini, headers: {Authorization: Bearer canary}":           "",
		"provider: ollama":                                                    "",
		"provider: ollama, api: chat":                                         "models[0].api: applies to the OpenAI API; ollama has its own API",
		"provider: openai, api: complete, api_key: x":                         `models[0].api: "complete" is none of chat, responses`,
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "models: [{name: m, model: x, "+text+"}]\n"), nil)
		got := fmt.Sprint(err, cfg.Warnings)
		if !strings.Contains(got, want) || want == "" && (err != nil || len(cfg.Warnings) > 0) {
			t.Errorf("%s: %s, want %q", text, got, want)
		}
	}
}

// TestModelAPI checks that OpenAI gets the Responses API and other servers get chat completions.
func TestModelAPI(t *testing.T) {
	for text, want := range map[string]string{
		"provider: openai, api_key: k":                                           "responses",
		"provider: openai, api_key: k, api: chat":                                "chat",
		"provider: openai, base_url: 'http://127.0.0.1:8080/v1'":                 "chat",
		"provider: openai, base_url: 'http://127.0.0.1:8080/v1', api: responses": "responses",
		"provider: anthropic, api_key: k":                                        "",
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "models: [{name: m, model: x, "+text+"}]\n"), nil)
		if err != nil || cfg.Models[0].API != want {
			t.Errorf("%s: %q (%v), want %q", text, cfg.Models[0].API, err, want)
		}
	}
}

// Each preset has the OpenAI-compatible URL that its provider documents, and takes the key from
// the provider's variable. Another base_url does not get the key.
func TestProviderPresets(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{
		"openrouter": {"https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"},
		"groq":       {"https://api.groq.com/openai/v1", "GROQ_API_KEY"},
		"mistral":    {"https://api.mistral.ai/v1", "MISTRAL_API_KEY"},
		"deepseek":   {"https://api.deepseek.com", "DEEPSEEK_API_KEY"},
		"together":   {"https://api.together.ai/v1", "TOGETHER_API_KEY"},
		"fireworks":  {"https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"},
		"xai":        {"https://api.x.ai/v1", "XAI_API_KEY"},
		"cerebras":   {"https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"},
		"openai":     {"https://api.openai.com/v1", "OPENAI_API_KEY"},
		"anthropic":  {"https://api.anthropic.com", "ANTHROPIC_API_KEY"},
	} {
		env := map[string]string{want[1]: "sk-canary-of-" + name}
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "models: [{name: m, model: x, provider: "+name+"}]\n"), env)
		if err != nil || len(cfg.Warnings) > 0 {
			t.Fatalf("%s: %v %v", name, err, cfg.Warnings)
		}
		if m := cfg.Models[0]; m.BaseURL != want[0] || m.APIKey != env[want[1]] || !slices.Contains(cfg.Secrets.Values, m.APIKey) || name != "openai" && m.API == "responses" {
			t.Errorf("%s: %+v", name, m)
		}

		cfg, err = configtest.Load(configtest.Write(t, "rouse.yaml", "models: [{name: m, model: x, base_url: 'https://h.example/x', provider: "+name+"}]\n"), env)
		if err != nil || cfg.Models[0].APIKey != "" {
			t.Errorf("%s: another address gets the key: %+v (%v)", name, cfg.Models[0], err)
		}
	}
}

// TestFallbacks checks that a fallback must exist and must not form a cycle. A chain is valid.
func TestFallbacks(t *testing.T) {
	for text, want := range map[string]string{
		"{name: a, fallback: b}, {name: b, fallback: c}, {name: c}":                       "",
		"{name: a, fallback: c}, {name: b, fallback: c}, {name: c}":                       "",
		"{name: a, fallback: big}, {name: bug}":                                           `models[0].fallback: there is no model "big"; did you mean "bug"?`,
		"{name: a, fallback: a}":                                                          "models[0].fallback: goes in a circle: a → a",
		"{name: a, fallback: b}, {name: b, fallback: c}, {name: c, fallback: b}":          "models[1].fallback: goes in a circle: b → c → b",
		"{name: a, fallback: b}, {name: b, fallback: a}":                                  "models[0].fallback: goes in a circle: a → b → a",
		"{name: a, fallback: b, price: {input: 1, output: 2}}, {name: b, model: unheard}": "models[1]: nobody knows what the model \"unheard\" costs",
	} {
		text = strings.ReplaceAll(text, "{name", "{provider: openai, base_url: 'https://h/v1', model: gpt-5, name")
		text = strings.ReplaceAll(text, "model: gpt-5, name: b, model:", "name: b, model:")
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "models: ["+text+"]\nagents: [{name: x, model: a}]\n"), nil)
		if got := fmt.Sprint(err, cfg.Warnings); !strings.Contains(got, want) || want == "" && (err != nil || len(cfg.Warnings) > 0) || strings.Count(got, "circle") > 2 {
			t.Errorf("%s: %s, want %q", text, got, want)
		}
	}
}

// Without a configured model, the first key in the environment adds one, with a warning.
func TestKeysOfTheEnvironment(t *testing.T) {
	all := map[string]string{"ANTHROPIC_API_KEY": "sk-canary-a", "OPENAI_API_KEY": "sk-canary-o", "GEMINI_API_KEY": "sk-canary-g"}
	for i, c := range []struct{ key, name, say string }{
		{"ANTHROPIC_API_KEY", "anthropic", "none is configured, and ANTHROPIC_API_KEY is set: prompts go to claude-sonnet-5 at https://api.anthropic.com, for $2 (read) and $10 (written) per million tokens"},
		{"OPENAI_API_KEY", "openai", "none is configured, and OPENAI_API_KEY is set: prompts go to gpt-5-mini at https://api.openai.com/v1"},
		{"GEMINI_API_KEY", "gemini", "none is configured, and GEMINI_API_KEY is set: prompts go to gemini-3.8-flash at https://generativelanguage.googleapis.com, for $1.5 (read) and $7.5 (written) per million tokens"},
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "agents: [{name: a}]\n"), all)
		if err != nil || len(cfg.Models) != 1 || len(cfg.Warnings) != 1 {
			t.Fatalf("%d: %+v (%v)", i, cfg, err)
		}

		m := cfg.Models[0]
		if string(m.Name) != c.name || m.Provider != c.name || m.APIKey != all[c.key] || cfg.Agents[0].Model != c.name || !strings.Contains(cfg.Warnings[0].String(), c.say) {
			t.Errorf("%+v, warning %s, want %s", m, cfg.Warnings[0], c.say)
		}
		if rate, known := m.Rate(); !known || rate.Free() || m.Window() == 0 {
			t.Errorf("nobody knows what %s costs, so that nothing limits it", m.Model)
		}
		if !slices.Equal(cfg.Secrets.Values, []string{all[c.key]}) {
			t.Errorf("secrets: %q", cfg.Secrets.Values)
		}

		delete(all, c.key)
	}

	cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "agents: [{name: a}]\n"), map[string]string{"ANTHROPIC_API_KEY": "sk-canary", "ANTHROPIC_MODEL": "claude-opus-5", "ANTHROPIC_BASE_URL": "https://proxy/a"})
	if err != nil || cfg.Models[0].Model != "claude-opus-5" || cfg.Models[0].BaseURL != "https://proxy/a" {
		t.Errorf("%+v (%v)", cfg.Models, err)
	}

	for text, env := range map[string]map[string]string{
		"agents: [{name: a}]\n":                             {"ANTHROPIC_MODEL": "x"},
		"models: []\nagents: [{name: a}]\n":                 {"ANTHROPIC_API_KEY": "sk-canary"},
		"models: [{name: m, provider: ollama, model: x}]\n": {"GEMINI_API_KEY": "sk-canary"},
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", text), env)
		if err != nil || len(cfg.Warnings) > 0 || slices.ContainsFunc(cfg.Models, func(m config.Model) bool { return m.APIKey != "" }) {
			t.Errorf("%s: %+v (%v)", text, cfg.Models, err)
		}
	}
}

// Ollama is used only if no model and no key is configured.
func TestOllamaOfThisMachine(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		env  map[string]string
		want string
	}{
		"nothing else":  {"agents: [{name: a}]\n", nil, "qwen3:8b"},
		"a key":         {"agents: [{name: a}]\n", map[string]string{"OPENAI_API_KEY": "sk-canary", "OPENAI_MODEL": "gpt-5"}, "gpt-5"},
		"a model":       {"models: [{name: m, provider: ollama, model: x}]\nagents: [{name: a}]\n", nil, "x"},
		"none is meant": {"models: []\nagents: [{name: a}]\n", nil, ""},
		"nobody asks":   {"timezone: UTC\n", nil, ""},
	} {
		cfg, err := load.Config(yaml.Options{Path: configtest.Write(t, "rouse.yaml", c.text), Getenv: func(key string) string {
			if key == "HOME" {
				return "/home/someone"
			}
			return c.env[key]
		}, Ollama: func() (string, string, bool) { return "qwen3:8b", "http://127.0.0.1:11434", true }}, nil)
		if err != nil || len(cfg.Models) > 1 || (len(cfg.Models) == 1) != (c.want != "") || c.want != "" && (cfg.Models[0].Model != c.want || cfg.Agents[0].Model != string(cfg.Models[0].Name)) {
			t.Errorf("%s: %+v (%v)", name, cfg.Models, err)
			continue
		}

		if c.want == "qwen3:8b" && (len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0].String(), "prompts go to qwen3:8b at http://127.0.0.1:11434, for nothing") || cfg.Models[0].Window() != 16_384 || cfg.Limits.CostUSDPerDay != 0) {
			t.Errorf("%s: %v %+v", name, cfg.Warnings, cfg.Models[0])
		}
	}
}
