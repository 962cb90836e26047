package agent_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agent/tool/web"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
)

// webServers holds a server that agents are granted, a server that they are not granted, and their
// requests.
type webServers struct {
	granted, other *httptest.Server
	mu             sync.Mutex
	asked          []string
}

func (s *webServers) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.asked, ", ")
}

// network returns a bench with a clerk that may read one server.
func network(t *testing.T, turns ...modeltest.Turn) (*bench, *webServers) {
	t.Helper()
	s := &webServers{}
	serve := func(name string) *httptest.Server {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.asked = append(s.asked, strings.TrimSpace(name+" "+r.Method+" "+r.Header.Get("X-Key")+" "+string(body)))
			_, _ = io.WriteString(w, "words of a stranger")
		}))

		t.Cleanup(server.Close)
		return server
	}

	s.granted, s.other = serve("granted"), serve("other")
	for i := range turns {
		turns[i].Calls = slices.Clone(turns[i].Calls) // parallel tests share turns
		for j := range turns[i].Calls {
			c := &turns[i].Calls[j]
			c.Args = json.RawMessage(strings.NewReplacer("GRANTED", s.granted.URL, "OTHER", s.other.URL).Replace(string(c.Args)))
		}
	}

	b := setup(t, turns...)
	clerk := b.plan.Agents["clerk"]
	host := strings.TrimPrefix(s.granted.URL, "http://")
	clerk.Network = []web.Grant{{Host: host}}
	clerk.Secrets = []tool.SecretGrant{{Name: "bank", OnlyTo: host, Value: "sk-bank-0123"}, {Name: "weather", OnlyTo: host, Value: "sk-weather-0123", Public: true}}
	b.plan.Agents["clerk"], b.plan.Secrets = clerk, append(b.plan.Secrets, "sk-bank-0123", "sk-weather-0123")

	return b, s
}

func fetchCall(id, args string) model.Call {
	return model.Call{ID: id, Name: "web_fetch", Args: json.RawMessage(args)}
}

