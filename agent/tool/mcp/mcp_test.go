package mcp_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"rouse/agent/tool"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/shell"
)

// over returns the reference server of the SDK on both transports.
func over(t *testing.T) map[string]func(*bench) mcp.Server {
	t.Helper()
	server := good()
	web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	t.Cleanup(web.Close)
	return map[string]func(*bench) mcp.Server{
		"stdio": func(b *bench) mcp.Server { return b.server("good") },
		"http": func(*bench) mcp.Server {
			return mcp.Server{Name: "srv", URL: web.URL, Near: true, Start: patience, Timeout: patience}
		},
	}
}

// TestReference: OSL-33, the tools of a server of the official SDK can be called on both transports
// only after approval. Results become text, data and pictures. Requests of the server are declined.
func TestReference(t *testing.T) {
	t.Parallel()
	for name, make := range over(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			s := make(b)
			if e := b.call(s, "add", nil); e.OK || e.Kind != tool.KindRejected || !strings.Contains(e.Message, "is not approved") {
				t.Errorf("before it is approved: %+v", e)
			}
			b.approve(s)

			one := b.sessions()
			defer one.Close()
			if e := b.callIn(one, s, "add", map[string]any{"a": 2, "b": 3}); !e.OK || string(e.Result) != `{"structured":{"sum":5}}` {
				t.Errorf("add: %+v", e)
			}
			if e := b.callIn(one, s, "add", map[string]any{"a": "x", "b": 3}); e.OK || e.Kind != tool.KindInvalidArgs || e.Field != "a" {
				t.Errorf("wrong arguments reached the server: %+v", e)
			}
			if e := b.callIn(one, s, "fail", nil); e.OK || e.Kind != tool.KindExecutionError || e.Message != "it is broken here" || e.Uncertain {
				t.Errorf("fail: %+v", e)
			}

			e := b.callIn(one, s, "many", nil)
			var got struct {
				Text  string
				Links []struct{ URI string }
				Files []struct {
					Name string
					Type string `json:"media_type"`
					Size int
					Path string
				}
			}
			if err := json.Unmarshal(e.Result, &got); err != nil || got.Text != "one\ntwo" || len(got.Links) != 1 || len(e.Images) != 1 || len(e.Warnings) != 0 || fmt.Sprint(got.Files) != "[{file.svg image/svg+xml 6 /kept/1-file.svg} {file.wav audio/wav 2 /kept/2-file.wav} {z.bin application/octet-stream 2 /kept/3-z.bin}]" {
				t.Errorf("many: %+v %s (%v)", e, e.Result, err)
			}

			if e := b.callIn(one, s, "asks", nil); !strings.Contains(string(e.Result), "roots: true sampling: true elicitation: true") {
				t.Errorf("asks: %s %+v", e.Result, e)
			}
			for _, news := range b.news {
				t.Errorf("nothing has changed, and its owner was told: %s", news)
			}
		})
	}
}

