package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"rouse/agent/tool"
)

// inward lists hosts that lead to this machine, its network or a cloud's metadata, in spellings
// that have fooled programs.
var inward = strings.Fields(`
	localhost LOCALHOST localhost. LocalHost.localdomain localhost.localdomain ip6-localhost ip6-loopback sub.localhost a.b.localhost loopback
	127.0.0.1 127.0.0.1. 127.0.0.2 127.1 127.0.1 127.127.127.127 127.255.255.254 0 0.0.0.0 0.0.0.0. 0.1 00.0.0.0
	2130706433 2130706433. 017700000001 0177.0.0.1 0177.0.1 0177.1 00177.0.0.1 0177.00.00.01 0000177.0.0.1 0x7f.0.0.1 0x7f.1 0x7f000001 0X7F000001 0x7F.0X0.0x0.0X1 0x7f.0x0.0x0.0x1 0x00007f.1 127.0x1 127.0.0x1 127.0.0.0x1 127.00.0.1 127.0.0.001 127.0.0.01 4294967297 0x100000000 0x17f000001 6425673729
	[::1] [::] [0:0:0:0:0:0:0:1] [0000::0001] [::0:1] [::ffff:127.0.0.1] [::ffff:7f00:1] [::ffff:0:127.0.0.1] [::FFFF:127.0.0.1] [0:0:0:0:0:ffff:127.0.0.1] [::127.0.0.1] [::7f00:1] [64:ff9b::127.0.0.1] [64:ff9b::7f00:1] [64:ff9b:1::7f00:1] [2002:7f00:1::] [2002:7f00:0001::1] [2001:0:7f00:1::] [2001::1] [fe80::1] [fe80::1%25lo] [fe80::1%lo] [::1%25lo] [::1%251] [fc00::1] [fd00::1] [fd00:ec2::254] [fec0::1] [ff02::1] [ff01::1] [100::1] [2001:db8::1] [5f00::1] [::ffff:169.254.169.254] [::ffff:a9fe:a9fe] [64:ff9b::a9fe:a9fe] [::169.254.169.254]
	10.0.0.1 10.255.255.255 172.16.0.1 172.31.255.254 192.168.0.1 192.168.1.254 100.64.0.1 100.100.100.200 169.254.0.1 169.254.169.254 169.254.170.2 168.63.129.16 192.0.0.192 192.0.0.1 198.18.0.1 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255 192.0.2.1 198.51.100.1 203.0.113.1 192.88.99.1
	2852039166 0xa9fea9fe 0xA9.0xFE.0xA9.0xFE 0251.0376.0251.0376 169.254.43518 169.16689662 0251.254.169.254 425.510.425.510 169.254.169.254.
	metadata metadata.google.internal metadata.google.internal. instance-data rebind.example inward.example mapped.example nat64.example six.example cgnat.example cname.example both.example
	127.0.0.1.nip.io 7f000001.nip.io localtest.me lvh.me vcap.me spoofed.burpcollaborator.net 127-0-0-1.example customer1.app.localhost.my.company.127.0.0.1.nip.io
	１２７.0.0.1 １２７。０。０。１ ①②⑦.⓪.⓪.① 127。0。0。1 127｡0｡0｡1 127．0．0．1 ⓛⓞⓒⓐⓛⓗⓞⓢⓣ ｌｏｃａｌｈｏｓｔ ⑯⑨。②⑤④。⑯⑨｡②⑤④ [::①] loc%61lhost %6c%6f%63%61%6c%68%6f%73%74 127%2e0%2e0%2e1 %31%32%37.0.0.1 127.0.0.1%00.example.com 127.0.0.1%20 127.0.0.1%09 loca\u00adlhost`)

// odd lists whole URLs. HOST is replaced by the host of the canary.
var odd = strings.Fields(`
	http:HOST http:/HOST http:///HOST http:////HOST http:\\HOST http:/\HOST http://\HOST http:\/\/HOST //HOST ///HOST \\HOST http://\/HOST
	http://allowed.example@HOST/ http://allowed.example:80@HOST/ http://allowed.example%40HOST/ http://allowed.example\@HOST/ http://HOST\@allowed.example/ http://HOST#@allowed.example/ http://allowed.example#@HOST/ http://allowed.example?@HOST/ http://allowed.example/@HOST/ http://a:b@c:d@HOST/ http://@HOST/ http://:@HOST/ http://:a@HOST/ http://%40HOST/ http://HOST%2f@allowed.example/ http://allowed.example;@HOST/ http://allowed.example&@HOST#@allowed.example/
	http://HOST;allowed.example/ http://HOST,allowed.example/ http://HOST%00/ http://HOST%0d%0aX:y/ http://HOST%23.allowed.example/ http://HOST?.allowed.example/ http://HOST&allowed.example http://[HOST]/ http://[::1]HOST/ http://allowed.example:HOST/ http://HOST:80/ http://HOST:HOST/
	gopher://HOST/_x dict://HOST/x ftp://HOST/ ftps://HOST/ tftp://HOST/ ldap://HOST/ file://HOST/etc/passwd file:///etc/hosts jar:http://HOST/!/ netdoc://HOST/ ws://HOST/ wss://HOST/ unix://HOST/ data:text/html,http://HOST view-source:http://HOST/ javascript:fetch('http://HOST') url:http://HOST http+unix://HOST/ HTTP:HOST hTTp:HOST about:blank blob:http://HOST/ smb://HOST/x rtsp://HOST/ telnet://HOST/ mailto:a@HOST`)

