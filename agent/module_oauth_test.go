package agent_test

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent"
	"rouse/agent/plan"
	"rouse/agent/servers"
	"rouse/agent/tool"
	"rouse/agent/tool/moduleapi/signin"
	"rouse/agent/tool/moduleapi/signin/signintest"
	"rouse/agent/tool/web"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// whereBrowsersGo is a redirect address without a listener.
const whereBrowsersGo = "http://127.0.0.1:47110"

// signingIn returns a clerk with modules that can sign in at a server.
func signingIn(t *testing.T) (*bench, *signintest.Server, *signintest.Store) {
	t.Helper()
	b, s, k := setup(t), signintest.New(t), &signintest.Store{}
	b.signIns = &servers.SignInOptions{Store: k, Listen: func(context.Context) (string, error) { return whereBrowsersGo, nil }}
	clerk := b.plan.Agents["clerk"]
	clerk.Network = []web.Grant{{Host: s.Host(), Methods: []string{"GET", "POST"}}}
	clerk.Secrets = []tool.SecretGrant{{Name: "acme-id", OnlyTo: s.Host(), Value: signintest.ClientID, Public: true}, {Name: "acme-secret", OnlyTo: s.Host(), Value: signintest.ClientSecret, Public: true}}
	b.plan.Agents["clerk"], b.plan.Secrets = clerk, append(b.plan.Secrets, signintest.ClientID, signintest.ClientSecret)
	b.newPool()
	return b, s, k
}

// acme returns a manifest that signs in at a server.
func acme(s *signintest.Server, changes declares) declares {
	provider := declares{
		"providerId": "acme", "displayName": "Acme", "grantType": "authorization_code", "authorizationUrl": s.URL + "/authorize", "tokenUrl": s.URL + "/token",
		"scopes": []string{"read", "write"}, "pkceRequired": true, "clientIdBinding": "acme-id", "clientSecretBinding": "acme-secret", "redirectPath": "/callback",
		"redirectMode": "popup", "supportedEnvironments": []string{}, "responseMode": "query", "clientAuthenticationMethod": "client_secret_basic",
	}
	maps.Copy(provider, changes)
	return declares{
		"permissions": []any{permission("network", "api"), permission("storage", "own")}, "oauth": []any{provider},
		"requiredBindings": []any{
			declares{"name": "acme-id", "scope": "api", "description": "the client", "required": true},
			declares{"name": "acme-secret", "scope": "api", "description": "the client", "required": true},
			declares{"name": "acme-token", "scope": "api", "description": "the token", "required": true, "oauthProviderId": "acme"},
		},
		"sandbox": declares{"isolation": "standard", "maxExecutionMs": 20000, "maxMemoryMB": 64, "allowedGlobals": []string{},
			"networkRules": []any{declares{"urlPattern": s.URL + "/api/*", "methods": []string{"GET", "POST"}, "description": "the api"}}},
	}
}

// asking is a body that signs in and sends a request to the API.
const asking = `
	const before = await host.oauth.authStatus("acme");
	const said = await host.oauth.authorize("acme");
	const token = await host.oauth.getToken("acme");
	const r = await host.network.fetch("SERVER/api/me", {headers: {Authorization: "Bearer " + token}});
	await host.storage.set("seen", {token, text: await r.text()});
	host.log("info", "the token is " + token);
	return {message: [before, said, r.status, await host.oauth.authStatus("acme"), token].join(" ")}`

// link returns the link of the only inbox item.
func (b *bench) link() string {
	b.t.Helper()
	link, err := b.runner.SignIns.Link(b.t.Context(), b.open())
	if err != nil || link == "" {
		b.t.Fatalf("%q %v", link, err)
	}
	return link
}

// browser gives the runner the address to which a browser was redirected.
func (b *bench) browser(address string) error {
	b.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		b.t.Fatal(err)
	}
	reply, err := signin.ReplyOf(u.Path, u.Query())
	if err != nil {
		return err
	}
	return b.runner.SignIns.Finish(b.t.Context(), reply)
}

// parked runs a body that asks its owner to sign in.
func (b *bench) parked(body string, more declares) int64 {
	b.t.Helper()
	id, res := b.runModule(body, nil, more)
	if res.Wait == nil || res.Wait.Kind != "" || res.Wait.Action.Tool != "host_oauth_authorize" {
		b.t.Fatalf("%+v", res)
	}
	res.Wait.Expires = time.Hour
	b.end(id, res)
	return id
}