// TestHostile checks that every behavior of a server leads to a clear error, in bounded time and
// memory.
func TestHostile(t *testing.T) {
	t.Parallel()
	for role, want := range map[string]struct {
		call   bool // the server is only asked for its tools
		kind   tool.Kind
		says   string
		unsure bool // the call may have taken effect
	}{
		"silent":      {says: "did not answer within"},
		"deaf":        {says: "did not answer within"},
		"gone":        {says: "exit code 3, and said: cannot find its module"},
		"noise":       {call: true},
		"noise-logs":  {call: true},
		"noise-flood": {says: "lines that answer nothing"},
		"garbage":     {call: true},
		"call-noise":  {call: true, kind: tool.KindTimeout, says: `that are not messages: 1, the first is "[ERROR] the answer is lost"`, unsure: true},
		"huge":        {says: "more than 8.0 MiB"},
		"endless":     {says: "more than 8.0 MiB"},
		"version":     {says: "1999-01-01"},
		"banner":      {call: true},
		"stderr":      {call: true},
		"list-silent": {says: "did not say within"},
		"list-pages":  {says: "pages"},
		"list-many":   {says: "more than 512 tools"},
		"list-twice":  {says: "two tools of the name"},
		"list-flood":  {says: "lines that answer nothing"},
		"list-error":  {says: "error -32000: no tools today"},
		"list-wrong":  {says: "tools"},
		"call-silent": {call: true, kind: tool.KindTimeout, says: "did not answer within", unsure: true},
		"call-dies":   {call: true, kind: tool.KindUnavailable, says: "exit code 2, and said: out of memory", unsure: true},
		"call-flood":  {call: true, kind: tool.KindUnavailable, says: "lines that answer nothing", unsure: true},
		"call-wrong":  {call: true, kind: tool.KindUnavailable, says: "", unsure: true},
		"call-error":  {call: true, kind: tool.KindExecutionError, says: "error -32603: no luck"},
		"call-huge":   {call: true},
		"call-asks":   {call: true},
	} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			s := b.server(role)
			if strings.Contains(want.says, "within") || role == "call-noise" {
				s.Timeout = time.Second
				if !want.call {
					s.Start = 3 * time.Second
				}
				if role == "list-silent" {
					s.Start = 10 * time.Second // time in which it must have started
				}
			}

			one := b.sessions()
			defer one.Close()
			err := one.Look(t.Context(), s)
			if !want.call {
				if err == nil || !strings.Contains(err.Error(), want.says) || strings.Contains(err.Error(), "\x1b") {
					t.Errorf("%v, want: %s", err, want.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}

			if _, _, err := b.book.Approve(s, nil, nil); err != nil {
				t.Fatal(err)
			}
			e := b.call(s, "t", nil)
			if e.Kind != want.kind || !strings.Contains(e.Message, want.says) || e.Uncertain != want.unsure || e.OK != (want.kind == "") {
				t.Errorf("%+v", e)
			}
			if asked := strings.Join(b.declined, " "); role == "call-asks" && asked != "sampling/createMessage" {
				t.Errorf("what it asked for is told as %q", asked)
			}
			if len(e.Result) > 1<<20 {
				t.Errorf("the result has %d bytes", len(e.Result))
			}
		})
	}
}

// TestNoise checks that lines that are not messages are counted for the owner, together with the
// first of them.
func TestNoise(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.server("noise-logs")
	b.approve(s)
	rec, err := b.book.Of(s)
	if want := `skipped lines of its standard output that are not messages: 9, the first is "[INFO] *** started"`; err != nil || rec.Noise != want {
		t.Errorf("%q (%v), want %q", rec.Noise, err, want)
	}
	quiet := b.server("good")
	b.approve(quiet)
	if rec, err := b.book.Of(quiet); err != nil || rec.Noise != "" {
		t.Errorf("a server without noise: %q (%v)", rec.Noise, err)
	}
}

// TestUnusable checks that tools with unusable names, descriptions or schemas are reported with the
// reason and never approved.
func TestUnusable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.server("bad-tools")
	b.approve(s)
	rec, err := b.book.Of(s)
	if err != nil {
		t.Fatal(err)
	}

	if got := len(rec.ApprovedTools(s)); got != 1 {
		t.Errorf("%d tools are approved", got)
	}
	states := map[string]mcp.ToolState{}
	for _, st := range rec.States(s) {
		states[st.Name] = st
	}
	for name, want := range map[string]string{
		"with blank": "no name", strings.Repeat("n", 80): "no name", "nö": "no name", "esc\x1b[2J": "no name", "loop": "without end", "self": "refers", "far": "not fetched",
		"wide": "bytes", "bomb": "end", "list": "not that of an object", "none": "properties", "deep": "too deep",
	} {
		if st := states[name]; st.Status != mcp.StatusUnusable || !strings.Contains(st.Why, want) {
			t.Errorf("%s: %q %s, want %s", name, st.Status, st.Why, want)
		}
	}
	if strings.Contains(rec.Says, "\x1b") {
		t.Errorf("it calls itself %q", rec.Says)
	}
}

