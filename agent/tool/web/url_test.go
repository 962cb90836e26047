package web

import (
	"strings"
	"testing"
)

// TestCanonical checks that each URL has one canonical form, and that ambiguous URLs are rejected.
func TestCanonical(t *testing.T) {
	for text, want := range map[string]string{
		"https://Example.COM":                       "https://example.com/",
		"HTTPS://example.com.:443/a?b=c#d":          "https://example.com/a?b=c",
		"http://example.com:80/":                    "http://example.com/",
		"http://example.com:443/":                   "http://example.com:443/",
		"https://bücher.example/ü?q=ü":              "https://xn--bcher-kva.example/%C3%BC?q=%C3%BC",
		"https://BÜCHER.example/":                   "https://xn--bcher-kva.example/",
		"https://ｅｘａｍｐｌｅ。com/":                      "https://example.com/",
		"https://under_score.example.com/":          "https://under_score.example.com/",
		"http://192.0.2.1/":                         "http://192.0.2.1/",
		"http://１９２.0.2.1/":                         "http://192.0.2.1/",
		"http://[2001:DB8:0::1]:8080/":              "http://[2001:db8::1]:8080/",
		"http://[::ffff:192.0.2.1]/":                "http://192.0.2.1/",
		"https://example.com/a/../b":                "https://example.com/b",
		"https://example.com/a/b/..?q=/../":         "https://example.com/a/?q=/../",
		"https://example.com/../__OSL_SECRET[x]__":  "https://example.com/__OSL_SECRET[x]__",
		"https://example.com/a/%2e%2e/b":            "https://example.com/a/%2e%2e/b",
		"https://api.example.com/__OSL_SECRET[x]__": "https://api.example.com/__OSL_SECRET[x]__",
	} {
		got, err := parseURL(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got.String() != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{
		"", "example.com", "//example.com/", "ftp://example.com/", "file:///etc/passwd", "javascript:alert(1)", "https:example.com", "https:///path",
		"https://user@example.com/", "https://user:pass@example.com/", "https://example.com@evil.example/", "https://@example.com/",
		"http://0177.0.0.1/", "http://0x7f.0.0.1/", "http://0x7f000001/", "http://2130706433/", "http://017700000001/", "http://127.1/", "http://127.0.1/",
		"http://127.0.0.1.0x1/", "http://1.2.3.4.5/", "http://256.0.0.1/", "http://127.0.0.01/", "http://0x/", "http://1/", "http://example.1/",
		"http://[fe80::1%25eth0]/", "http://[fe80::1%eth0]/", "http://[::1/", "http://::1/", "http://[127.0.0.1]/", "http://[::1]x/",
		"http://exa mple.com/", "http://example.com\\@evil.example/", "http://example.com\t/", "http://example.com\n/", "http://exam%70le.com/", "http://%31%32%37.0.0.1/",
		"http://example.com:/", "http://example.com:0/", "http://example.com:080/", "http://example.com:65536/", "http://example.com:-1/", "http://example.com:80:80/",
		"http://-example.com/", "http://example..com/", "http://.example.com/", "http://./", "http://exa*mple.com/", "http://xn--a.example/", "http://" + strings.Repeat("a", 64) + ".com/", "http://" + strings.Repeat("a.", 127) + "a/",
	} {
		if got, err := parseURL(text); err == nil {
			t.Errorf("%q was read as %s", text, got)
		}
	}
}

func TestGrants(t *testing.T) {
	f := &fetcher{}
	for _, g := range []Grant{
		{Host: "api.example.com", Methods: []string{"POST"}}, {Host: "API.example.com."}, {Host: "*.wild.example"}, {Host: "ported.example:8443"}, {Host: "127.0.0.1:9"}, {Host: "[::1]"}, {Host: "bücher.example"},
	} {
		r, err := g.rule()
		if err != nil {
			t.Fatal(err)
		}
		f.rules = append(f.rules, r)
	}

	for request, want := range map[string]bool{
		"GET https://api.example.com/": true, "POST https://api.example.com/": true, "HEAD http://api.example.com/": true, "PUT https://api.example.com/": false,
		"GET https://example.com/": false, "GET https://xapi.example.com/": false, "GET https://a.api.example.com/": false, "GET https://api.example.com.evil.example/": false,
		"GET https://api.example.com:8443/": false, "GET https://api.example.com:80/": false,
		"GET https://a.wild.example/": true, "GET https://a.b.wild.example/": true, "GET https://wild.example/": false, "GET https://awild.example/": false, "POST https://a.wild.example/": false,
		"GET https://ported.example:8443/": true, "GET http://ported.example:8443/": true, "GET https://ported.example/": false,
		"GET http://127.0.0.1:9/": true, "GET http://127.0.0.1/": false, "GET http://[::1]/": true, "GET http://[::ffff:127.0.0.1]:9/": true, "GET https://xn--bcher-kva.example/": true,
	} {
		method, text, _ := strings.Cut(request, " ")
		to, err := parseURL(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.access(to, method).granted; got != want {
			t.Errorf("%s: granted %v, want %v", request, got, want)
		}
	}

	for _, host := range []string{"", "https://example.com", "example.com/path", "user@example.com", "*.127.0.0.1", "a.*.example", "exa*.example", "0x7f.1", "example.com:", "[fe80::1%eth0]", "**", "*."} {
		if err := (Grant{Host: host}).Check(); err == nil {
			t.Errorf("%q was taken for a host", host)
		}
	}

	if err := (Grant{Host: "example.com", Methods: []string{"get"}}).Check(); err == nil {
		t.Error("a method in lower case was taken")
	}
}

// FuzzCanonical checks that the canonical form is stable, and that Go's own client sees the same
// host.
func FuzzCanonical(f *testing.F) {
	for _, text := range corpus("80") {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once, err := parseURL(text)
		if err != nil {
			return
		}

		twice, err := parseURL(once.String())
		if err != nil || twice.String() != once.String() {
			t.Fatalf("%q became %s, and that %s (%v)", text, once, twice, err)
		}
		if once.url.Hostname() != once.host || once.url.User != nil {
			t.Fatalf("%q: the host is %q to net/url and %q here", text, once.url.Hostname(), once.host)
		}
	})
}