// nowhere fails the test if one of the values is in a file of the home folder or in a text.
func (b *bench) nowhere(values []string, texts ...string) {
	b.t.Helper()
	err := filepath.WalkDir(b.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		texts = append(texts, string(text))
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, v := range values {
		for _, text := range texts {
			if strings.Contains(text, v) {
				b.t.Errorf("%s stands in %.200q", v, text)
			}
		}
	}
}

// TestModuleSignsIn checks OSL-07 and OSL-33: a run waits until its owner has signed in, and then
// has a token, which is not recorded. Later runs can use the token too.
func TestModuleSignsIn(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSL-33")
	for _, method := range []string{row.Quote("client_secret_basic"), row.Quote("client_secret_post"), row.Quote("none")} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			b, s, k := signingIn(t)
			s.Method = method
			body, more := strings.ReplaceAll(asking, "SERVER", s.URL), acme(s, declares{"clientAuthenticationMethod": method})
			id := b.parked(body, more)
			item := b.open()
			if !strings.Contains(item.Message, "Acme") || !strings.Contains(item.Message, s.Host()) || !strings.Contains(item.Message, "read, write") || strings.Contains(item.Message, "state=") {
				t.Errorf("it is asked %q", item.Message)
			}

			link := b.link()
			if again := b.link(); again != link {
				t.Errorf("another link: %s, %s", link, again)
			}
			sent := s.SignIn(t, link)
			if !strings.HasPrefix(sent, whereBrowsersGo+"/callback?") {
				t.Fatalf("sent to %s", sent)
			}
			if err := b.browser(sent); err != nil {
				t.Fatal(err)
			}
			res := b.ends(id)
			if want := "unauthorized authorized 200 authorized [secret]"; res.Summary != want {
				t.Fatalf("%s %s, want %s", res.Summary, res.Error, want)
			}

			if err := b.browser(sent); err == nil || !strings.Contains(err.Error(), "nobody waits") {
				t.Errorf("the same answer again: %v", err)
			}
			_, res = b.runModule(body, nil, more)
			if want := "authorized authorized 200 authorized [secret]"; res.Summary != want || s.Requests() != "authorization_code" || s.API() != 2 {
				t.Errorf("%s %s, asked %s", res.Summary, res.Error, s.Requests())
			}

			values := append(s.Issued(), signintest.ClientSecret)
			if k.Holds("verifier") {
				t.Error("the verifier is kept, and its link was used")
			}
			state := sent[strings.Index(sent, "state=")+len("state="):]
			b.nowhere(append(values, state), res.Summary)
		})
	}
}

// TestModuleSignsInByAnswer checks OSL-33: if the server has no browser, its owner pastes the
// redirect address that the browser could not open, or the code in it.
func TestModuleSignsInByAnswer(t *testing.T) {
	t.Parallel()
	for name, paste := range map[string]func(sent string) string{
		"address":  func(sent string) string { return " " + sent + "\n" },
		"fragment": func(sent string) string { return strings.Replace(sent, "?", "#", 1) },
		"code": func(sent string) string {
			u, err := url.Parse(sent)
			if err != nil {
				return err.Error()
			}
			return u.Query().Get("code")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s, _ := signingIn(t)
			id := b.parked(strings.ReplaceAll(asking, "SERVER", s.URL), acme(s, nil))
			sent := s.SignIn(t, b.link())

			for _, wrong := range []string{"", "two words", strings.Replace(sent, "state=", "state=x", 1), whereBrowsersGo + "/callback", "code-of-another"} {
				if wrong == "code-of-another" && name == "code" {
					continue // this would use up the link, like any code
				}
				if taken, err := b.runner.SignIns.Answer(t.Context(), b.open(), wrong); !taken || err == nil {
					t.Errorf("%q is taken: %v", wrong, err)
				}
				if wrong == "code-of-another" {
					sent = s.SignIn(t, b.link())
				}
			}
			if taken, err := b.runner.SignIns.Answer(t.Context(), b.open(), paste(sent)); !taken || err != nil {
				t.Fatal(err)
			}
			if res := b.ends(id); res.Outcome != domain.OutcomeSuccess {
				t.Errorf("%+v", res)
			}
			b.nowhere(s.Issued())
		})
	}
}