// TestChanged checks that a changed tool is off until its owner approves it, whether it changes
// between two runs or during one. Its owner is told of a change once.
func TestChanged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.server("changes")
	b.approve(s)

	one := b.sessions()
	defer one.Close()
	if e := b.callIn(one, s, "t", nil); !e.OK {
		t.Errorf("the first call: %+v", e)
	}
	for range 2 { // it has reported in the meantime that its tools have changed
		if e := b.callIn(one, s, "t", nil); e.OK || e.Kind != tool.KindRejected || !strings.Contains(e.Message, "has changed its tool t since") || e.Uncertain {
			t.Errorf("after the change: %+v", e)
		}
	}
	if len(b.news) != 1 || b.news[0] != "changed: t; new: new" {
		t.Errorf("its owner was told %q", b.news)
	}

	rec, err := b.book.Of(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range rec.States(s) {
		if st.Name == "t" && (st.Status != mcp.StatusChanged || !strings.Contains(st.Difference, `+  "description": "A tool. IGNORE`)) {
			t.Errorf("%+v", st)
		}
	}

	// Approvals do not apply to another program of the same name.
	other := b.server("changed")
	other.Argv = append(other.Argv, "other")
	if e := b.call(other, "t", nil); e.OK || !strings.Contains(e.Message, "is not approved") {
		t.Errorf("another program: %+v", e)
	}
	// The same program with other tools is off until they are approved.
	again := b.server("changed")
	if e := b.call(again, "t", nil); e.OK || !strings.Contains(e.Message, "has changed") {
		t.Errorf("other tools: %+v", e)
	}
	if _, _, err := b.book.Approve(again, []string{"t"}, nil); err != nil {
		t.Fatal(err)
	}
	if e := b.call(again, "t", nil); !e.OK {
		t.Errorf("approved again: %+v", e)
	}
	if e := b.call(b.server("shrunk"), "t", nil); e.OK || e.Kind != tool.KindNotFound {
		t.Errorf("a tool that is gone: %+v", e)
	}
	if _, err := b.book.Revoke(again, nil); err != nil {
		t.Fatal(err)
	}
	if e := b.call(again, "t", nil); e.OK || e.Kind != tool.KindRejected {
		t.Errorf("revoked: %+v", e)
	}
}

// TestDamagedBook checks that a damaged file approves nothing.
func TestDamagedBook(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.server("good")
	b.approve(s)
	if err := os.WriteFile(filepath.Join(b.dir, "mcp", "srv.json"), []byte(`{"approved": [`), 0o600); err != nil {
		t.Fatal(err)
	}
	if rec, err := b.book.Of(s); err == nil || len(rec.Approved) > 0 || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("%+v, %v", rec, err)
	}
}

// TestConfined checks that a server reads, writes and reaches only what its owner allows, and does
// not see the environment.
func TestConfined(t *testing.T) {
	t.Setenv("ROUSE_TEST_CANARY", "canary-of-the-environment")
	b := newBench(t)
	if tier := b.launcher.Tier(t.Context()); tier > "B" {
		t.Skipf("programs are confined on tier %s here", tier)
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()

	secret, inside, out := filepath.Join(b.dir, "secret"), filepath.Join(b.dir, "work", "mine"), filepath.Join(b.dir, "out")
	for _, path := range []string{secret, inside} {
		if err := os.WriteFile(path, []byte("content of "+filepath.Base(path)), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for files, want := range map[shell.Exposure][]string{
		shell.ExposeNothing: {"nothing", "nothing", "nothing", "nothing", "nothing"},
		shell.ExposeReading: {"nothing", "content of mine", "nothing", "nothing", "nothing"},
		shell.ExposeWriting: {"nothing", "content of mine", "nothing", "written", "nothing"},
	} {
		s := b.server("good")
		s.Files = files
		b.approve(s)
		var got []string
		for _, args := range []map[string]any{{"read": secret}, {"read": inside}, {"write": out}, {"write": inside + string(files)}, {"dial": listener.Addr().String()}} {
			var res struct{ Text string }
			if e := b.call(s, "reach", args); json.Unmarshal(e.Result, &res) != nil {
				t.Fatalf("%+v", e)
			}
			if args["write"] == out { // it may write in a private view; only the real file counts
				res.Text = "nothing"
			}
			got = append(got, res.Text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("files: %s: %q, want %q", files, got, want)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("files: %s: it wrote outside", files)
		}
	}

	if e := b.call(b.server("good"), "env", nil); strings.Contains(string(e.Result), "ROUSE_TEST_CANARY") {
		t.Errorf("it sees the environment of the daemon: %s", e.Result)
	}
}

// TestGuard checks that a server with a URL is contacted at that URL only, and on a private network
// only if its owner allows it.
func TestGuard(t *testing.T) {
	t.Parallel()
	inner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.Errorf("it was asked: %s", r.URL) }))
	t.Cleanup(inner.Close)
	moved := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer canary" {
			t.Errorf("its headers are %v", r.Header)
		}
		http.Redirect(w, r, inner.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(moved.Close)
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		line := []byte(strings.Repeat(" ", 1<<20))
		for range 40 {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}))
	t.Cleanup(endless.Close)

	local := func(u string) string { return strings.Replace(u, "127.0.0.1", "localhost", 1) }
	for name, c := range map[string]struct {
		s    mcp.Server
		says string
	}{
		"within":   {mcp.Server{URL: local(inner.URL)}, "localhost"},
		"redirect": {mcp.Server{URL: moved.URL, Near: true, Headers: map[string]string{"Authorization": "Bearer canary"}}, "leads elsewhere"},
		"endless":  {mcp.Server{URL: endless.URL, Near: true}, "more than 16 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			c.s.Name, c.s.Start = "srv", 10*time.Second
			one := b.sessions()
			defer one.Close()
			if err := one.Look(t.Context(), c.s); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want: %s", err, c.says)
			}
		})
	}
}

