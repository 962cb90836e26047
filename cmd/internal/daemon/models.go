package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"rouse/agent"
	"rouse/agent/model"
	"rouse/agent/model/anthropic"
	"rouse/agent/model/gemini"
	"rouse/agent/model/ollama"
	"rouse/agent/model/openai"
	"rouse/agent/model/replay"
	"rouse/agent/model/wire"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/dial"
	"rouse/internal/text"
)

// NewModels opens the configured models, by name.
func NewModels(cfg *config.Config, log *slog.Logger) (map[string]*agent.Model, error) {
	out := map[string]*agent.Model{}
	for i, m := range cfg.Models {
		provider, err := newProvider(m, log, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: model %s: %w", m.At, m.Name, err)
		}

		// A model without a known price costs nothing here; config refuses one where money is limited.
		rate, _ := m.Rate()
		_, listed := model.Lookup(m.Model) // of others the server knows more
		out[string(m.Name)] = &agent.Model{Name: string(m.Name), Provider: provider, MaxOutput: m.MaxOutput, Window: m.Window(), Temperature: m.Temperature, Price: rate,
			Where: cfg.Where(m.At), Obstacles: secretObstacles(cfg, fmt.Sprintf("models[%d].", i)), Nearby: m.Provider == "ollama", AsksWindow: !listed}
	}

	// A fallback may be declared after the model that names it.
	for _, m := range cfg.Models {
		out[string(m.Name)].Fallback = out[m.Fallback]
	}

	return out, nil
}

// newProvider picks the protocol that a model is reached by. Without a transport the provider has a connection pool of its own.
func newProvider(m config.Model, log *slog.Logger, transport http.RoundTripper) (model.Provider, error) {
	e := wire.Endpoint{
		BaseURL: m.BaseURL, APIKey: m.APIKey, Model: m.Model, Headers: m.Headers,
		Timeout: time.Duration(m.Timeout), Idle: time.Duration(m.Idle), Logger: log, Transport: transport,
	}
	switch m.Provider {
	case "replay":
		return replay.Open(string(m.Recording))
	case "anthropic":
		return anthropic.New(e)
	case "gemini":
		return gemini.New(e)
	case "ollama":
		return ollama.New(ollama.Options{Endpoint: e, ContextWindow: m.ContextWindow})
	}

	// Every other provider has the protocol of OpenAI, in one of its two forms.
	if m.API == "responses" {
		return openai.NewResponses(e)
	}
	return openai.New(e)
}

const (
	findOllamaTimeout = 2 * time.Second // for all requests together
	maxOllamaModels   = 10              // that are asked for their capabilities
)

type ollamaModel struct {
	Name       string    `json:"name"`
	RemoteHost string    `json:"remote_host"` // set if Ollama only forwards to it
	Modified   time.Time `json:"modified_at"`
}

// FindOllama looks for an Ollama on this machine, and for its newest local model that can call tools.
func FindOllama(getenv func(string) string) (name, address string, ok bool) {
	address, local := ollamaAddress(getenv("OLLAMA_HOST"))
	if !local {
		// A model elsewhere must be configured: nothing leaves this machine unasked.
		return "", "", false
	}

	ctx, cancel := context.WithTimeout(context.Background(), findOllamaTimeout)
	defer cancel()

	var list struct {
		Models []ollamaModel `json:"models"`
	}
	if err := askOllama(ctx, address+"/api/tags", nil, &list); err != nil {
		return "", "", false
	}

	// By name among equals, so that the choice does not change between starts.
	slices.SortStableFunc(list.Models, func(a, b ollamaModel) int {
		return cmp.Or(b.Modified.Compare(a.Modified), strings.Compare(a.Name, b.Name))
	})

	for _, m := range list.Models[:min(len(list.Models), maxOllamaModels)] {
		var about struct {
			Capabilities []string `json:"capabilities"`
			RemoteHost   string   `json:"remote_host"`
		}
		if m.Name == "" || m.RemoteHost != "" || askOllama(ctx, address+"/api/show", map[string]string{"model": m.Name}, &about) != nil {
			continue
		}
		if about.RemoteHost == "" && slices.Contains(about.Capabilities, "tools") {
			return m.Name, address, true
		}
	}

	return "", "", false
}