// TestSignInAnswers checks that only the reply to the given link is accepted, once, and only at the
// expected address.
func TestSignInAnswers(t *testing.T) {
	t.Parallel()
	b, s, _ := signingIn(t)
	id := b.parked(strings.ReplaceAll(asking, "SERVER", s.URL), acme(s, nil))
	sent := s.SignIn(t, b.link())
	for name, wrong := range map[string]string{
		"another state": strings.Replace(sent, "state=", "state=A", 1),
		"no state":      sent[:strings.Index(sent, "&state=")],
		"another path":  strings.Replace(sent, "/callback", "/other", 1),
	} {
		if err := b.browser(wrong); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if s.Requests() != "" {
		t.Errorf("the server was asked: %s", s.Requests())
	}

	// A refusal by the service uses up the link, and the run continues to wait.
	if err := b.browser(sent[:strings.Index(sent, "?")] + "?error=access_denied&state=" + sent[strings.Index(sent, "state=")+len("state="):]); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a refusal: %v", err)
	}
	if err := b.browser(sent); err == nil {
		t.Error("a link is used twice")
	}
	if res := b.settled(id); res != nil {
		t.Errorf("it goes on: %+v", res)
	}

	// An answer without a sign-in does not create one.
	b.say("signed in")
	res := b.run(id)
	if res.Wait == nil || res.Wait.Action.Tool != "host_oauth_authorize" {
		t.Errorf("%+v", res)
	}
}

// settled returns the result of a run that continues without an answer, or nil if it waits.
func (b *bench) settled(id int64) *ledger.Result {
	b.t.Helper()
	if err := b.runner.SignIns.Settle(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	run, err := b.ledger.Runs.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	if run.WaitingFor == domain.WaitInput {
		return nil
	}
	res := b.ends(id)
	return &res
}

// TestSignInOutlivesAKill checks a process that dies after it has received a token, and before the
// waiting runs continue. The next process continues all of them, without another sign-in.
func TestSignInOutlivesAKill(t *testing.T) {
	t.Parallel()
	b, s, k := signingIn(t)
	body, more := strings.ReplaceAll(asking, "SERVER", s.URL), acme(s, nil)
	first := b.parked(body, more)
	second := b.parked(body, more)

	items, err := b.ledger.Inbox.List(t.Context())
	if err != nil || len(items) != 2 || items[0].Action.Hash == "" || items[0].Action.Hash != items[1].Action.Hash {
		t.Fatalf("%+v %v", items, err)
	}
	link, err := b.runner.SignIns.Link(t.Context(), items[1])
	if err != nil {
		t.Fatal(err)
	}

	// The dying process has no usable ledger. It can store the token, but cannot continue the runs.
	dying, err := agent.New(agent.Options{Ledger: gone(t), Databases: b.pool, Manifests: filepath.Join(t.TempDir(), "manifests"), SignIns: b.signIns})
	if err != nil {
		t.Fatal(err)
	}
	dying.Set(b.plan)
	u, err := url.Parse(s.SignIn(t, link))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := signin.ReplyOf(u.Path, u.Query())
	if err == nil {
		err = dying.SignIns.Finish(t.Context(), reply)
	}
	if err != nil || !k.Holds("access-") {
		t.Fatal(err)
	}

	b.newPool()
	for _, id := range []int64{first, second} {
		if res := b.settled(id); res == nil || res.Outcome != domain.OutcomeSuccess {
			t.Errorf("%+v", res)
		}
	}
	if s.Requests() != "authorization_code" {
		t.Errorf("asked %s", s.Requests())
	}
}

// gone returns a ledger without waiting runs.
func gone(t *testing.T) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestSignInIsRefreshed checks OSL-07: an expired token is refreshed once for all callers, shortly
// before it expires. If the server refuses, the owner is asked to sign in again.
func TestSignInIsRefreshed(t *testing.T) {
	t.Parallel()
	b, s, _ := signingIn(t)
	s.Lifetime = 20 // in seconds, which is too short to begin a request
	body, more := strings.ReplaceAll(asking, "SERVER", s.URL), acme(s, nil)
	id := b.parked(body, more)
	if err := b.browser(s.SignIn(t, b.link())); err != nil {
		t.Fatal(err)
	}
	if res := b.ends(id); res.Outcome != domain.OutcomeSuccess || !strings.HasPrefix(s.Requests(), "authorization_code, refresh_token") {
		t.Fatalf("%+v, asked %s", res, s.Requests())
	}

	s.Lifetime = 3600
	_, res := b.runModule(`return {message: (await Promise.all([1, 2, 3].map(() => host.oauth.getToken("acme")))).length + " " + await host.oauth.authStatus("acme")}`, nil, more)
	asked := s.Requests()
	if res.Summary != "3 authorized" {
		t.Errorf("%+v", res)
	}
	if _, res = b.runModule(`await host.oauth.getToken("acme"); return {message: await host.oauth.authStatus("acme")}`, nil, more); res.Summary != "authorized" || s.Requests() != asked {
		t.Errorf("%+v, asked %s after %s", res, s.Requests(), asked)
	}
	_, res = b.runModule(`const had = await host.oauth.getToken("acme"); const now = await host.oauth.refresh("acme"); return {message: String(had !== now && now === await host.oauth.getToken("acme"))}`, nil, more)
	if res.Summary != "true" || s.Requests() != asked+", refresh_token" {
		t.Errorf("%+v, asked %s", res, s.Requests())
	}

	s.Revoke()
	_, res = b.runModule(`try { await host.oauth.refresh("acme") } catch (e) { return {message: e.code + " " + await host.oauth.authStatus("acme") + " " + e.message} }`, nil, more)
	if !strings.HasPrefix(res.Summary, "not_found expired the sign-in at Acme is not valid any more") {
		t.Errorf("%+v", res)
	}
	b.parked(body, more)
	b.nowhere(s.Issued())
}

// TestTokenStaysWithItsHosts checks that a token is sent only to hosts that the manifest names and
// the agent may access, and that its placeholder works only in this manifest.
func TestTokenStaysWithItsHosts(t *testing.T) {
	t.Parallel()
	b, s, _ := signingIn(t)
	other := signintest.New(t)
	more := acme(s, declares{"grantType": "client_credentials"})
	rules := more["sandbox"].(declares)
	rules["networkRules"] = append(rules["networkRules"].([]any), declares{"urlPattern": "*", "methods": []string{"GET"}, "description": "any"})
	clerk := b.plan.Agents["clerk"]
	clerk.Network = append(clerk.Network, web.Grant{Host: other.Host()})
	b.plan.Agents["clerk"] = clerk

	try := func(call string) string {
		return "try { " + call + "; told.push('ok') } catch (e) { told.push(e.code + ': ' + e.message) };"
	}
	_, res := b.runModule(strings.NewReplacer("OTHER", other.URL, "SERVER", s.URL).Replace("const told = [], token = await host.vault.resolveBinding('acme-token');"+
		try(`await host.network.fetch("OTHER/api/", {headers: {Authorization: "Bearer " + token}})`)+
		try(`await host.network.fetch("OTHER/api/", {headers: {Authorization: "Bearer __OSL_SECRET[oauth:acme]__"}})`)+
		try(`await host.network.fetch("SERVER/api/", {headers: {Authorization: "Bearer __OSL_SECRET[oauth:else]__"}})`)+
		try(`await host.network.fetch("SERVER/api/", {headers: {Authorization: "Bearer " + btoa(token)}})`)+
		try(`const r = await host.network.fetch("SERVER/api/", {headers: {Authorization: "Bearer " + token}}); host.log("info", token); await host.storage.set("seen", await r.text())`)+
		"return {message: told.join(' | ')}"), nil, more)
	want := []string{"rejected: no token is sent to " + other.URL, "rejected: no token is sent to", `rejected: "oauth:else" is not among`, "in another form", "ok"}
	got := strings.Split(res.Summary, " | ")
	if len(got) != len(want) {
		t.Fatalf("%+v", res)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("%s, want %s", got[i], want[i])
		}
	}
	if s.API() != 1 || s.Requests() != "client_credentials" {
		t.Errorf("asked %d times, %s", s.API(), s.Requests())
	}
	b.nowhere(s.Issued())
}

