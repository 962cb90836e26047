package yaml_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	goyaml "go.yaml.in/yaml/v4"

	"rouse/agent/redact"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/configtest"
	"rouse/cmd/internal/config/yaml"
)

const phrase = "correct horse battery-staple Quixotic"

// phraseSpellings lists the ways in which YAML can write phrase as a value of api_key, indented by
// four.
var phraseSpellings = map[string]string{
	"plain":                    `api_key: correct horse battery-staple Quixotic # the key`,
	"single":                   `api_key: 'correct horse battery-staple Quixotic'`,
	"double":                   `api_key: "correct horse battery-staple Quixotic"`,
	"hexadecimal escapes":      `api_key: "\x63orrect horse \x62attery-staple \x51uixotic"`,
	"unicode escapes":          `api_key: "\u0063orrect\u0020horse battery\U0000002dstaple Quixoti\u0063"`,
	"escaped line breaks":      "api_key: \"correct ho\\\n      rse battery-sta\\\n      ple Quixotic\"",
	"folded":                   "api_key: >-\n      correct horse\n      battery-staple\n      Quixotic\n",
	"folded, with comment":     "api_key: > # the key\n      correct horse\n\n    # of the bank\n    base_url: http://127.0.0.1:1/v1",
	"literal":                  "api_key: |-\n      correct horse battery-staple Quixotic\n",
	"literal, indented":        "api_key: |2-\n      correct horse battery-staple Quixotic\n",
	"literal, more lines":      "api_key: |\n      correct horse\n        battery-staple\n\n      Quixotic\n",
	"plain, more lines":        "api_key: correct horse\n      battery-staple\n\n      Quixotic",
	"single, more lines":       "api_key: 'correct horse\n      battery-staple\n      Quixotic'",
	"double, more lines":       "api_key: \"correct horse\n      battery-staple\n      Quixotic\" # the key",
	"tagged":                   `api_key: !!str correct horse battery-staple Quixotic`,
	"tagged and anchored":      `api_key: &k !!str "correct horse battery-staple Quixotic"`,
	"on its own line":          "api_key:\n      correct horse battery-staple Quixotic",
	"anchor":                   "api_key: &k correct horse battery-staple Quixotic\n    headers: {X-Key: *k}",
	"key quoted":               `"api\x5fkey": correct horse battery-staple Quixotic`,
	"explicit key":             "? api_key\n    : correct horse battery-staple Quixotic",
	"header":                   `headers: {X-Api-Key: correct horse battery-staple Quixotic}`,
	"header with scheme":       `headers: {Authorization: Bearer correct horse battery-staple Quixotic}`,
	"flow over several lines":  "headers: {X-Api-Key: correct horse\n     battery-staple\n  Quixotic,\n     Accept: text/plain}",
	"merge":                    "<<: {api_key: correct horse battery-staple Quixotic}",
	"merge of several":         "<<: [{api_key: correct horse battery-staple Quixotic}, {model: y}]",
	"beside a variable":        `api_key: "correct horse battery-staple Quixotic${MISSING}"`,
	"with carriage returns":    "api_key: >-\r\n      correct horse\r\n      battery-staple\r\n      Quixotic\r",
	"password of an address":   `headers: {X-Key: "https://me:correct%20horse%20battery-staple%20Quixotic@example.com"}`,
	"quoted in another value":  `headers: {X-Key: "a: \"correct horse battery-staple Quixotic\""}`,
	"a comment that was meant": `api_key: correct #horse battery-staple Quixotic`,
}

func leaks(t *testing.T, where, text string) {
	t.Helper()
	for _, word := range []string{phrase, "correct", "battery", "staple", "Quixotic", "uixoti"} {
		if strings.Contains(text, word) {
			t.Errorf("%s contains %q:\n%s", where, word, text)
		}
	}
}

