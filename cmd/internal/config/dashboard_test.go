package config_test

import (
	"strings"
	"testing"
)

// An address that other machines reach needs somebody who speaks TLS with browsers, and is refused otherwise; what no
// browser could be at is refused as well.
func TestDashboard(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                         "",
		`listen: off`:              "",
		`listen: "127.0.0.1:0"`:    "",
		`listen: "localhost:7311"`: "",
		`listen: "[::1]:7311"`:     "",
		`listen: "127.0.0.1:7311", hosts: [box.example.net], proxy: {user_header: Tailscale-User-Login, from: 127.0.0.1}`: "",
		`listen: "100.64.0.1:7311", hosts: [box.example.net], proxy: {user_header: X-User, from: 100.64.0.2}`:             "",
		`listen: "192.168.1.5:7311", tls: {cert: c.pem, key: k.pem}`:                                                      "",
		`listen: "0.0.0.0:7311", hosts: ["box.example.net:7311"], tls: {cert: c.pem, key: k.pem}`:                         "",

		`listen: "192.168.1.5:7311"`:                                  "can be reached by other machines",
		`listen: "0.0.0.0:7311"`:                                      "can be reached by other machines",
		`listen: ":7311"`:                                             "is no IP address",
		`listen: "box.example.net:7311"`:                              "is no IP address",
		`listen: 7311`:                                                "is no address to listen on",
		`listen: "127.0.0.1:70000"`:                                   "is no address to listen on",
		`listen: "127.0.0.1:http"`:                                    "is no address to listen on",
		`listen: "0.0.0.0:7311", tls: {cert: c.pem, key: k.pem}`:      "is every address of this machine",
		`listen: "192.168.1.5:7311", tls: {cert: c.pem}`:              "key",
		`hosts: ["https://box.example.net/"]`:                         "is no name of a host",
		`hosts: ["*.example.net"]`:                                    "is no name of a host",
		`proxy: {user_header: X-User, from: 127.0.0.1}`:               "say under hosts",
		`hosts: [box], proxy: {user_header: X-User, from: localhost}`: "is no IP address",
		`hosts: [box], tls: {cert: c.pem, key: k.pem}, proxy: {user_header: X-User, from: 127.0.0.1}`: "give tls or proxy, not both",
		`off: true`: `unknown key "off"`,
	} {
		_, err := load(write(t, "rouse.yaml", "version: 1\ndashboard: {"+text+"}\n"), nil)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}

	// Its key is trusted, and must not lie where an agent could write it.
	_, err := load(write(t, "rouse.yaml", "version: 1\nagents: [{name: ann, workdir: ./work}]\ndashboard: {listen: \"127.0.0.1:0\", tls: {cert: ./work/c.pem, key: ./work/k.pem}}\n"), nil)
	if err == nil || !strings.Contains(err.Error(), "the certificate of the dashboard") {
		t.Errorf("a key in a workdir: %v", err)
	}
}