// TestSignInIsRefused checks OSL-07 and OSL-33: a module that cannot sign in gets the reason, and
// the owner is not asked.
func TestSignInIsRefused(t *testing.T) {
	t.Parallel()
	get := `try { return {message: "got " + typeof await host.oauth.getToken("acme")} } catch (e) { return {message: e.code + ": " + e.message} }`
	authorize := strings.ReplaceAll(get, "getToken", "authorize")
	for name, c := range map[string]struct {
		body   string
		change func(s *signintest.Server, a *plan.Agent, provider declares)
		says   string
	}{
		"undeclared":       {strings.ReplaceAll(authorize, "acme", "other"), nil, `rejected: "other" is not among the providers`},
		"nobody signed in": {get, nil, "not_found: nobody has signed in to Acme"},
		"host not granted": {authorize, func(_ *signintest.Server, a *plan.Agent, _ declares) {
			a.Network = []web.Grant{{Host: "example.com", Methods: []string{"POST"}}}
		}, "is not among the grants of this agent; its owner can grant it"},
		"only reads":       {authorize, func(s *signintest.Server, a *plan.Agent, _ declares) { a.Network = []web.Grant{{Host: s.Host()}} }, "rejected: Acme cannot be asked for tokens: POST"},
		"no network":       {`return {message: typeof host.oauth}`, func(_ *signintest.Server, a *plan.Agent, _ declares) { a.Network = nil }, "undefined"},
		"client elsewhere": {authorize, func(_ *signintest.Server, a *plan.Agent, _ declares) { a.Secrets[1].OnlyTo = "example.com" }, "may be sent to example.com alone"},
		"client nowhere":   {authorize, func(_ *signintest.Server, a *plan.Agent, _ declares) { a.Secrets[0].OnlyTo = "" }, "adds only_to"},
		"another client": {get, func(_ *signintest.Server, a *plan.Agent, p declares) {
			p["grantType"] = "client_credentials"
			a.Secrets[1].Value = "not-the-secret"
		}, "execution_error: Acme gives no token: its server answered 401: invalid_client"},
		"server is down": {get, func(s *signintest.Server, _ *plan.Agent, p declares) {
			p["grantType"] = "client_credentials"
			s.Down = true
		}, "its server answered 503"},
		"private address": {authorize, func(_ *signintest.Server, a *plan.Agent, p declares) {
			p["tokenUrl"] = "https://10.1.2.3/t"
			a.Network = []web.Grant{{Host: "*", Methods: []string{"POST"}}}
		}, "an address of this machine, of its network"},
		"without https": {authorize, func(_ *signintest.Server, a *plan.Agent, p declares) {
			p["tokenUrl"] = "http://example.com/t"
			a.Network = []web.Grant{{Host: "*", Methods: []string{"POST"}}}
		}, "without https"},
		"no link":           {authorize, func(_ *signintest.Server, _ *plan.Agent, p declares) { p["authorizationUrl"] = "javascript:alert(1)" }, "no address that a browser could be sent to"},
		"another path":      {authorize, func(_ *signintest.Server, _ *plan.Agent, p declares) { p["redirectPath"] = "@evil.example/" }, "the redirectPath"},
		"a strange id":      {strings.ReplaceAll(authorize, "acme", "a b"), func(_ *signintest.Server, _ *plan.Agent, p declares) { p["providerId"] = "a b" }, "cannot be the id of a provider"},
		"sends no token":    {strings.ReplaceAll(get, `"got " + typeof await host.oauth.getToken("acme")`, `"got " + (await host.network.fetch("SERVER/api/", {headers: {Authorization: "__OSL_SECRET[oauth:acme]__"}})).status`), nil, "not_found: nobody has signed in to Acme"},
		"without the owner": {authorize, func(_ *signintest.Server, _ *plan.Agent, p declares) { p["grantType"] = "client_credentials" }, "got string"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s, _ := signingIn(t)
			more := acme(s, nil)
			if c.change != nil {
				clerk := b.plan.Agents["clerk"]
				c.change(s, &clerk, more["oauth"].([]any)[0].(declares))
				b.plan.Agents["clerk"] = clerk
			}
			if _, res := b.runModule(strings.ReplaceAll(c.body, "SERVER", s.URL), nil, more); res.Wait != nil || !strings.Contains(res.Summary+res.Error, c.says) {
				t.Errorf("%+v, want %s", res, c.says)
			}
		})
	}
}