// ollamaAddress returns the address in OLLAMA_HOST, and whether it is on this machine.
func ollamaAddress(host string) (address string, local bool) {
	const port = "11434"
	if host = strings.TrimSpace(host); host == "" {
		return "http://127.0.0.1:" + port, true
	}

	if !strings.Contains(host, "://") {
		host = "http://" + host
	}

	u, err := url.Parse(host)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "", false
	}

	name, own := u.Hostname(), u.Port()
	if ip := net.ParseIP(name); name == "" || ip != nil && ip.IsUnspecified() {
		// The server may share the variable, where it means all addresses.
		name = "127.0.0.1"
	}
	if ip := net.ParseIP(name); !strings.EqualFold(name, "localhost") && (ip == nil || !ip.IsLoopback()) {
		return "", false
	}

	return u.Scheme + "://" + net.JoinHostPort(name, cmp.Or(own, port)), true
}

func askOllama(ctx context.Context, address string, question, answer any) error {
	method, body := http.MethodGet, io.Reader(nil)
	if question != nil {
		text, err := json.Marshal(question)
		if err != nil {
			return err
		}
		method, body = http.MethodPost, bytes.NewReader(text)
	}

	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return err
	}
	// Without a proxy: the server is on this machine. A redirect leads to no other server of it.
	client := &http.Client{Transport: dial.New(dial.Options{Own: []string{address}})}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}

	return json.NewDecoder(io.LimitReader(resp.Body, 8<<20)).Decode(answer)
}

// askTimeout bounds what doctor asks of servers, which it asks all at once.
const askTimeout = 8 * time.Second

// askedServer is what became of asking a model's server.
type askedServer struct {
	listing model.Listing
	at      time.Time // this machine's clock when it had answered
	err     error
	none    bool // there is no server
}

// askServers asks the server of each configured model for its models. That runs no model, and costs nothing.
func (d *Daemon) askServers(ctx context.Context, s *Setup) []askedServer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()

	out := make([]askedServer, len(s.Config.Models))
	var all sync.WaitGroup
	for i, m := range s.Config.Models {
		all.Go(func() {
			// Without its key it would only be refused.
			if held := secretObstacles(s.Config, fmt.Sprintf("models[%d].", i)); len(held) > 0 {
				out[i].err = errors.New(held[0].Text)
				return
			}
			provider, err := newProvider(m, d.log, nil)
			if err != nil {
				out[i].err = err
				return
			}

			lister, ok := provider.(model.Lister)
			if !ok {
				out[i].none = true
				return
			}
			out[i].listing, out[i].err = lister.List(ctx)
			out[i].at = time.Now()
		})
	}
	all.Wait()

	return out
}

// learnContexts notes the sizes of contexts that the servers name, so that prompts are measured against them.
func (s *Setup) learnContexts(asked []askedServer) {
	for i, m := range s.Config.Models {
		if s.plan != nil && asked[i].err == nil {
			s.plan.Plan.LearnContext(string(m.Name), asked[i].listing.Window)
		}
	}
}

// checkServers checks the server, the key, the name and the context of each model that was asked.
func checkServers(s *Setup, asked []askedServer) []api.Check {
	var out []api.Check
	for i, a := range asked {
		out = append(out, checkServer(s.Config.Models[i], a))
	}
	return out
}