// corpus returns the URLs that must be refused, with the port of the canary.
func corpus(port string) []string {
	var out []string
	for _, host := range append(inward, "lo\u00adcalhost") { // with a soft hyphen
		for _, scheme := range []string{"http", "https"} {
			out = append(out, fmt.Sprintf("%s://%s:%s/", scheme, host, port))
		}
		out = append(out, fmt.Sprintf("http://%s/", host))
	}

	for _, text := range odd {
		out = append(out, strings.ReplaceAll(text, "HOST", "127.0.0.1:"+port), strings.ReplaceAll(text, "HOST", "localhost:"+port))
	}
	return out
}

// canary counts connections to this machine.
func canary(t *testing.T) (port string, touched *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}

	touched = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			touched.Add(1)
			c.Close()
		}
	}()

	t.Cleanup(func() { l.Close() })
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	return port, touched
}

// resolver returns a name server that resolves every name to a private address. The answers for
// names in told alternate.
func resolver(t *testing.T, told map[string][]string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { conn.Close() })
	go func() {
		asked := map[string]int{}
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}

			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}

			q := m.Questions[0]
			answers := told[strings.ToLower(q.Name.String())]
			if answers == nil {
				answers = []string{"127.0.0.1", "::1"}
			} else {
				key := q.Name.String() + q.Type.String()
				answers = answers[asked[key]%len(answers):][:1]
				asked[key]++
			}

			m.Response, m.Authoritative, m.RecursionAvailable, m.Additionals = true, true, true, nil
			for _, text := range answers {
				addr := netip.MustParseAddr(text)
				h := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}
				switch {
				case q.Type == dnsmessage.TypeA && addr.Is4():
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: addr.As4()}})
				case q.Type == dnsmessage.TypeAAAA && addr.Is6():
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
				}
			}

			out, err := m.Pack()
			if err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()

	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

var inwardNames = map[string][]string{
	"mapped.example.": {"::ffff:127.0.0.1"}, "nat64.example.": {"64:ff9b::7f00:1"}, "six.example.": {"::1"}, "cgnat.example.": {"100.64.0.1"},
	"rebind.example.": {"192.0.2.1", "127.0.0.1"}, "both.example.": {"10.0.0.1", "127.0.0.1"},
}

// call makes one call like the loop.
func call(t *testing.T, tools []tool.Tool, a map[string]any) tool.Envelope {
	t.Helper()
	registry, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}

	raw, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}

	e, err := registry.Call(t.Context(), tool.Invocation{Run: 1, Key: "1/1"}, fetchSpec.Name, raw)
	if err != nil {
		t.Fatal(err)
	}

	return e
}

func tools(t *testing.T, o Options) []tool.Tool {
	t.Helper()
	out, err := Tools(o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPrivateAddresses checks that no URL leads to a private address, directly or by a redirect of
// a granted server, even if all hosts are granted.
func TestPrivateAddresses(t *testing.T) {
	port, touched := canary(t)
	all := corpus(port)
	if len(all) < 200 {
		t.Fatalf("the corpus has %d addresses", len(all))
	}

	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", all[len(r.URL.Query().Get("n"))])
		w.WriteHeader([]int{301, 302, 303, 307, 308}[len(r.URL.Query().Get("n"))%5])
	}))
	defer front.Close()

	// The client must also ignore proxies in the environment.
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:"+port)
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:"+port)
	t.Setenv("ALL_PROXY", "socks5://127.0.0.1:"+port)
	u, err := url.Parse(front.URL)
	if err != nil {
		t.Fatal(err)
	}

	fetch := tools(t, Options{Resolver: resolver(t, inwardNames), Grants: []Grant{
		{Host: "*:" + port, Methods: Methods}, {Host: "*", Methods: Methods}, {Host: u.Host, Methods: Methods},
	}})
	for i, text := range all {
		if e := call(t, fetch, map[string]any{"url": text}); e.OK {
			t.Errorf("%s was answered: %s", text, e.Result)
		}
		if e := call(t, fetch, map[string]any{"url": front.URL + "/?n=" + strings.Repeat("x", i), "method": []string{"GET", "POST"}[i%2]}); !e.OK || !strings.Contains(strings.Join(e.Warnings, " "), "redirect was not followed") {
			t.Errorf("a redirect to %s was followed, or its request counts as refused: %+v", text, e)
		}
		if n := touched.Load(); n != 0 {
			t.Fatalf("%s led to %d connections inwards", text, n)
		}
	}

	t.Logf("%d addresses, directly and by redirect: 0 connections", len(all))
}

// TestRebinding checks that a name whose address changes leads only to an address that was checked.
func TestRebinding(t *testing.T) {
	_, touched := canary(t)
	near, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skipf("this machine has no second address of its own: %v", err)
	}

	server := &httptest.Server{Listener: near, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") })}}
	server.Start()
	defer server.Close()

	f := &fetcher{redact: func(s string) string { return s }, resolver: resolver(t, map[string][]string{"rebind.example.": {"127.0.0.2", "127.0.0.1"}})}
	_, nearPort, err := net.SplitHostPort(near.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	to, err := parseURL("http://rebind.example:" + nearPort + "/")
	if err != nil {
		t.Fatal(err)
	}

	reached, refused := 0, 0
	for range 100 {
		conn, err := f.dial(to, access{addr: netip.MustParseAddr("127.0.0.2")})(t.Context(), "tcp", "")
		if err != nil {
			refused++
			continue
		}

		if got := conn.RemoteAddr().String(); got != near.Addr().String() {
			t.Fatalf("connected to %s", got)
		}

		conn.Close()
		reached++
	}

	if reached == 0 || refused == 0 || touched.Load() != 0 {
		t.Fatalf("%d reached, %d refused, %d inwards", reached, refused, touched.Load())
	}
}
