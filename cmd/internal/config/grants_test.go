package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/web"
	"rouse/cmd/internal/config"
)

// A secret of the store stands for a value where no model and no record sees it, and is kept
// out of what is shown (OSL-22).
func TestStoredSecrets(t *testing.T) {
	path := write(t, "rouse.yaml", `
models: [{name: m, provider: openai, model: x, base_url: "http://127.0.0.1:1/v1", api_key: secret:one, headers: {X-Plain: "Bearer ${secret:two}"}}]
agents:
  - name: a
    grants:
      network: [{host: API.example.com, methods: [POST]}, {host: "*.wild.example"}, {host: "192.168.1.5:8080", private: true}]
      secrets: [{name: three, only_to: api.example.com}, {name: four}]
`)

	set := map[string]string{"secret:one": "canary-one", "secret:two": "canary-two", "secret:three": "canary-three", "secret:four": "canary-four"}
	cfg, err := load(path, set)
	if err != nil {
		t.Fatal(err)
	}
	if m := cfg.Models[0]; m.APIKey != "canary-one" || m.Headers["X-Plain"] != "Bearer canary-two" {
		t.Errorf("the model has %+v", m)
	}

	for _, want := range set {
		if !slices.Contains(cfg.Secrets(), want) {
			t.Errorf("%s is not known as a secret: %q", want, cfg.Secrets())
		}
	}

	shown, err := cfg.Show()
	if err != nil || strings.Contains(string(shown), "canary") {
		t.Errorf("it is shown (%v):\n%s", err, shown)
	}

	a := &cfg.Agents[0]
	if got, want := fmt.Sprint(a.Network()), fmt.Sprint([]web.Grant{{Host: "API.example.com", Methods: []string{"POST"}}, {Host: "*.wild.example"}, {Host: "192.168.1.5:8080", Private: true}}); got != want {
		t.Errorf("hosts %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(a.Secrets()), fmt.Sprint([]tool.SecretGrant{{Name: "three", OnlyTo: "api.example.com", Value: "canary-three"}, {Name: "four", Value: "canary-four"}}); got != want {
		t.Errorf("secrets %s, want %s", got, want)
	}

	var refs []string
	for _, r := range cfg.SecretRefs() {
		refs = append(refs, fmt.Sprintf("%s: %s at %s:%d", r.Name, r.Path, r.Of, r.At.Line))
	}

	if got, want := strings.Join(refs, "\n"), `one: models[0].api_key at model m:2
two: models[0].headers.X-Plain at model m:2
three: agents[0].grants.secrets[0] at agent a:7
four: agents[0].grants.secrets[1] at agent a:7`; got != want {
		t.Errorf("it is asked for at\n%s\nwant\n%s", got, want)
	}

	set["secret:one"] = "canary-new!"
	again, err := load(path, set)
	if err != nil || config.Compare(cfg, again).Empty() {
		t.Errorf("another value changes nothing (%v)", err)
	}

	set["secret:four"] = "canary-4444"
	third, err := load(path, set)
	if err != nil || config.Compare(again, third).Empty() {
		t.Errorf("another value of a grant changes nothing (%v)", err)
	}
}

func TestGrantMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"agents: [{name: a, instructions: 'secret:k'}]":                                                                   "a: agents[0].instructions: a secret cannot stand here; it can under api_key",
		"agents: [{name: a, instructions: 'say ${secret:k}'}]":                                                            "a secret cannot stand here",
		"agents: [{name: a}]\njobs: [{name: j, agent: a, playbook: [{call: notify, with: {url: 'secret:k'}}]}]":           "a secret cannot stand here",
		"mcp: [{name: pg, argv: [/opt/pg], env: {DATABASE_URI: 'secret:none'}}]":                                          "pg: mcp[0].env.DATABASE_URI: the secret none is not set; set it with: rouse secrets set none",
		"models: [{name: m, provider: openai, model: x, api_key: 'secret:locked'}]":                                       "the secret locked cannot be read: the keyring gave no answer",
		"models: [{name: m, provider: openai, model: x, api_key: 'Bearer ${secret:none}'}]":                               ":1:57: m: models[0].api_key: the secret none is not set; set it with: rouse secrets set none",
		"models: [{name: m, provider: openai, model: x, api_key: 'secret:lines'}]":                                        ":1:57: m: models[0].api_key: holds a line break or another control character, which no key does; set the secret again, in one line",
		"models: [{name: m, provider: openai, model: x, headers: {X-A: 'a ${secret:lines}'}}]":                            "models[0].headers.X-A: holds a line break or another control character, which no header does; set it again, in one line",
		"agents: [{name: a, grants: {secrets: [{name: k}, {name: k}]}}]":                                                  "granted twice",
		"agents: [{name: a, grants: {secrets: [{name: 'a b'}]}}]":                                                         "is not the name of a secret",
		"agents: [{name: a, grants: {secrets: [{name: none}]}}]":                                                          "the secret none is not set; set it with: rouse secrets set none",
		"agents: [{name: a, grants: {secrets: [{name: k, only_to: '*.example.com'}]}}]":                                   "must be one host",
		"agents: [{name: a, grants: {secrets: [{name: k, only_to: 'https://example.com'}]}}]":                             "must be one host",
		"agents: [{name: a, grants: {secrets: [{name: k, only_to: example.com}]}}]":                                       "warning: no host under grants.network is example.com",
		"agents: [{name: a, grants: {network: [{host: 'https://example.com'}]}}]":                                         "write a host like api.example.com",
		"agents: [{name: a, grants: {network: [{host: '0x7f.1'}]}}]":                                                      "is a number and not an address",
		"agents: [{name: a, grants: {network: [{host: example.com, methods: [get]}]}}]":                                   `"get" is none of GET, HEAD`,
		"agents: [{name: a, grants: {network: [{host: '*'}]}}]":                                                           "warning: lets the agent ask any host, also",
		"agents: [{name: a, grants: {network: [{host: '*.com'}]}}]":                                                       "warning: lets the agent ask any host below com, also",
		"agents: [{name: a, grants: {network: [{host: example.com}], secrets: [{name: k, only_to: 'Example.com:443'}]}}]": "warning: no host",
	} {
		cfg, err := load(write(t, "rouse.yaml", text+"\n"), map[string]string{"secret:k": "value", "secret:lines": "canary\nof two lines"})
		said := fmt.Sprint(err)
		for _, w := range cfg.Warnings {
			said += "\n" + w.String()
		}
		if !strings.Contains(said, want) {
			t.Errorf("%s\nsays %s\nwant %s", text, said, want)
		}
	}
}
