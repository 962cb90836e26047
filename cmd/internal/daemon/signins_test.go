package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/agent/tool/moduleapi/signin/signintest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/secret"
	"rouse/internal/domain"
)

// acmeSkill returns a skill that signs in to a server and requests the user's name.
func acmeSkill(t *testing.T, s *signintest.Server) map[string]string {
	t.Helper()
	manifest, err := json.Marshal(map[string]any{
		"name": "acme", "description": "Asks Acme.", "version": "1.0.0", "author": "nobody", "schemaVersion": "2.0", "capabilities": []string{"asks"},
		"permissions": []any{map[string]any{"kind": "network", "scope": "api", "description": "the api"}}, "compatibilityRequirements": []any{}, "supportedPlatforms": []any{},
		"inputSchema": map[string]any{"type": "object"}, "outputSchema": map[string]any{"type": "object"}, "bridgeRequirement": "never",
		"workspaceSupport": "none", "workspaceSchemaVersion": nil, "longRunningSupport": "none", "userInputSupport": false, "artifactVersioningSupport": false, "executionMode": "declarative",
		"agenticConfig":    map[string]any{"enabled": false, "requiresWorkspace": false, "supportsBackgroundExecution": false, "supportsRoleBasedExecution": false, "maxStepsPerRun": nil, "defaultStepBudget": nil},
		"requiredBindings": []any{map[string]any{"name": "acme-id", "scope": "api", "description": "the client", "required": true}},
		"sandbox": map[string]any{"isolation": "standard", "maxExecutionMs": 20000, "maxMemoryMB": 64, "allowedGlobals": []any{},
			"networkRules": []any{map[string]any{"urlPattern": s.URL + "/api/*", "methods": []string{"GET"}, "description": "the api"}}},
		"oauth": []any{map[string]any{
			"providerId": "acme", "displayName": "Acme", "grantType": "authorization_code", "authorizationUrl": s.URL + "/authorize", "tokenUrl": s.URL + "/token", "scopes": []string{"read"},
			"pkceRequired": true, "clientIdBinding": "acme-id", "redirectPath": "/callback", "redirectMode": "popup", "supportedEnvironments": []any{}, "responseMode": "query", "clientAuthenticationMethod": "none",
		}},
	})
	if err != nil {
		t.Fatal(err)
	}

	s.Method = "none"
	return map[string]string{
		"skills/acme/manifest.json": string(manifest),
		"skills/acme/module.ts": `export async function execute(args: any, host: any) {
  await host.oauth.authorize("acme");
  const r = await host.network.fetch("` + s.URL + `/api/me", {headers: {Authorization: "Bearer " + await host.oauth.getToken("acme")}});
  return {message: "status " + r.status + " " + await r.text()} }`,
		"rouse.yaml": `version: 1
home: ./home
skills: {roots: [{path: ./skills}]}
agents:
  - name: clerk
    grants:
      network: [{host: "` + s.Host() + `", methods: [GET, POST]}]
      secrets: [{name: acme-id, only_to: "` + s.Host() + `", private: false}]
jobs: [{name: ask, agent: clerk, skill: acme}]
`,
	}
}

// serveAcme starts a daemon with a job that signs in.
func serveAcme(t *testing.T) (*served, *signintest.Server) {
	t.Helper()
	server := signintest.New(t)
	dir := cmdtest.Write(t, acmeSkill(t, server))
	setSecret(t, filepath.Join(dir, "home"), "acme-id", signintest.ClientID)
	return ServeIn(t, dir, "rouse.yaml"), server
}

