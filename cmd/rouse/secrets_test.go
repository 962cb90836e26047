package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestSecretsStayOut puts a secret in every possible place, and a server returns it in every form
// (OSL-22). The secret must not be in stored data, output, logs, or requests to a model. The
// intended server must receive it.
func TestSecretsStayOut(t *testing.T) {
	t.Parallel()
	const (
		key    = `canary"Ω<42>/+ key_value*`
		header = "canary-header-0123456789"
		bank   = `canary'bank' 100% [x](y) & \n_z_`
	)

	var got, asked atomic.Int64
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("X-Key") != bank || r.URL.Query().Get("k") != bank {
			t.Errorf("the server was sent %q and %q", r.Header.Get("X-Key"), r.URL.Query().Get("k"))
			return
		}

		got.Add(1)
		w.Header().Set("Content-Type", []string{"text/html; charset=utf-8", "application/json", "text/plain"}[got.Load()%3])
		w.Header().Set("Link", "<https://example.com/?k="+url.QueryEscape(bank)+">; rel=next")
		quoted, _ := json.Marshal(bank)
		fmt.Fprintf(w, "<title>%s</title><p>%s</p><p>%s</p>%s %s %s %s %s %x %X", html.EscapeString(bank), bank, html.EscapeString(bank), quoted, url.QueryEscape(bank), url.PathEscape(bank),
			base64.StdEncoding.EncodeToString([]byte("user:"+bank)), base64.URLEncoding.EncodeToString([]byte(bank)), bank, bank)
	}))

	defer echo.Close()

	call := func(id, name string, a map[string]any) model.Call {
		raw, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		return model.Call{ID: id, Name: name, Args: raw}
	}

	fetch := map[string]any{"url": echo.URL + "/?k=__OSL_SECRET[bank]__", "headers": map[string]string{"X-Key": "__OSL_SECRET[bank]__"}}
	s := modeltest.New(t,
		modeltest.Turn{Calls: []model.Call{call("1", "web_fetch", fetch)}},
		modeltest.Turn{Calls: []model.Call{call("2", "web_fetch", fetch)}},
		modeltest.Turn{Calls: []model.Call{call("3", "web_fetch", fetch)}},
		// A model may repeat a secret that it has learned elsewhere.
		modeltest.Turn{Text: "The key is " + bank, Calls: []model.Call{
			call("4", "notify", map[string]any{"title": "it is " + bank, "body": key}),
			call("5", "share_artifact", map[string]any{"content": "the secret " + bank + " and " + header, "filename": "note.txt"}),
			call("6", "complete", map[string]any{"summary": "All is done, and the secret is " + bank + ", which nobody reads."}),
		}})

	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