// TestRestarted checks that a server that dies is started again for the next call, a limited number
// of times.
func TestRestarted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.server("call-dies")
	b.approve(s)
	one := b.sessions()
	defer one.Close()
	for i := range 7 {
		e := b.callIn(one, s, "t", nil)
		if again := strings.Contains(e.Message, "not started again"); e.OK || again != (i >= 5) || again == e.Uncertain {
			t.Errorf("call %d: %+v", i, e)
		}
	}
}

// TestEnds checks that servers end with their run, whatever they are doing, and leave nothing
// behind.
func TestEnds(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"good", "call-silent"} {
		b := newBench(t)
		s := b.server(role)
		b.approve(s)
		one := b.sessions()
		name := "t"
		if role == "good" {
			name = "add"
		}
		s.Timeout = time.Second
		b.callIn(one, s, name, map[string]any{"a": 1, "b": 2})
		one.Close()
		if left, err := os.ReadDir(filepath.Join(b.dir, "scratch")); err != nil || len(left) > 0 {
			t.Errorf("%s: %v is left (%v)", role, left, err)
		}
		if e := b.callIn(one, s, name, map[string]any{"a": 1, "b": 2}); e.OK || !strings.Contains(e.Message, "the run is over") {
			t.Errorf("%s: %+v", role, e)
		}
	}
}

// TestNeeds checks that the need of a call follows from the owner's configuration and never from
// the server's declarations.
func TestNeeds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.server("good")
	b.approve(s)
	for name, c := range map[string]struct {
		change func(*mcp.Server)
		taint  string
		asks   bool
	}{
		"confined": {func(*mcp.Server) {}, "A", false},
		"network":  {func(s *mcp.Server) { s.Network = true }, "AC", false},
		"private":  {func(s *mcp.Server) { s.Private = true }, "AB", false},
		"asked":    {func(s *mcp.Server) { s.Ask = []string{"a*"} }, "A", true},
	} {
		s := s
		c.change(&s)
		one := b.sessions()
		add, ok := b.tools(one, s).Lookup("srv__add")
		if !ok {
			t.Fatal("there is no tool")
		}
		n, err := add.Access(t.Context(), tool.Invocation{}, json.RawMessage(`{"a":1,"b":2}`))
		if err != nil || n.AddsTaint.String() != c.taint || n.NeedsApproval != c.asks || n.MissingGrant != "" {
			t.Errorf("%s: %+v (%v)", name, n, err)
		}
		// Files that a run has written in the program's folders carry the labels of the run.
		if len(n.Reads) != len(s.Read) {
			t.Errorf("%s: of %q it reads %+v", name, s.Read, n.Reads)
		}
	}

	s.ReadOnly = []string{"add"}
	add, _ := b.tools(b.sessions(), s).Lookup("srv__add")
	fail, _ := b.tools(b.sessions(), s).Lookup("srv__fail")
	if add.EffectOf(nil) != "read" || fail.EffectOf(nil) != "external" {
		t.Errorf("effects: %s, %s", add.EffectOf(nil), fail.EffectOf(nil))
	}
}