// TestWebIsAuthorized checks UNI-06: a granted host is read at once. A request to another host
// waits for the owner, exactly as it would be sent, and is sent once. A request to an internal
// address is refused without asking.
func TestWebIsAuthorized(t *testing.T) {
	t.Parallel()
	b, s := network(t,
		modeltest.Turn{Calls: []model.Call{fetchCall("1", `{"url":"GRANTED/page"}`), fetchCall("2", `{"url":"OTHER/page"}`)}},
		modeltest.Turn{Calls: []model.Call{fetchCall("3", `{"url":"GRANTED/form","method":"POST","headers":{"x-key":"__OSL_SECRET[weather]__"},"body":"text"}`)}},
		modeltest.Turn{Text: "Sent."})
	id := b.adhoc("Send it.")
	res := b.ends(id)
	if res.Wait == nil || res.Wait.Kind != inbox.KindApproval || s.all() != "granted GET" {
		t.Fatalf("%+v, asked %s", res, s.all())
	}

	item := b.open()
	if want := "POST " + s.granted.URL + "/form\nX-Key: __OSL_SECRET[weather]__\n\ntext\n"; item.Action.Description != want || !strings.Contains(item.Message, "is not among the grants") {
		t.Errorf("it is asked for %q, want %q: %s", item.Action.Description, want, item.Message)
	}

	b.say(inbox.ApprovalOnce)
	if res := b.ends(id); res.Outcome != domain.OutcomeSuccess || s.all() != "granted GET, granted POST sk-weather-0123 text" {
		t.Errorf("%+v, asked %s", res, s.all())
	}

	run, err := b.ledger.Runs.Get(t.Context(), id)
	if err != nil || run.Taint != "AC" {
		t.Errorf("the run has met %q (%v)", run.Taint, err)
	}

	calls, err := b.ledger.Steps.Calls(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, c := range calls {
		got = append(got, fmt.Sprint(c.Effect, " ", c.State))
	}

	// The effect of the interrupted last call is unknown. It does not matter for the others.
	if text := strings.Join(got, ", "); text != "read done, read failed, external done" {
		t.Errorf("the calls are %s", text)
	}
	if strings.Contains(fmt.Sprint(calls), "sk-weather") {
		t.Errorf("the record holds the secret: %v", calls)
	}
}

// TestNoApprovalInVain checks UNI-06: the owner is not asked about a call that no approval can
// allow. The answer has the reason, and the run continues.
func TestNoApprovalInVain(t *testing.T) {
	t.Parallel()
	read := fetchCall("0", `{"url":"GRANTED/page"}`) // untrusted content and external effects
	for name, c := range map[string]struct {
		first []model.Call
		call  model.Call
		want  string
	}{
		"a name of this machine": {nil, fetchCall("1", `{"url":"http://localhost:9/"}`), "localhost:9 leads to this machine, its network, or nobody, which no approval allows; its owner can allow it with private: true"},
		"an address within":      {nil, fetchCall("1", `{"url":"http://127.0.0.1:9/"}`), "is an address of this machine"},
		"what is not made again": {nil, fetchCall("1", `{"url":"GRANTED/form","method":"POST","body":"x","offset":9}`), "a POST is not made again to read on"},
		"no program":             {nil, model.Call{ID: "1", Name: "shell_run", Args: json.RawMessage(`{"command":"no-such-program-anywhere a"}`)}, "there is no program no-such-program-anywhere"},
		"no file to run":         {nil, model.Call{ID: "1", Name: "shell_run", Args: json.RawMessage(`{"command":"/usr/bin/no-such-program a"}`)}, "there is no /usr/bin/no-such-program to run"},
		"no such time":           {nil, model.Call{ID: "1", Name: "shell_run", Args: json.RawMessage(`{"command":"echo a","timeout":9000}`)}, "timeout is 9000 seconds"},
		"a secret by its name":   {[]model.Call{read}, model.Call{ID: "1", Name: "file_read", Args: json.RawMessage(`{"path":".env"}`)}, ".env holds secrets by its name"},
		"a masked place":         {[]model.Call{read}, model.Call{ID: "1", Name: "file_read", Args: json.RawMessage(`{"path":"hidden/x"}`)}, "hidden/x belongs to rouse itself"},
		"too much at once":       {[]model.Call{read}, model.Call{ID: "1", Name: "file_write", Args: json.RawMessage(`{"path":"kept.md","content":"` + strings.Repeat("x", 40_000) + `"}`)}, "the content has 40000 characters"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var turns []modeltest.Turn
			if c.first != nil {
				turns = append(turns, modeltest.Turn{Calls: c.first})
			}
			b, _ := network(t, append(turns, modeltest.Turn{Calls: []model.Call{c.call}}, modeltest.Turn{Text: "Not done."})...)
			clerk := b.plan.Agents["clerk"]
			clerk.Allow, clerk.PrivateFolders = []string{"?*"}, []string{clerk.Workdir}
			b.plan.Agents["clerk"] = clerk
			b.plan.Masks.Hidden = append(b.plan.Masks.Hidden, filepath.Join(clerk.Workdir, "hidden"))
			for _, file := range []string{".env", "hidden/x", "kept.md"} {
				path := filepath.Join(clerk.Workdir, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte("private"), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			res := b.ends(b.adhoc("Try."))
			if res.Wait != nil || !strings.Contains(b.heard(), c.want) {
				t.Errorf("waits for %+v; want %s in %s", res.Wait, c.want, b.heard())
			}
		})
	}
}

// TestWebSecrets checks that a secret for private data, untrusted content and external effects are
// the three labels. Then the owner is asked regardless of grants. A secret without private data is
// used at once.
func TestWebSecrets(t *testing.T) {
	t.Parallel()
	for name, asks := range map[string]bool{"bank": true, "weather": false} {
		b, s := network(t, modeltest.Turn{Calls: []model.Call{fetchCall("1", `{"url":"GRANTED/","headers":{"X-Key":"__OSL_SECRET[`+name+`]__"}}`)}}, modeltest.Turn{Text: "Read."})
		id := b.adhoc("Read it.")
		res := b.ends(id)
		if asked := res.Wait != nil; asked != asks || asks == (s.all() != "") {
			t.Errorf("%s: %+v, asked %q", name, res, s.all())
		}

		if asks {
			b.say(inbox.ApprovalAlways)
			res = b.ends(id)
		}
		if want := "granted GET sk-" + name + "-0123"; res.Outcome != domain.OutcomeSuccess || s.all() != want {
			t.Errorf("%s: %+v, asked %q", name, res, s.all())
		}
	}
}

// TestWebOfAList checks that an agent without network grants has no web_fetch, and that a playbook
// is limited to the grants.
func TestWebOfAList(t *testing.T) {
	t.Parallel()
	b, s := network(t)
	call := func(url, method string) []playbook.Call {
		return []playbook.Call{{Name: "web_fetch", With: map[string]any{"url": url, "method": method, "must_succeed": true}}}
	}
	b.plan.Jobs["read"] = plan.Job{Name: "read", Agent: "clerk", Playbook: call(s.granted.URL, "GET")}
	b.plan.Jobs["write"] = plan.Job{Name: "write", Agent: "clerk", Playbook: call(s.granted.URL, "DELETE")}
	b.plan.Jobs["none"] = plan.Job{Name: "none", Agent: "plain", Playbook: call(s.granted.URL, "GET")}
	if res := b.run(b.enqueue(ledger.Request{Job: "read", Agent: "clerk"})); res.Outcome != domain.OutcomeSuccess {
		t.Errorf("%+v", res)
	}
	if res := b.run(b.enqueue(ledger.Request{Job: "write", Agent: "clerk"})); res.Wait == nil {
		t.Errorf("%+v", res)
	}
	if res := b.run(b.enqueue(ledger.Request{Job: "none", Agent: "plain"})); res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, `there is no tool "web_fetch"`) {
		t.Errorf("%+v", res)
	}

	if s.all() != "granted GET" {
		t.Errorf("asked %s", s.all())
	}
}

// TestModelsHearNoSecrets checks that a secret in the result of a tool is redacted before it
// reaches a model, and that the result stays valid JSON. A number can be a secret too.
func TestModelsHearNoSecrets(t *testing.T) {
	t.Parallel()
	b := setup(t, modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "file_read", Args: json.RawMessage(`{"path":"note.txt"}`)}, {ID: "2", Name: "db_query", Args: json.RawMessage(`{"sql":"select 48392*10 pin, what key from log"}`)}}},
		modeltest.Turn{Text: "Read."})
	b.plan.Secrets = append(b.plan.Secrets, "483920")
	b.table()
	b.insert("sk-canary")
	if err := os.MkdirAll(filepath.Join(b.dir, "work"), 0o755); err != nil {
		t.Fatal(err)
	}

	b.has("note.txt", "the key is sk-canary, in Base64 "+base64.StdEncoding.EncodeToString([]byte("user:sk-canary-and-more")))
	id := b.adhoc("Read it.")
	if res := b.ends(id); res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", res)
	}

	for _, secret := range []string{"sk-canary", "483920", base64.StdEncoding.EncodeToString([]byte("user:sk-canary-and-more"))[8:24]} {
		if at := strings.Index(b.heard(), secret); at >= 0 {
			t.Errorf("the model heard %s: …%s", secret, b.heard()[max(at-50, 0):at+len(secret)])
		}
	}

	calls, err := b.ledger.Steps.Calls(t.Context(), id)
	if err != nil || len(calls) != 2 || !json.Valid(calls[1].Envelope) || !strings.Contains(string(calls[1].Envelope), `"pin":"[secret]"`) {
		t.Errorf("%v %s", err, calls[1].Envelope)
	}
}
