package daemon

import (
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
)

const mcpToken = "token-of-the-mcp-server"

// mcpSite starts an MCP server at /open, and one at /guarded that requires a sign-in at the same
// site.
func mcpSite(t *testing.T) *httptest.Server {
	t.Helper()
	server := sdk.NewServer(&sdk.Implementation{Name: "site", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "hello", Description: "Says hello."}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "hello"}}}, nil, nil
	})
	inner := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)

	var site *httptest.Server
	mux := http.NewServeMux()
	mux.Handle("/open", inner)
	mux.HandleFunc("/guarded", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+mcpToken {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+site.URL+`/meta"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	})
	answer := func(path string, status int, v func(*http.Request) map[string]any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(v(r))
		})
	}
	answer("/meta", http.StatusOK, func(*http.Request) map[string]any {
		return map[string]any{"resource": site.URL + "/guarded", "authorization_servers": []string{site.URL}}
	})
	answer("/.well-known/oauth-authorization-server", http.StatusOK, func(*http.Request) map[string]any {
		return map[string]any{"issuer": site.URL, "authorization_endpoint": site.URL + "/authorize", "token_endpoint": site.URL + "/token", "registration_endpoint": site.URL + "/register",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"}}
	})
	answer("/register", http.StatusCreated, func(*http.Request) map[string]any {
		return map[string]any{"client_id": "rouse-1", "redirect_uris": []string{}, "token_endpoint_auth_method": "none"}
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("resource") != site.URL+"/guarded" || q.Get("code_challenge_method") != "S256" {
			http.Error(w, "refused", http.StatusBadRequest)
			return
		}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {"code-1"}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
	})
	answer("/token", http.StatusOK, func(r *http.Request) map[string]any {
		_ = r.ParseForm()
		if r.Form.Get("code") != "code-1" || r.Form.Get("code_verifier") == "" || r.Form.Get("resource") != site.URL+"/guarded" {
			return map[string]any{"error": "invalid_grant"}
		}
		return map[string]any{"access_token": mcpToken, "token_type": "Bearer", "expires_in": 3600, "refresh_token": "refresh-of-the-mcp-server"}
	})
	site = httptest.NewServer(mux)
	t.Cleanup(site.Close)
	return site
}

// TestMCPServerSignIn checks the sign-in at an MCP server with a browser that returns to the
// daemon. Requests for all agents then have the token, and the home does not contain it.
func TestMCPServerSignIn(t *testing.T) {
	t.Parallel()
	site := mcpSite(t)
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `
home: ./home
mcp: [{name: site, url: "` + site.URL + `/guarded", private_network: true}]
agents: [{name: clerk, mcp: [site], private: {workdir: false, database: false}, on_denied: continue}]
`})
	s := ServeIn(t, dir, "rouse.yaml")
	ctx := t.Context()

	var seen api.MCPServer
	if err := s.client.Post(ctx, "/v1/mcp-servers/site/look", api.MCPLook{}, &seen); err == nil || !strings.Contains(err.Error(), "rouse mcp-servers sign-in site") {
		t.Errorf("nobody is signed in: %v", err)
	}
	var link api.MCPSignIn
	if err := s.client.Post(ctx, "/v1/mcp-servers/site/sign-in", api.MCPReply{}, &link); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(link.Link) //nolint:gosec,noctx // as a browser does, with its redirect to the daemon
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the browser ends at %s with %s", resp.Request.URL.Path, resp.Status)
	}

	if err := s.client.Post(ctx, "/v1/mcp-servers/site/look", api.MCPLook{}, &seen); err != nil || seen.SignIn != "authorized" || len(seen.Tools) != 1 || seen.Tools[0].Status != "new" {
		t.Fatalf("%+v (%v)", seen, err)
	}
	var done api.MCPApproved
	if err := s.client.Post(ctx, "/v1/mcp-servers/site/approve", api.MCPApproval{Shown: map[string]string{"hello": seen.Tools[0].Hash}}, &done); err != nil || len(done.Tools) != 1 {
		t.Fatalf("%+v (%v)", done, err)
	}

	err = filepath.WalkDir(filepath.Join(dir, "home"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Type() != 0 {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), mcpToken) {
			t.Errorf("%s holds the token", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
