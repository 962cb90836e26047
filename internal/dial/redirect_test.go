package dial

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A client with the default transport follows redirects only on the same host.
func TestSameHost(t *testing.T) {
	t.Parallel()
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch to := r.URL.Query().Get("to"); {
		case to != "":
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		case strings.HasPrefix(r.Host, "localhost"):
			t.Error("the other host was asked")
		}
	}))
	t.Cleanup(own.Close)

	client := &http.Client{Transport: &http.Transport{Proxy: sameHost(nil), DisableKeepAlives: true}}
	for to, fails := range map[string]bool{"": false, "/near": false, own.URL + "/near": false, strings.Replace(own.URL, "127.0.0.1", "localhost", 1): true, "/?to=" + strings.Replace(own.URL, "127.0.0.1", "localhost", 1): true} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, own.URL+"/", strings.NewReader("a notice"))
		if err != nil {
			t.Fatal(err)
		}
		q := r.URL.Query()
		q.Set("to", to)
		r.URL.RawQuery = q.Encode()
		resp, err := client.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		if (err != nil) != fails || fails && !strings.Contains(err.Error(), "redirects to another server, which is not followed") {
			t.Errorf("%q: %v", to, err)
		}
	}
}
