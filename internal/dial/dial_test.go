package dial_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"rouse/internal/dial"
)

func TestPublic(t *testing.T) {
	t.Parallel()
	for _, text := range strings.Fields("127.0.0.1 0.0.0.0 10.0.0.1 172.16.0.1 192.168.1.1 100.64.0.1 169.254.169.254 168.63.129.16 ::1 :: ::ffff:127.0.0.1 fe80::1 fe80::1%lo fd00::1 64:ff9b::7f00:1 2002:7f00:1:: 224.0.0.1") {
		if dial.Public(netip.MustParseAddr(text)) {
			t.Errorf("%s counts as public", text)
		}
	}
	for _, text := range strings.Fields("1.1.1.1 2606:4700:4700::1111") {
		if !dial.Public(netip.MustParseAddr(text)) {
			t.Errorf("%s does not count as public", text)
		}
	}
}

// A configured server can be requested, but not the addresses on this machine that it redirects to,
// in any notation.
func TestTransport(t *testing.T) {
	t.Parallel()
	var touched atomic.Int32
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { touched.Add(1) }))
	t.Cleanup(inner.Close)
	port := inner.URL[strings.LastIndexByte(inner.URL, ':'):]
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, "mine")
	}))
	t.Cleanup(own.Close)

	client := &http.Client{Transport: dial.New(dial.Options{Own: []string{own.URL + "/some/path"}, HTTP: true})}
	get := func(address string) (string, error) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			return "", err
		}
		resp, err := client.Do(r)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	for _, address := range []string{own.URL, own.URL + "/?to=/other"} {
		if got, err := get(address); err != nil || got != "mine" {
			t.Errorf("%s: %q, %v", address, got, err)
		}
	}

	for _, host := range strings.Fields("127.0.0.1 localhost LOCALHOST localhost. 127.1 2130706433 0x7f.1 0177.0.0.1 [::1] [::ffff:127.0.0.1] 0.0.0.0 0 sub.localhost") {
		for _, scheme := range []string{"http://", "https://"} {
			if got, err := get(own.URL + "/?to=" + scheme + host + port + "/"); err == nil {
				t.Errorf("%s%s was asked: %q", scheme, host, got)
			}
		}
	}
	_, err := get(own.URL + "/?to=" + inner.URL)
	if !errors.As(err, new(*dial.AddrError)) || !strings.Contains(err.Error(), "only the configuration can name such an address") {
		t.Errorf("the refusal is %v", err)
	}
	// A different scheme is a different origin.
	if _, err := get(own.URL + "/?to=https" + own.URL[4:]); !errors.As(err, new(*dial.AddrError)) {
		t.Errorf("with https: %v", err)
	}

	plain := &http.Client{Transport: dial.New(dial.Options{})}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := plain.Do(r); err == nil || !strings.Contains(err.Error(), "not asked without https") {
		if err == nil {
			resp.Body.Close()
		}
		t.Errorf("plain http: %v", err)
	}
	if n := touched.Load(); n != 0 {
		t.Errorf("the server that nobody configured was asked %d times", n)
	}
}