// TestSchemas checks that local references are expanded and unsupported keywords dropped.
func TestSchemas(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`{}`: `{"type":"object"}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"type":"string","pattern":"(?<=x)y"}}}`:                                             `{"properties":{"a":{"type":"string"}},"type":"object"}`,
		`{"type":"object","properties":{"p":{"$ref":"#/$defs/P","description":"here"}},"$defs":{"P":{"type":"object","description":"there","properties":{"n":{"type":"integer"}}}}}`: `{"properties":{"p":{"description":"here","properties":{"n":{"type":"integer"}},"type":"object"}},"type":"object"}`,
		`{"type":"object","properties":{"definitions":{"type":"string"},"title":{"type":"string"}},"required":["title"]}`:                                                            `{"properties":{"definitions":{"type":"string"},"title":{"type":"string"}},"required":["title"],"type":"object"}`,
		`{"type":"object","properties":{"e":{"enum":["$ref",{"$ref":"#/nowhere"}]}}}`:                                                                                                "refers",
	} {
		d := mcp.Definition{Name: "t", Said: json.RawMessage(fmt.Sprintf(`{"inputSchema":%s}`, given))}
		got, err := d.Schema("srv")
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", given, err)
			}
			continue
		}
		if string(got) != want {
			t.Errorf("%s:\n%s, want\n%s", given, got, want)
		}
	}
}

// TestSignIn: OSL-33, rouse discovers the sign-in of a server, registers itself and uses the token.
// Addresses unrelated to the server are not contacted.
func TestSignIn(t *testing.T) {
	t.Parallel()
	var site *httptest.Server
	registered, token := 0, "token-1"
	mux := http.NewServeMux()
	inner := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return good() }, nil)
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+site.URL+`/meta", scope="read write"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	})
	answer := func(path string, v func() any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v())
		})
	}
	issuer := func() string { return site.URL + "/as" }
	answer("/meta", func() any {
		return map[string]any{"resource": site.URL + "/mcp", "authorization_servers": []string{issuer()}}
	})
	answer("/.well-known/oauth-authorization-server/as", func() any {
		return map[string]any{"issuer": issuer(), "authorization_endpoint": site.URL + "/authorize", "token_endpoint": site.URL + "/token", "registration_endpoint": site.URL + "/register",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"}}
	})
	mux.HandleFunc("/register", func(w http.ResponseWriter, _ *http.Request) {
		registered++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"client_id":"rouse-1","redirect_uris":["http://127.0.0.1:1/mcp/callback"],"token_endpoint_auth_method":"none"}`))
	})
	site = httptest.NewServer(mux)
	t.Cleanup(site.Close)

	b := newBench(t)
	s := mcp.Server{Name: "srv", URL: site.URL + "/mcp", Near: true, Start: patience, Timeout: patience}
	one := b.sessions()
	defer one.Close()
	if err := one.Look(t.Context(), s); err == nil || !strings.Contains(err.Error(), "rouse mcp-servers sign-in srv") {
		t.Errorf("without a token: %v", err)
	}

	c, err := mcp.Discover(t.Context(), s, "http://127.0.0.1:1/mcp/callback", nil)
	if err != nil || c.ID != "rouse-1" || c.AuthorizationURL != site.URL+"/authorize" || c.TokenURL != site.URL+"/token" || c.Resource != s.URL || strings.Join(c.Scopes, " ") != "read write" {
		t.Fatalf("%+v (%v)", c, err)
	}
	if again, err := mcp.Discover(t.Context(), s, "http://127.0.0.1:1/mcp/callback", c); err != nil || again.ID != c.ID || registered != 1 {
		t.Errorf("registered %d times: %+v (%v)", registered, again, err)
	}

	// The secret of a registered client goes only to the configured issuer, whichever issuer the
	// server names.
	named := s
	named.OAuth = &mcp.OAuth{Issuer: issuer() + "/", ClientID: "mine", ClientSecret: "canary"}
	if c, err := mcp.Discover(t.Context(), named, "http://127.0.0.1:1/mcp/callback", nil); err != nil || c.ID != "mine" || named.Check() != nil {
		t.Errorf("its issuer: %+v (%v)", c, err)
	}
	named.OAuth.Issuer = "https://as.example"
	if c, err := mcp.Discover(t.Context(), named, "http://127.0.0.1:1/mcp/callback", nil); err == nil || !strings.Contains(err.Error(), "its oauth.issuer is https://as.example") {
		t.Errorf("another issuer: %+v (%v)", c, err)
	}
	if named.OAuth.Issuer = ""; named.Check() == nil {
		t.Error("a secret without an issuer is taken")
	}

	// A rejected token is refreshed once.
	asked := []string{}
	signed := mcp.NewSessions(mcp.SessionOptions{Book: b.book, Tokens: func(mcp.Server) mcp.Tokens {
		return func(_ context.Context, had string) (string, error) {
			asked = append(asked, had)
			if had == "" {
				return "old", nil
			}
			return token, nil
		}
	}})
	defer signed.Close()
	if err := signed.Look(t.Context(), s); err != nil || !slices.Contains(asked, "old") {
		t.Errorf("with a token: %v, %q", err, asked)
	}

}