// setSecret stores a secret in the file of a home.
func setSecret(t *testing.T, home, name, value string) {
	t.Helper()
	store, err := secret.New(secret.Options{Home: home})
	if err == nil {
		_, _, err = store.Set(name, value, secret.InFile)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// asks starts the job and returns the item that asks for a sign-in.
func (s *served) asks() (run string, item api.Item) {
	s.t.Helper()
	var fired api.Run
	if err := s.client.Post(s.t.Context(), "/v1/runs", map[string]any{"job": "ask"}, &fired); err != nil {
		s.t.Fatal(err)
	}
	cmdtest.Until(s.t, "a question", func() bool {
		var items []api.Item
		if err := s.client.Get(s.t.Context(), "/v1/inbox", nil, &items); err != nil {
			s.t.Fatal(err)
		}
		at := slices.IndexFunc(items, func(i api.Item) bool { return i.Run == fired.ID })
		if at >= 0 {
			item = items[at]
		}
		return at >= 0
	})
	if item.Link == "" {
		s.t.Fatalf("%+v", item)
	}
	return fired.ID, item
}

// over waits for the end of a run and fails if it was not a success.
func (s *served) over(run string) {
	s.t.Helper()
	var r api.Run
	cmdtest.Until(s.t, "the end of the run", func() bool {
		if err := s.client.Get(s.t.Context(), "/v1/runs/"+run, nil, &r); err != nil {
			s.t.Fatal(err)
		}
		return r.State == domain.StateFinished
	})
	if r.Outcome != domain.OutcomeSuccess || r.Summary != "status 200 you are [secret]" {
		s.t.Errorf("%s %s %s; log: %s", r.Outcome, r.Summary, r.Error, s.log)
	}
}

// visit sends a request like a browser, with a host header, and returns the status and the page.
func visit(t *testing.T, method, address, host string, more ...string) (int, string, http.Header) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		q.Host = host
	}
	for _, dest := range more {
		q.Header.Set("Sec-Fetch-Dest", dest)
	}
	resp, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

// A browser that returns from a sign-in is accepted once, at an address of this machine, if it was
// given the link. Its values are not on a page or in the home, where the tokens are encrypted.
func TestSignInByBrowser(t *testing.T) {
	t.Parallel()
	s, server := serveAcme(t)
	run, item := s.asks()
	sent := server.SignIn(t, item.Link)
	at, err := url.Parse(sent)
	if err != nil || at.Hostname() != "127.0.0.1" {
		t.Fatalf("sent to %s: %v", sent, err)
	}

	for name, c := range map[string]struct {
		method, address, host string
		status                int
	}{
		"another host":  {"GET", sent, "evil.example:" + at.Port(), 403},
		"no port":       {"GET", sent, "127.0.0.1", 403},
		"localhost":     {"GET", sent, "localhost:" + at.Port(), 403},
		"a form":        {"POST", sent, "", 403},
		"another state": {"GET", strings.Replace(sent, "state=", "state=%3Cscript%3Ex", 1), "", 404},
		"another path":  {"GET", strings.Replace(sent, "/callback", "/", 1), "", 404},
		"no state":      {"GET", "http://" + at.Host + "/callback?code=x", "", 404},
	} {
		status, body, header := visit(t, c.method, c.address, c.host)
		if status != c.status || strings.Contains(body, "script>x") || header.Get("Content-Security-Policy") == "" || header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %d %s %v", name, status, body, header)
		}
	}
	if status, _, _ := visit(t, "GET", sent, "", "iframe"); status != 403 {
		t.Errorf("within another page: %d", status)
	}
	if server.Requests() != "" {
		t.Fatalf("the server was asked: %s", server.Requests())
	}

	if status, body, _ := visit(t, "GET", sent, "", "document"); status != 200 || !strings.Contains(body, "You are signed in, and the run goes on.") || strings.Contains(body, "code-") {
		t.Errorf("%d %s", status, body)
	}
	s.over(run)
	if status, _, _ := visit(t, "GET", sent, ""); status != 404 {
		t.Errorf("the same address is answered %d", status)
	}

	var kept []api.SignIn
	if err := s.client.Get(t.Context(), "/v1/sign-ins", nil, &kept); err != nil || len(kept) != 1 || kept[0].Name != "clerk/acme/acme" || kept[0].Status != "authorized" || !kept[0].Renews {
		t.Errorf("%+v %v", kept, err)
	}
	s.holdsNone(append(server.Issued(), at.Query().Get("state")))

	var said api.SignInName
	if err := s.client.Post(t.Context(), "/v1/sign-ins/remove", api.SignInName{Name: "clerk/acme/other"}, &said); err == nil || !strings.Contains(err.Error(), `"clerk/acme/other"`) {
		t.Errorf("another one is removed: %v", err)
	}
	if err := s.client.Post(t.Context(), "/v1/sign-ins/remove", api.SignInName{Name: kept[0].Name}, &said); err != nil {
		t.Fatal(err)
	}
	s.asks()
}

