package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/config/load"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/logging"
	"rouse/internal/ledger"
)

// listings is a server that lists models like four providers do and does not run any.
type listings struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
}

func newListings(t *testing.T) *listings {
	t.Helper()
	l := &listings{}
	hanging := make(chan struct{})
	mux := http.NewServeMux()
	serve := func(pattern, answer string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })
	}

	keyed := func(header, key, answer string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get(header); got != key {
				w.WriteHeader(http.StatusUnauthorized)
				fmt.Fprintf(w, `{"error":{"message":"Incorrect API key provided: %s"}}`, got)
				return
			}
			fmt.Fprint(w, answer)
		}
	}
	const openAI = `{"data":[{"id":"gpt-5-mini"},{"id":"qwen3-8b","max_model_len":32768}]}`
	mux.HandleFunc("GET /v1/models", keyed("Authorization", "Bearer sk-right-canary", openAI))
	serve("GET /llama/v1/models", `{"data":[{"id":"/models/x.gguf","owned_by":"llamacpp","meta":{"n_ctx_train":131072,"n_ctx":8192}}]}`)
	serve("GET /small/v1/models", `{"data":[{"id":"x.gguf","owned_by":"llamacpp","meta":{"n_ctx_train":131072}}]}`)
	serve("GET /small/props", `{"default_generation_settings":{"n_ctx":1024},"total_slots":1}`)
	serve("GET /studio/v1/models", `{"data":[{"id":"x","owned_by":"organization_owner"}]}`)
	serve("GET /studio/api/v0/models", `{"data":[{"id":"y","loaded_context_length":1},{"id":"x","max_context_length":131072,"loaded_context_length":8192}]}`)
	serve("GET /viaollama/v1/models", `{"data":[{"id":"x:8b","owned_by":"library"}]}`)
	serve("GET /viaollama/api/ps", `{"models":[{"name":"x:8b","context_length":12288}]}`)
	serve("GET /page/v1/models", "<html>a page</html>")
	serve("GET /claude/v1/models/claude-sonnet-5", `{"id":"claude-sonnet-5","max_input_tokens":1000000}`)
	serve("GET /claude/v1/models", `{"data":[{"id":"claude-sonnet-5"},{"id":"claude-opus-5"}]}`)
	mux.HandleFunc("GET /gem/v1beta/models/gemini-2.5-pro", keyed("X-Goog-Api-Key", "sk-right-canary", `{"name":"models/gemini-2.5-pro","inputTokenLimit":1048576}`))
	serve("GET /gem/v1beta/models", `{"models":[{"name":"models/gemini-2.5-pro"}]}`)
	mux.HandleFunc("POST /oll/api/show", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Model string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		switch in.Model {
		case "qwen3:8b":
			fmt.Fprint(w, `{"capabilities":["completion","tools"],"model_info":{"general.architecture":"qwen3","qwen3.context_length":40960}}`)
		case "old:1b":
			fmt.Fprint(w, `{"capabilities":["completion"],"model_info":{"old.context_length":40960}}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	serve("GET /oll/api/tags", `{"models":[{"name":"qwen3:8b"}]}`)
	mux.HandleFunc("/late/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-3*time.Hour).UTC().Format(http.TimeFormat))
		fmt.Fprint(w, openAI)
	})
	mux.HandleFunc("/hangs/", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hanging:
		case <-r.Context().Done():
		}
	})

	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.asked = append(l.asked, r.Method+" "+r.URL.Path)
		l.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		close(hanging)
		l.Close()
	})
	return l
}

// doctorOf opens a home with some models.
func doctorOf(t *testing.T, models ...string) *Daemon {
	t.Helper()
	text := "version: 1\nhome: ./home\nmodels:\n"
	for _, m := range models {
		text += "  - {" + m + "}\n"
	}
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": text + "agents: [{name: clerk, workdir: ./work}]\n"})
	cfg, err := load.Config(yaml.Options{Path: filepath.Join(dir, "rouse.yaml")}, agent.Specs())
	if err != nil {
		t.Fatal(err)
	}

	d, err := Open(t.Context(), Options{Home: string(cfg.Home), Config: cfg, Logger: logging.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func checkNamed(t *testing.T, checks []api.Check, name string) api.Check {
	t.Helper()
	i := slices.IndexFunc(checks, func(c api.Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check is named %q: %+v", name, checks)
	}
	return checks[i]
}

// TestDoctorAsksServers checks the requests to each model's server: whether it responds, accepts
// the key and has the model, and the size of the context. Results contain no key, and skipped
// checks are reported.
func TestDoctorAsksServers(t *testing.T) {
	t.Parallel()
	server := newListings(t)

	for name, c := range map[string]struct {
		model    string
		ok       bool
		detail   string
		remedy   string
		notTried string
	}{
		"vllm":            {"provider: openai, model: qwen3-8b, base_url: URL/v1, api_key: sk-right-canary, context_window: 16384", true, "reachable, key accepted, the model is there, reads 32768 tokens, of which 16384 are used", "", "an answer, which may cost (rouse selftest --model m)"},
		"no window":       {"provider: openai, model: gpt-5-mini, base_url: URL/v1, api_key: sk-right-canary", true, "the model is there", "", "whether it reads the 400000 tokens that are counted on"},
		"responses":       {"provider: openai, api: responses, model: gpt-5-mini, base_url: URL/v1, api_key: sk-right-canary", true, "key accepted, the model is there", "", "an answer"},
		"wrong key":       {"provider: openai, model: gpt-5-mini, base_url: URL/v1, api_key: sk-wrong-canary", false, "the key is not accepted", "rouse secrets set NAME", ""},
		"no such model":   {"provider: openai, model: qwen3-8x, base_url: URL/v1, api_key: sk-right-canary", false, `the server does not have it; did you mean "qwen3-8b"?`, "correct model:", ""},
		"too wide":        {"provider: openai, model: qwen3-8b, base_url: URL/v1, api_key: sk-right-canary, context_window: 131072", false, "it reads 32768 tokens, and 131072 are counted on", "set context_window: 32768", ""},
		"llama.cpp":       {"provider: openai, model: any, base_url: URL/llama/v1, context_window: 8192", true, "the model is there, reads 8192 tokens", "", "an answer"},
		"started with":    {"provider: openai, model: any, base_url: URL/small/v1", true, "the model is there, reads 1024 tokens", "", "an answer"},
		"LM Studio":       {"provider: openai, model: x, base_url: URL/studio/v1", true, "the model is there, reads 8192 tokens", "", "an answer"},
		"through Ollama":  {"provider: openai, model: 'x:8b', base_url: URL/viaollama/v1", true, "the model is there, reads 12288 tokens", "", "an answer"},
		"lists none":      {"provider: openai, model: any, base_url: URL/none/v1, context_window: 8192", true, "reachable", "", "whether it takes the key and has the model: it lists none"},
		"a page":          {"provider: openai, model: any, base_url: URL/page/v1, context_window: 8192", true, "reachable", "", "it lists none"},
		"anthropic":       {"provider: anthropic, model: claude-sonnet-5, base_url: URL/claude, api_key: sk-right-canary", true, "key accepted, the model is there, reads 1000000 tokens", "", "an answer"},
		"not anthropic":   {"provider: anthropic, model: claude-sonet-5, base_url: URL/claude, api_key: sk-right-canary", false, `did you mean "claude-sonnet-5"?`, "correct model:", ""},
		"gemini":          {"provider: gemini, model: gemini-2.5-pro, base_url: URL/gem, api_key: sk-right-canary", true, "reads 1048576 tokens, of which 200000 are used", "", "an answer"},
		"gemini's key":    {"provider: gemini, model: gemini-2.5-pro, base_url: URL/gem, api_key: sk-wrong-canary", false, "the key is not accepted", "rouse secrets set NAME", ""},
		"ollama":          {"provider: ollama, model: 'qwen3:8b', base_url: URL/oll", true, "the model is there, reads 40960 tokens, of which 16384 are used", "", "an answer"},
		"not pulled":      {"provider: ollama, model: 'qwen3:9b', base_url: URL/oll", false, `did you mean "qwen3:8b"?`, "ollama pull qwen3:9b", ""},
		"without tools":   {"provider: ollama, model: 'old:1b', base_url: URL/oll", false, "it cannot call tools", "choose a model that can", ""},
		"nobody is there": {"provider: openai, model: gpt-5-mini, base_url: 'http://127.0.0.1:1/v1'", false, "cannot be reached", "start the server", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := doctorOf(t, "name: m, price: {input: 1, output: 1}, "+strings.ReplaceAll(c.model, "URL", server.URL))
			checks, err := d.Doctor(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}

			got := checkNamed(t, checks, "model m")
			if got.OK != c.ok || !strings.Contains(got.Detail, c.detail) || !strings.Contains(got.Remedy, c.remedy) || !strings.Contains(got.NotTried, c.notTried) {
				t.Errorf("%+v", got)
			}
			if all, err := json.Marshal(checks); err != nil || strings.Contains(string(all), "canary") {
				t.Errorf("a key is told: %s (%v)", all, err)
			}
		})
	}

	t.Cleanup(func() {
		for _, one := range server.asked {
			if strings.Contains(one, "chat") || strings.Contains(one, "responses") || strings.Contains(one, "messages") || strings.Contains(one, "generate") {
				t.Errorf("a model was run: %s", one)
			}
		}
	})
}

// TestDoctorMeasuresByTheServer checks that prompts are compared with the context size that the
// server reports, not with the configured one.
func TestDoctorMeasuresByTheServer(t *testing.T) {
	t.Parallel()
	server := newListings(t)
	for _, window := range []string{"", ", context_window: 65536"} {
		d := doctorOf(t, "name: m, provider: openai, model: any, base_url: "+server.URL+"/small/v1"+window)
		checks, err := d.Doctor(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if c := checkNamed(t, checks, "contexts"); c.OK || !strings.Contains(c.Detail, "context_window: 1024") {
			t.Errorf("%+v", c)
		}
	}
}

// TestDoctorOffline checks that no network requests are sent and that the result reports this.
func TestDoctorOffline(t *testing.T) {
	t.Parallel()
	server := newListings(t)
	d := doctorOf(t, "name: m, provider: openai, model: x, base_url: "+server.URL+"/v1")
	checks, err := d.Doctor(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}

	if c := checkNamed(t, checks, "models"); c.NotTried != "their servers (--offline)" || len(server.asked) > 0 {
		t.Errorf("%+v, asked %v", c, server.asked)
	}
	if slices.ContainsFunc(checks, func(c api.Check) bool { return strings.HasPrefix(c.Name, "model ") }) {
		t.Errorf("%+v", checks)
	}
	if c := checkNamed(t, checks, "clock"); !c.OK || c.NotTried != "whether it is right: no server told its own" {
		t.Errorf("%+v", c)
	}
	if c := checkNamed(t, checks, "disk"); !strings.Contains(c.Detail, d.home.Dir+": ") || !strings.Contains(c.Detail, " left") {
		t.Errorf("%+v", c)
	}
}

// TestDoctorComparesClocks checks that the clock is compared with those of the servers.
func TestDoctorComparesClocks(t *testing.T) {
	t.Parallel()
	server := newListings(t)
	late := "name: m, provider: openai, model: qwen3-8b, base_url: " + server.URL + "/late/v1"
	d := doctorOf(t, late)
	checks, err := d.Doctor(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if c := checkNamed(t, checks, "clock"); c.OK || !strings.Contains(c.Detail, "it is 3h0m") || !strings.Contains(c.Detail, "ahead of that of "+server.URL) {
		t.Errorf("%+v", c)
	}

	d = doctorOf(t, strings.ReplaceAll(late, "/late/", "/"))
	if checks, err = d.Doctor(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if c := checkNamed(t, checks, "clock"); !c.OK || c.NotTried != "" {
		t.Errorf("%+v", c)
	}
}

// The number of notices is not reported if counting stopped at its limit.
func TestDoctorCountsNotices(t *testing.T) {
	t.Parallel()
	d := doctorOf(t, "name: m, provider: openai, model: x, base_url: http://127.0.0.1:1/v1")
	for _, c := range []struct {
		more int
		want string
	}{{0, "empty"}, {1, "1 notice not delivered; the latest: "}, {99, "100 notices not delivered; "}, {1, "more than 100 notices not delivered; "}} {
		for range c.more {
			if err := d.ledger.Outbox.Append(t.Context(), ledger.Notice{Channel: "desktop", Title: "t"}); err != nil {
				t.Fatal(err)
			}
		}

		checks, err := d.Doctor(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		if got := checkNamed(t, checks, "outbox").Detail; !strings.HasPrefix(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
