package check_test

import (
	"errors"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/configtest"
)

func TestRates(t *testing.T) {
	for text, want := range map[string]struct {
		price  model.Price
		known  bool
		window int
	}{
		`model: gpt-5-mini`: {model.Price{Input: 0.25, Output: 2, Cached: 0.025}, true, 400_000},
		`model: gpt-5-mini, context_window: 9000, price: {input: 1, output: 2}`: {model.Price{Input: 1, Output: 2, Cached: 1}, true, 9000},
		`model: mystery, price: {input: 3, output: 15, cached_input: 0.3}`:      {model.Price{Input: 3, Output: 15, Cached: 0.3}, true, 0},
		`model: mystery, price: {input: 0, output: 0}`:                          {model.Price{}, true, 0},
		`model: mystery`: {model.Price{}, false, 0},
		`model: gpt-5, base_url: "http://127.0.0.1:8080/v1"`:                                     {model.Price{}, true, 400_000},
		`model: qwen3:8b, base_url: "http://LOCALHOST:11434/v1"`:                                 {model.Price{}, true, 0},
		`model: qwen3:8b, base_url: "http://[::1]:11434/v1"`:                                     {model.Price{}, true, 0},
		`model: qwen3:8b, base_url: "http://localhost:1/v1", price: {input: 0.01, output: 0.02}`: {model.Price{Input: 0.01, Output: 0.02, Cached: 0.01}, true, 0},
		`model: qwen3:8b, base_url: "https://127.0.0.1.example.com/v1"`:                          {model.Price{}, false, 0},
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "version: 1\nmodels: [{name: m, provider: openai, "+text+"}]\n"), nil)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}

		if price, known := cfg.Models[0].Rate(); price != want.price || known != want.known || cfg.Models[0].Window() != want.window {
			t.Errorf("%s: %+v %v %d", text, price, known, cfg.Models[0].Window())
		}
	}
	if rate, ok := (config.Model{Provider: "ollama", Model: "gpt-5", BaseURL: "http://gpu.lan/v1"}).Rate(); !ok || !rate.Free() {
		t.Errorf("ollama: %+v %v", rate, ok)
	}
}

// TestUnknownPrice checks that a cost limit for a model without a known price is refused with a
// hint. Limits that do not apply to the model are accepted.
func TestUnknownPrice(t *testing.T) {
	const (
		mystery = "models: [{name: m, provider: openai, model: mystery}, {name: p, provider: openai, model: gpt-5}]\n"
		alone   = "models:\n  - {name: m, provider: openai, model: mystery}\n"
	)
	for name, c := range map[string]struct{ text, at, says string }{
		"no limit":          {alone + "agents: [{name: a}]\n", "", ""},
		"tokens":            {alone + "limits: {tokens_per_day: 9}\nagents: [{name: a, bounds: {tokens: 9}, budget: {tokens_per_day: 9}}]\n", "", ""},
		"daemon":            {alone + "limits: {cost_usd_per_day: 2.5}\nagents: [{name: a}]\n", ":3:5", "limits.cost_usd_per_day limits it to 2.5 USD"},
		"nobody uses it":    {alone + "limits: {cost_usd_per_day: 2.5}\n", "", ""},
		"a disabled agent":  {alone + "limits: {cost_usd_per_day: 2.5}\nagents: [{name: a, enabled: false, budget: {cost_usd_per_day: 1}}]\n", "", ""},
		"agent's bounds":    {alone + "agents: [{name: a, bounds: {cost_usd: 0.5}}]\n", ":3:5", "agents[0].bounds.cost_usd limits it to 0.5 USD"},
		"agent's budget":    {alone + "agents: [{name: a, budget: {cost_usd_per_day: 1}}]\n", ":3:5", "agents[0].budget.cost_usd_per_day"},
		"job's bounds":      {alone + "agents: [{name: a}]\njobs: [{name: j, agent: a, prompt: x, bounds: {cost_usd: 1}}]\n", ":3:5", "jobs[0].bounds.cost_usd"},
		"job's budget":      {alone + "agents: [{name: a}]\njobs: [{name: j, agent: a, prompt: x, budget: {cost_usd_per_day: 1}}]\n", ":3:5", "jobs[0].budget.cost_usd_per_day"},
		"a playbook's":      {alone + "agents: [{name: a}]\njobs: [{name: j, agent: a, playbook: [{call: db_schema}], budget: {cost_usd_per_day: 1}}]\n", "", ""},
		"by default":        {mystery + "agents: [{name: a}]\n", ":2:10", "limits.cost_usd_per_day is 5 USD by default"},
		"the other's":       {mystery + "agents: [{name: a, model: p, bounds: {cost_usd: 1}}]\n", "", ""},
		"a job's own model": {mystery + "agents: [{name: a, model: p, budget: {cost_usd_per_day: 3}}]\njobs: [{name: j, agent: a, prompt: x, model: m}]\n", ":2:10", "agents[0].budget.cost_usd_per_day limits it to 3 USD"},
	} {
		_, err := configtest.Load(configtest.Write(t, "rouse.yaml", "version: 1\n"+c.text), nil)
		var all *config.Errors
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.says == "":
		case !errors.As(err, &all) || len(all.Problems) != 1:
			t.Errorf("%s: %v", name, err)
		default:
			if text := all.Problems[0].String(); !strings.Contains(text, "rouse.yaml"+c.at+": m: models[0]: ") || !strings.Contains(text, c.says) || !strings.Contains(text, "price: {input:") {
				t.Errorf("%s: %s", name, text)
			}
		}
	}
}