// TestSignInAddresses checks that addresses for a sign-in that a local server names are not
// contacted unless the owner configured them.
func TestSignInAddresses(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(elsewhere.Close)
	named := strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1)

	for name, c := range map[string]struct{ meta, issuer, token, link string }{
		"resource, by name": {meta: named + "/m"}, "resource": {meta: elsewhere.URL + "/m"}, "issuer": {issuer: elsewhere.URL}, "issuer, by name": {issuer: named},
		"issuer, mapped": {issuer: strings.Replace(elsewhere.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1)}, "issuer, https": {issuer: "https" + elsewhere.URL[4:]},
		"token": {token: elsewhere.URL + "/t"}, "token, by name": {token: named + "/t"}, "token, https": {token: "https" + elsewhere.URL[4:] + "/t"}, "link": {link: elsewhere.URL + "/a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var site *httptest.Server
			mux := http.NewServeMux()
			mux.HandleFunc("/mcp", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+cmp.Or(c.meta, site.URL+"/meta")+`"`)
				w.WriteHeader(http.StatusUnauthorized)
			})
			answer := func(path string, v func() any) {
				mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					_ = json.NewEncoder(w).Encode(v())
				})
			}
			answer("/meta", func() any {
				return map[string]any{"resource": site.URL + "/mcp", "authorization_servers": []string{cmp.Or(c.issuer, site.URL)}}
			})
			answer("/.well-known/oauth-authorization-server", func() any {
				return map[string]any{"issuer": site.URL, "authorization_endpoint": cmp.Or(c.link, site.URL+"/a"), "token_endpoint": cmp.Or(c.token, site.URL+"/t"), "code_challenge_methods_supported": []string{"S256"}}
			})
			site = httptest.NewServer(mux)
			t.Cleanup(site.Close)

			s := mcp.Server{Name: "srv", URL: site.URL + "/mcp", Near: true, OAuth: &mcp.OAuth{ClientID: "mine"}}
			found, err := mcp.Discover(t.Context(), s, "http://127.0.0.1:1/x", nil)
			if c.token == "" && c.link == "" {
				if err == nil {
					t.Errorf("it was discovered: %+v", found)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}

			send := mcp.SignInTransport(s)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, cmp.Or(c.token, c.link), strings.NewReader("code=canary"))
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := send.RoundTrip(r); err == nil {
				resp.Body.Close()
				t.Error("the code was sent")
			}
		})
	}
	t.Cleanup(func() {
		if n := asked.Load(); n > 0 {
			t.Errorf("the address that nobody configured was asked %d times", n)
		}
	})
}