models: [{name: scripted, provider: openai, model: scripted, base_url: "` + s.URL + `/v1", api_key: secret:key, headers: {X-Extra: "${secret:header}"}}]
agents:
  - name: clerk
    workdir: ./work
    private: {workdir: false, database: false}
    grants:
      network: [{host: "` + strings.TrimPrefix(echo.URL, "http://") + `"}]
      secrets: [{name: bank, only_to: "` + strings.TrimPrefix(echo.URL, "http://") + `", private: false}]
jobs: [{name: books, agent: clerk, record: true, prompt: Do the books.}]
`})

	config := filepath.Join(dir, "rouse.yaml")
	endtoend.KeepSecrets(t, filepath.Join(dir, "home"), map[string]string{"key": key, "header": header, "bank": bank})
	var shown bytes.Buffer
	p := endtoend.Serve(t, config)

	for _, line := range []string{"run books --wait", "show 1", "show 1 --json", "logs --json", "runs --json", "secrets list --json", "config show", "artifact 1 note.txt"} {
		cmd := endtoend.Rouse(t, append(strings.Fields(line), "--config", config)...)
		err := cmd.Run()
		shown.WriteString("$ rouse " + line + "\n" + cmd.Out.String() + cmd.Err.String())
		if err != nil && line == "run books --wait" {
			t.Fatalf("%v %s%s", err, cmd.Out.String(), cmd.Err.String())
		}
	}

	p.Stop(t)
	shown.WriteString(p.Out.String() + p.Err.String())

	// A backup must not contain the secrets or their file.
	backup := endtoend.Rouse(t, "backup", filepath.Join(dir, "copies"), "--config", config)
	if err := backup.Run(); err != nil {
		t.Fatalf("%v %s", err, backup.Err.String())
	}
	shown.WriteString(backup.Out.String() + backup.Err.String())
	if left, err := filepath.Glob(filepath.Join(dir, "copies", "*", "home", "secrets*")); err != nil || len(left) > 0 {
		t.Errorf("a backup holds %v (%v)", left, err)
	}
	save := endtoend.Rouse(t, "replay", "1", "--save", filepath.Join(dir, "saved.jsonl"), "--config", config)
	_ = save.Run()
	shown.WriteString(save.Out.String() + save.Err.String())
	if got.Load() != 3 || asked.Load() != 3 {
		t.Fatalf("the server got the secret %d times in %d requests\n%s", got.Load(), asked.Load(), shown.String())
	}

	for _, r := range s.Requests() {
		shown.Write(r)
	}

	kept := map[string][]byte{"what was shown or sent to the model": shown.Bytes()}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			kept[path], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	for place, text := range kept {
		for _, secret := range []string{key, header, bank} {
			for form, canary := range canaries(t, secret) {
				if at := bytes.Index(text, []byte(canary)); at >= 0 {
					t.Errorf("%s holds a secret (%s): …%q", place, form, text[max(at-60, 0):min(at+len(canary), len(text))])
				}
			}
		}
	}

	if len(kept) < 6 || !bytes.Contains(shown.Bytes(), []byte("[secret]")) {
		t.Errorf("little was looked at: %d files", len(kept))
	}

	var d api.RunDetail
	endtoend.RunJSON(t, &d, "show", "1", "--json", "--config", config)
	if d.Outcome != "success" {
		t.Errorf("the run ended as %+v", d.Run)
	}
}

// canaries returns the forms of a secret to search for.
func canaries(t *testing.T, secret string) map[string]string {
	t.Helper()
	quoted, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}

	twice, err := json.Marshal(string(quoted))
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]string{"plain": secret, "json": strings.Trim(string(quoted), `"`), "json in json": strings.Trim(string(twice), `\"`), "query": url.QueryEscape(secret), "path": url.PathEscape(secret),
		"html": html.EscapeString(secret), "hex": hex.EncodeToString([]byte(secret)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(secret)))}
	for before := range 3 {
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + secret))
		out[fmt.Sprint("base64 ", before)] = text[4 : len(text)-4]
	}

	// Also search for a part of the secret, because pages are split.
	out["part"] = secret[:12]
	return out
}

// TestSecretsReload checks that a running daemon uses a new value at once. If a secret is missing,
// the daemon keeps its configuration, but no call gets that secret any more (OSL-22).
func TestSecretsReload(t *testing.T) {
	t.Parallel()
	var last atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { last.Store(r.Header.Get("X-Key")) }))
	defer server.Close()

	host := strings.TrimPrefix(server.URL, "http://")
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
agents: [{name: clerk, grants: {network: [{host: "` + host + `"}], secrets: [{name: bank, only_to: "` + host + `", private: false}]}}]
`}), "rouse.yaml")
	do := func(stdin string, args ...string) (string, error) {
		cmd := endtoend.Rouse(t, append(args, "--config", config)...)
		cmd.Stdin = strings.NewReader(stdin)
		err := cmd.Run()
		return cmd.Out.String() + cmd.Err.String(), err
	}

	set := func(value string) string {
		out, err := do(value, "secrets", "set", "bank", "--in", "file")
		if err != nil {
			t.Fatalf("%v %s", err, out)
		}
		return out
	}

	sent := func(want string) {
		t.Helper()
		out, err := do("", "call", "clerk", "web_fetch", `{"url":"`+server.URL+`","headers":{"X-Key":"__OSL_SECRET[bank]__"}}`)
		if err != nil || last.Load() != want {
			t.Errorf("sent %v, want %s (%v %s)", last.Load(), want, err, out)
		}
	}

	set("first-value")
	sent("first-value") // without a daemon
	p := endtoend.Serve(t, config)
	sent("first-value")
	if out := set("second-value"); !strings.Contains(out, "the daemon uses it now") {
		t.Errorf("it says %s", out)
	}

	sent("second-value")
	out, err := do("", "secrets", "remove", "bank")
	if err != nil || !strings.Contains(out, "the secret bank is gone") {
		t.Errorf("it says %s (%v)", out, err)
	}
	if out, err := do("", "doctor"); err == nil || !strings.Contains(out, "bank is not set (agent clerk)") || !strings.Contains(out, "→ rouse secrets set bank") {
		t.Errorf("the doctor says %s (%v)", out, err)
	}

	last.Store("nothing")
	out, err = do("", "call", "clerk", "web_fetch", `{"url":"`+server.URL+`","headers":{"X-Key":"__OSL_SECRET[bank]__"}}`)
	if err == nil || last.Load() != "nothing" || !strings.Contains(out, "the secret bank is not set any more; its owner sets it with: rouse secrets set bank") {
		t.Errorf("with a secret that was removed the server was sent %v: %s", last.Load(), out)
	}

	set("third-value")
	sent("third-value")
	p.Stop(t)
}