func TestLimits(t *testing.T) {
	for text, want := range map[string]float64{
		"models: [{name: m, provider: openai, model: gpt-5}]":                                                        5,
		"models: [{name: m, provider: openai, model: gpt-5}]\nlimits: {cost_usd_per_day: 0.25}":                      0.25,
		"models: [{name: m, provider: openai, model: gpt-5, base_url: \"http://localhost/v1\"}]":                     0,
		"models: [{name: m, provider: openai, model: mystery}]":                                                      0,
		"models: [{name: m, provider: openai, model: mystery, price: {input: 1, output: 1}}]\nlimits: {runs: 2}":     5,
		"models: [{name: m, provider: openai, model: mystery, price: {input: 0, output: 0}}]\nagents: [{name: a}]\n": 0,
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "version: 1\n"+text+"\n"), nil)
		if err != nil || cfg.Limits.CostUSDPerDay != want {
			t.Errorf("%s: %v (%v)", text, cfg.Limits.CostUSDPerDay, err)
		}
	}

	for text, want := range map[string]string{
		"limits: {cost_usd_per_day: 0}":                                                  "must be more than 0",
		"limits: {cost_usd_per_day: -1}":                                                 "must be a number from 0 on",
		"limits: {tokens_per_day: 0}":                                                    "must be more than 0",
		"agents: [{name: a, bounds: {cost_usd: 0}}]":                                     "must be more than 0",
		"agents: [{name: a, budget: {cost_usd_per_week: 1}}]":                            `unknown key "cost_usd_per_week"`,
		"models: [{name: m, provider: openai, model: x, price: {input: 1}}]":             `the key "output" is missing`,
		"models: [{name: m, provider: openai, model: x, price: 3}]":                      "must be a mapping",
		"models: [{name: m, provider: openai, model: x, price: {input: -1, output: 1}}]": "must be a number from 0 on",
	} {
		if _, err := configtest.Load(configtest.Write(t, "rouse.yaml", "version: 1\n"+text+"\n"), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}

	for usd, want := range map[float64]int64{0: 0, 0.0000001: 1, 0.5: 500_000, 5: 5_000_000, 1e300: 1 << 50} {
		if got := config.MicroUSD(usd); got != want {
			t.Errorf("%v USD are %d", usd, got)
		}
	}
}