// holdsNone fails if a file of the home or the log contains one of values.
func (s *served) holdsNone(values []string) {
	s.t.Helper()
	texts := map[string]string{"the log": s.log.String()}
	err := filepath.WalkDir(s.Dir(), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		texts[path] = string(text)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for where, text := range texts {
		for _, v := range values {
			if strings.Contains(text, v) {
				s.t.Errorf("%s holds %s", where, v)
			}
		}
	}
}

// A link remains valid after a restart, and an invalid pasted answer gets an explanation.
func TestSignInOverARestart(t *testing.T) {
	t.Parallel()
	s, server := serveAcme(t)
	run, item := s.asks()
	s.stop()

	s = ServeIn(t, s.dir, "rouse.yaml")
	var items []api.Item
	if err := s.client.Get(t.Context(), "/v1/inbox", nil, &items); err != nil || len(items) != 1 || items[0].Link != item.Link {
		t.Fatalf("%+v %v, and the link was %s", items, err, item.Link)
	}
	sent := server.SignIn(t, item.Link)
	var out api.Run
	if err := s.client.Post(t.Context(), "/v1/inbox/"+item.ID+"/answer", api.Answer{Text: strings.Replace(sent, "state=", "state=x", 1)}, &out); err == nil || !strings.Contains(err.Error(), "nobody waits") {
		t.Errorf("another state: %v", err)
	}
	if status, body, _ := visit(t, "GET", sent, ""); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	s.over(run)

	if err := s.client.Post(t.Context(), "/v1/sign-ins/remove", api.SignInName{Name: "clerk/acme/acme"}, &api.SignInName{}); err != nil {
		t.Fatal(err)
	}
	run, item = s.asks()
	sent = server.SignIn(t, item.Link)
	if err := s.client.Post(t.Context(), "/v1/inbox/"+item.ID+"/answer", api.Answer{Text: sent}, &out); err != nil || out.ID != run {
		t.Fatalf("%+v %v", out, err)
	}
	s.over(run)
	s.holdsNone(server.Issued())
}

// The redirect uses the configured port, which can be registered at a service.
func TestSignInPort(t *testing.T) {
	t.Parallel()
	server := signintest.New(t)
	taken, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	files := acmeSkill(t, server)
	files["rouse.yaml"] = strings.Replace(files["rouse.yaml"], "skills: {", "skills: {sign_in_port: "+taken.Port()+", ", 1)
	dir := cmdtest.Write(t, files)
	store, err := secret.New(secret.Options{Home: filepath.Join(dir, "home")})
	if err == nil {
		_, _, err = store.Set("acme-id", signintest.ClientID, secret.InFile)
	}
	if err != nil {
		t.Fatal(err)
	}

	s := ServeIn(t, dir, "rouse.yaml")
	_, item := s.asks()
	if want := url.QueryEscape(fmt.Sprintf("http://127.0.0.1:%s/callback", taken.Port())); !strings.Contains(item.Link, want) || !strings.Contains(s.log.String(), "nobody can listen for browsers") {
		t.Errorf("%s; log: %s", item.Link, s.log)
	}
}