func checkServer(m config.Model, asked askedServer) api.Check {
	l := asked.listing
	name, at := "model "+string(m.Name), fmt.Sprintf("%s at %s", m.Model, l.Server)
	fail := func(remedy, format string, args ...any) api.Check {
		return failed(name, at+": "+fmt.Sprintf(format, args...), remedy)
	}

	var refused *model.Error
	window := m.Window()
	switch {
	case asked.none:
		c := passed(name, "it answers from "+string(m.Recording))
		c.NotTried = "a server: there is none"
		return c
	case errors.As(asked.err, &refused) && refused.Kind == model.KindAuth:
		return fail("set the key again where api_key names it: rouse secrets set NAME, or the variable", "the key is not accepted: %s", refused.Message)
	case errors.As(asked.err, &refused) && refused.Kind == model.KindUnavailable: // its message names server and model
		return failed(name, refused.Error(), "start the server, or see to base_url and the network; rouse doctor --offline leaves servers out")
	case asked.err != nil:
		return undone(name, asked.err)
	case l.Known && !l.Has && m.Provider == "ollama":
		return fail("ollama pull "+m.Model+", or name a model that is there", "%s", missingModel(m.Model, l.Models))
	case l.Known && !l.Has:
		return fail("correct model: in the configuration, or ask for access to it", "%s", missingModel(m.Model, l.Models))
	case l.NoTool:
		return fail("choose a model that can; playbooks need none", "it cannot call tools, which every prompt needs")
	case l.Window > 0 && window > l.Window:
		return fail(fmt.Sprintf("set context_window: %d, or choose a larger model", l.Window), "it reads %d tokens, and %d are counted on (context_window); runs use no more than the server reads", l.Window, window)
	}

	found := []string{"reachable"}
	untried := []string{fmt.Sprintf("an answer, which may cost (rouse selftest --model %s)", m.Name)}
	if m.APIKey != "" && l.Known {
		found = append(found, "key accepted")
	}
	if l.Has {
		found = append(found, "the model is there")
	} else {
		untried = append(untried, "whether it takes the key and has the model: it lists none")
	}
	switch {
	case l.Window > 0 && window > 0:
		found = append(found, fmt.Sprintf("reads %d tokens, of which %d are used", l.Window, window))
	case l.Window > 0:
		found = append(found, fmt.Sprintf("reads %d tokens", l.Window))
	case window > 0:
		untried = append(untried, fmt.Sprintf("whether it reads the %d tokens that are counted on: the server does not say", window))
	default:
		untried = append(untried, "how many tokens it reads: the server does not say, and context_window neither")
	}
	c := passed(name, at+": "+strings.Join(found, ", "))
	c.NotTried = strings.Join(untried, "; ")
	return c
}

// missingModel says that a server has no such model, and which was probably meant.
func missingModel(name string, has []string) string {
	if len(has) == 0 {
		return "the server has no models"
	}
	const most = 20 // some servers have hundreds
	if ask := text.DidYouMean(name, has); ask != "" {
		return "the server does not have it; " + ask
	}
	return "the server does not have it; there are " + text.List(has, most)
}

// checkExecutors looks for the programs of executors and their logins. It starts none of them.
func (s *Setup) checkExecutors() (out []api.Check) {
	seen := map[string]bool{}
	add := func(agent string, enabled *bool, e *config.Executor) {
		if e == nil || !config.On(enabled) || seen[agent+" "+e.Argv[0]] {
			return
		}
		seen[agent+" "+e.Argv[0]] = true
		out = append(out, checkExecutor(agent, e))
	}
	for i := range s.Config.Jobs {
		j := &s.Config.Jobs[i]
		add(j.Agent, j.Enabled, s.Config.ExecutorOf(j))
	}
	for _, a := range s.Config.Agents {
		add(string(a.Name), a.Enabled, a.Executor)
	}
	return out
}

func checkExecutor(agent string, e *config.Executor) api.Check {
	name := "executor " + filepath.Base(e.Argv[0])
	located, err := e.Locate()
	if err != nil {
		return failed(name, fmt.Sprintf("of %s: %v", agent, err), "install the program, or write its path in executor.argv; each run fails until then")
	}
	c := passed(name, fmt.Sprintf("of %s: %s", agent, located.Path))
	if missing := e.MissingLogins(); len(missing) > 0 {
		c = failed(name, c.Detail+"; these are not there: "+strings.Join(missing, ", "), "sign in with the program, or take them out of executor.login")
	}
	c.NotTried = "whether it starts and is signed in (a run tells)"
	return c
}