// TestSignInIsOfOneService checks that a token of one service is not used for another service of a
// later manifest, or for another agent.
func TestSignInIsOfOneService(t *testing.T) {
	t.Parallel()
	b, s, _ := signingIn(t)
	status := `return {message: await host.oauth.authStatus("acme")}`
	id := b.parked(strings.ReplaceAll(asking, "SERVER", s.URL), acme(s, nil))
	if err := b.browser(s.SignIn(t, b.link())); err != nil {
		t.Fatal(err)
	}
	b.ends(id)

	for name, c := range map[string]struct {
		more declares
		want string
	}{
		"the same":     {acme(s, nil), "authorized"},
		"more scopes":  {acme(s, declares{"scopes": []string{"read", "write", "admin"}}), "unauthorized"},
		"another host": {acme(s, declares{"tokenUrl": s.URL + "/token?x=1"}), "unauthorized"},
	} {
		if _, res := b.runModule(status, nil, c.more); res.Summary != c.want {
			t.Errorf("%s: %+v, want %s", name, res, c.want)
		}
	}

	entries, err := b.runner.SignIns.List()
	if err != nil || len(entries) != 1 || fmt.Sprint(entries[0].ID) != "clerk/sums/acme" || entries[0].Status != signin.Authorized || !entries[0].Renews {
		t.Errorf("%+v %v", entries, err)
	}
	if err := b.runner.SignIns.Remove(t.Context(), entries[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, res := b.runModule(status, nil, acme(s, nil)); res.Summary != "unauthorized" {
		t.Errorf("%+v", res)
	}
}