// However YAML spells a secret, no view of the configuration contains it or a word of it.
func TestMaskSpellings(t *testing.T) {
	t.Parallel()
	for name, spelling := range phraseSpellings {
		content := "# the configuration\nmodels:\n  - name: m # mine\n    provider: openai\n    model: x\n    base_url: http://127.0.0.1:1/v1\n    " + spelling + "\nagents: [{name: a, model: m}]\n"
		if strings.Contains(spelling, "base_url") {
			content = strings.Replace(content, "    base_url: http://127.0.0.1:1/v1\n", "", 1)
		}
		if strings.HasPrefix(spelling, "<<") && strings.Contains(spelling, "model: y") {
			content = strings.Replace(content, "    model: x\n", "", 1)
		}
		for where, files := range map[string][]string{
			"main file":     {"rouse.yaml", "version: 1\n" + content},
			"included file": {"rouse.yaml", "version: 1\ninclude: models.yaml\n", "models.yaml", content},
		} {
			t.Run(name+", "+where, func(t *testing.T) {
				path := configtest.Write(t, files...)
				cfg, err := configtest.Load(path, nil)
				if err != nil {
					leaks(t, "the error", err.Error())
					if !strings.Contains(spelling, "MISSING") && !strings.Contains(err.Error(), "holds a line break") {
						t.Fatal(err)
					}
				}
				for _, w := range cfg.Warnings {
					leaks(t, "a warning", w.String())
				}
				shown, err := yaml.Show(cfg)
				if err != nil {
					t.Fatal(err)
				}
				leaks(t, "config show", string(shown))
				for _, file := range cfg.Files {
					content, err := os.ReadFile(file)
					if err != nil {
						t.Fatal(err)
					}
					for what, c := range map[string]*config.Config{"the file": cfg, "the file, changed since it was loaded": {}} {
						masked, kept := yaml.Mask(c, file, content, nil)
						leaks(t, what, string(masked))
						if !kept || bytes.Count(masked, []byte("\n")) != bytes.Count(content, []byte("\n")) {
							t.Errorf("the lines of %s are not kept:\n%s\n%s", what, content, masked)
						}
						if bytes.Contains(content, []byte("name: m")) && (!bytes.Contains(masked, []byte(redact.Mark)) || !bytes.Contains(masked, []byte("# the configuration")) || !bytes.Contains(masked, []byte("- name: m # mine"))) {
							t.Errorf("of %s this is left:\n%s", what, masked)
						}
					}
				}
			})
		}
	}
}

// TestSecretPlaces checks the secrets of programs, channels and servers.
func TestSecretPlaces(t *testing.T) {
	t.Parallel()
	path := configtest.Write(t, "rouse.yaml", `models: [{name: m, provider: openai, model: x, base_url: "https://token-hunter2-in-the-user@example.com/v1"}]
agents: [{name: a, model: m}]
mcp:
  - {name: db, argv: [/bin/server, "postgresql://me:hunter2%2Dargv@db.example.com/x"], env: {DB_PASSWORD: hunter2 with blanks, DATABASE: "mysql://me:hunter2-env@db/x", LANG: C.UTF-8}}
  - {name: site, url: "https://mcp.example.com/?token=hunter2-query", headers: {X-Credential: hunter2-header of mine}}
notifications:
  - {name: chat, kind: url, url: "discord://hunter2-of-the-chat-channel@123456789"}
`)
	cfg, err := configtest.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := yaml.Show(cfg)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	masked, kept := yaml.Mask(cfg, path, content, nil)
	for where, text := range map[string]string{"config show": string(shown), "the file": string(masked)} {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "blanks") || strings.Contains(text, "of mine") || !strings.Contains(text, "C.UTF-8") || !strings.Contains(text, "db.example.com/x") {
			t.Errorf("%s:\n%s", where, text)
		}
	}
	if !kept {
		t.Errorf("the lines are not kept:\n%s", masked)
	}
	if echoed := redact.New(cfg.Secrets.Values).Replace("POST /hunter2-of-the-chat-channel: 404"); strings.Contains(echoed, "hunter2") {
		t.Error(echoed)
	}
}

// References remain, because they show the source of a secret.
func TestMaskKeepsReferences(t *testing.T) {
	t.Parallel()
	text := "models:\n  - {name: m, api_key: secret:bank, headers: {Authorization: \"Bearer ${TOKEN}\"}}\n  - {name: local, api_key: none}\n"
	if masked, kept := yaml.Mask(&config.Config{}, "rouse.yaml", []byte(text), []string{"value-of-bank"}); string(masked) != text || !kept {
		t.Errorf("(%v)\n%s", kept, masked)
	}
}

// A file that is not YAML is withheld. A text file such as a prompt is not treated as YAML.
func TestMaskOtherFiles(t *testing.T) {
	t.Parallel()
	masked, kept := yaml.Mask(&config.Config{}, "rouse.yaml", []byte("models: [{api_key: correct horse battery-staple Quixotic\n"), nil)
	if leaks(t, "a broken file", string(masked)); kept || !bytes.Contains(masked, []byte("config check")) {
		t.Errorf("(%v) %s", kept, masked)
	}

	cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "agents: [{name: a}]\nmodels: [{name: m, provider: openai, model: x, base_url: 'http://127.0.0.1:1/v1', api_key: '"+phrase+"'}]\njobs: [{name: j, agent: a, prompt_file: p.md}]\n", "p.md", "Write: [a report\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if masked, kept = yaml.Mask(cfg, cfg.Files[1], []byte("Write: [a "+phrase+"\n"), nil); string(masked) != "Write: [a [secret]\n" || !kept {
		t.Errorf("(%v) %s", kept, masked)
	}
}

// Messages about a wrong configuration do not quote its secrets, cut short or whole.
func TestProblemsAreMasked(t *testing.T) {
	t.Parallel()
	long := "sk-" + strings.Repeat("canary-", 10)
	for name, text := range map[string]string{
		"alias":             "models: [{name: m, api_key: *sk-canary-1234}]",
		"tag":               "models: [{name: m, api_key: !sk-canary-1234 x}]",
		"scalar of headers": "models: [{name: m, headers: Bearer sk-canary-1234}]",
		"other key":         "models: [{name: m, api_key: " + long + ", provider: " + long + "}]",
		"comment":           "models: [{name: m, provider: openai, api_key: #sk-canary-1234\n}]",
		"comment behind":    "models:\n  - name: m\n    provider: openai\n    model: x\n    api_key: pass #sk-canary-1234\nagents: [{name: a, wrong: 1}]",
		"no pair":           "models: [{name: m, api_key: $SK_CANARY, headers: {Authorization: Bearer sk-canary-1234, Token: [sk-canary-1234]}}]",
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", text), nil)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		said := err.Error()
		for _, w := range cfg.Warnings {
			said += "\n" + w.String()
		}
		if strings.Contains(said, "canary") {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// FuzzMask checks that Mask removes the secrets of any YAML.
func FuzzMask(f *testing.F) {
	for _, spelling := range phraseSpellings {
		f.Add("models:\n  - name: m\n    "+spelling+"\n    model: x\n", phrase)
	}
	f.Add("a: &sk-canary-1234 {b: *sk-canary-1234}\n", "sk-canary-1234")
	f.Add("a: !sk-canary-1234 b\n--- # sk-canary-1234\n- 'sk-canary-1234': [sk-canary-1234]\n", "sk-canary-1234")
	f.Add("? |2-\n    a\n   sk-\n  canary\n: \"\\\n  sk-\\\n  canary\"\n", "sk-canary")
	f.Fuzz(func(t *testing.T, text, secret string) {
		if len(secret) < 8 || len(text) > 4096 || strings.Contains(redact.Mark, secret) || strings.TrimSpace(secret) != secret {
			return
		}
		masked, _ := yaml.Mask(&config.Config{}, "rouse.yaml", []byte(text), []string{secret})
		clean := func(s string) string { return strings.ReplaceAll(s, redact.Mark, "\x00") }
		if strings.Contains(string(masked), "is not shown, because its secrets cannot be masked") {
			return
		}
		if strings.Contains(clean(string(masked)), secret) {
			t.Fatalf("%q is in %q, made of %q", secret, masked, text)
		}
		dec := goyaml.NewDecoder(bytes.NewReader(masked))
		for {
			var doc goyaml.Node
			if dec.Decode(&doc) != nil {
				return
			}
			var walk func(n *goyaml.Node)
			walk = func(n *goyaml.Node) {
				if strings.Contains(clean(n.Value), secret) {
					t.Fatalf("%q is a value of %q, made of %q", secret, masked, text)
				}
				for _, inner := range n.Content {
					walk(inner)
				}
			}
			walk(&doc)
		}
	})
}
