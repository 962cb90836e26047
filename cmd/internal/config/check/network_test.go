package check_test

import (
	"fmt"
	"strings"
	"testing"

	"rouse/cmd/internal/config/configtest"
	"rouse/cmd/internal/config/yaml"
)

// TestWebhooks checks that mistakes in webhooks are reported, and that only their runs know their
// names.
func TestWebhooks(t *testing.T) {
	for job, say := range map[string]string{
		`webhook: {path: /hooks/a, secret: s}, prompt: "{{ .Body }} {{ .Payload.x.y }} {{ .Delivery.Event }}"`:         "",
		`webhook: {path: /hooks/a/b-c.d, secret: s, scheme: github, max_body: 3MiB}, prompt: x`:                        "",
		`webhook: {path: /hooks/a, secret: s}, when: [{that: 'Payload.action == "opened" and Body != ""'}], prompt: x`: "",
		`schedule: "@daily", when: [{that: "LastSuccess.Year() < 2000"}], prompt: x`:                                   "",
		`webhook: {path: /hooks/a}, prompt: x`:                                                                         `jobs[0].webhook: the key "secret" is missing`,
		`webhook: {path: /v1/a, secret: s}, prompt: x`:                                                                 `must be like /hooks/NAME`,
		`webhook: {path: /hooks/../v1, secret: s}, prompt: x`:                                                          `must be like /hooks/NAME`,
		`webhook: {path: /hooks/, secret: s}, prompt: x`:                                                               `must be like /hooks/NAME`,
		`webhook: {path: "/hooks/a?b", secret: s}, prompt: x`:                                                          `must be like /hooks/NAME`,
		`webhook: {path: /hooks/a, secret: s, scheme: gitub}, prompt: x`:                                               `did you mean "github"?`,
		`webhook: {path: /hooks/a, secret: s, max_body: 0}, prompt: x`:                                                 `jobs[0].webhook.max_body`,
		`webhook: {path: /hooks/a, secret: s}, prompt: "{{ .Delivery.Evnt }}"`:                                         `did you mean`,
		`webhook: {path: /hooks/a, secret: s}, when: [{that: "Paylod.x"}], prompt: x`:                                  `did you mean "Payload"?`,
		`webhook: {path: /hooks/a, secret: s}, when: [{that: "Payload ="}], prompt: x`:                                 `jobs[0].when[0].that`,
		`webhook: {path: /hooks/a, secret: s}, when: [{that: " "}], prompt: x`:                                         `jobs[0].when[0].that: is empty`,
		`schedule: "@daily", when: [{that: "Payload.x"}], prompt: x`:                                                   `only a run that a webhook started has Payload`,
	} {
		_, err := configtest.Load(configtest.Write(t, "rouse.yaml", fmt.Sprintf("agents: [{name: a}]\njobs: [{name: j, agent: a, %s}]\n", job)), nil)
		switch {
		case say == "" && err != nil:
			t.Errorf("%s: %v", job, err)
		case say != "" && (err == nil || !strings.Contains(err.Error(), say)):
			t.Errorf("%s: %v, want %s", job, err, say)
		}
	}

	two := "jobs:\n  - {name: j, agent: a, webhook: {path: /hooks/a, secret: s}, prompt: x}\n  - {name: k, agent: a, webhook: {path: /hooks/a, secret: t}, prompt: x}\n"
	if _, err := configtest.Load(configtest.Write(t, "rouse.yaml", "agents: [{name: a}]\n"+two), nil); err == nil || !strings.Contains(err.Error(), `the job "j" has the webhook /hooks/a already`) {
		t.Errorf("two at one path: %v", err)
	}
	off := "dashboard: {listen: off}\nagents: [{name: a}]\njobs: [{name: j, agent: a, webhook: {path: /hooks/a, secret: s}, prompt: x}]\n"
	if _, err := configtest.Load(configtest.Write(t, "rouse.yaml", off), nil); err == nil || !strings.Contains(err.Error(), "nobody listens for it") {
		t.Errorf("nobody listens: %v", err)
	}
}

// The heartbeat URL must be encrypted, and is never shown.
func TestHeartbeatURL(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://hc-ping.test/0b5d": "",
		"http://127.0.0.1:8000/x":   "",
		"http://[::1]/x":            "",
		"secret:ping":               "",

		"hc-ping.test/0b5d":         "must be a URL like",
		"ftp://hc-ping.test/0b5d":   "must be a URL like",
		"http://hc-ping.test/0b5d":  "must be https",
		"https://me:pw@hc-ping.com": "neither a user",
		"https://hc-ping.com/#x":    "neither a user",
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "version: 1\nheartbeat_url: '"+address+"'\n"), map[string]string{"secret:ping": "https://hc-ping.test/0b5d"})
		switch {
		case want != "":
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", address, err, want)
			}
			continue
		case err != nil:
			t.Errorf("%s: %v", address, err)
			continue
		}

		shown, err := yaml.Show(cfg)
		if err != nil || strings.Contains(string(shown), cfg.HeartbeatURL) || !strings.Contains(string(shown), "heartbeat_url: '********'") && !strings.Contains(string(shown), "heartbeat_url: \"********\"") {
			t.Errorf("%s: %v\n%s", address, err, shown)
		}
	}
}

// Traces are sent only to a configured and encrypted endpoint.
func TestTelemetry(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                                      "",
		`otlp: {endpoint: "https://otel.test"}`: "",
		`otlp: {endpoint: "http://127.0.0.1:4318"}`:                                                "",
		`otlp: {endpoint: "http://[::1]:4318/"}`:                                                   "",
		`otlp: {endpoint: "http://localhost:4318"}`:                                                "",
		`otlp: {endpoint: "https://otel.test", headers: {Authorization: "Bearer ${secret:otlp}"}}`: "",

		`otlp: {}`:                                                   "endpoint",
		`otlp: {endpoint: "otel.test:4318"}`:                         "must be a URL like",
		`otlp: {endpoint: "ftp://otel.test"}`:                        "must be a URL like",
		`otlp: {endpoint: "http://otel.test"}`:                       "must be https",
		`otlp: {endpoint: "http://127.0.0.1.otel.test"}`:             "must be https",
		`otlp: {endpoint: "http://192.168.1.2:4318"}`:                "must be https",
		`otlp: {endpoint: "https://me:secret@otel.test"}`:            "neither a user",
		`otlp: {endpoint: "https://otel.test/?key=1"}`:               "neither a user",
		`otlp: {endpoint: "https://otel.test", headers: {"a b": c}}`: "is no header",
		`traces: true`: `unknown key "traces"`,
	} {
		_, err := configtest.Load(configtest.Write(t, "rouse.yaml", "version: 1\ntelemetry: {"+text+"}\n"), map[string]string{"secret:otlp": "key-0123"})
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// The path is appended to an endpoint only once.
func TestTracesURL(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]string{
		"https://otel.test":             "https://otel.test/v1/traces",
		"https://otel.test/":            "https://otel.test/v1/traces",
		"https://otel.test/x":           "https://otel.test/x/v1/traces",
		"https://otel.test/x/v1/traces": "https://otel.test/x/v1/traces",
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "version: 1\ntelemetry: {otlp: {endpoint: '"+endpoint+"'}}\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.Telemetry.OTLP.TracesURL(); got != want {
			t.Errorf("%s: %s, want %s", endpoint, got, want)
		}
	}
}

// TestDashboard checks that a network address requires TLS or a proxy, and that addresses that
// browsers cannot use are refused.
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
		_, err := configtest.Load(configtest.Write(t, "rouse.yaml", "version: 1\ndashboard: {"+text+"}\n"), nil)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}

	// The TLS key is trusted, so agents must not be able to write it.
	_, err := configtest.Load(configtest.Write(t, "rouse.yaml", "version: 1\nagents: [{name: ann, workdir: ./work}]\ndashboard: {listen: \"127.0.0.1:0\", tls: {cert: ./work/c.pem, key: ./work/k.pem}}\n"), nil)
	if err == nil || !strings.Contains(err.Error(), "the certificate of the dashboard") {
		t.Errorf("a key in a workdir: %v", err)
	}
}

// Channels that cannot deliver are refused at their position, and messages do not contain their
// keys.
func TestNotifications(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ yaml, want string }{
		"good": {`[{name: chat, kind: url, url: "ntfy://ntfy.example/s3cret", quiet_hours: "22:00-07:00", fallback: hook},
  {name: hook, kind: webhook, url: "https://example.net/x", secret: s3cretkey, fallback: desktop}]`, ""},
		"a webhook on this machine":    {`[{name: hook, kind: webhook, url: "http://127.0.0.1:9/x", secret: s3cretkey}]`, ""},
		"no url":                       {`[{name: chat, kind: url}]`, "a channel of the kind url needs a url"},
		"an unknown service":           {`[{name: chat, kind: url, url: "https://x.example/s3cret"}]`, "unknown service"},
		"a url without its token":      {`[{name: chat, kind: url, url: "telegram://telegram?chats=s3cret"}]`, "its url cannot be used"},
		"a url of the desktop":         {`[{name: chat, kind: desktop, url: "ntfy://s3cret.example/s3cret"}]`, "notifications[0].url: the desktop has none"},
		"a secret of a chat":           {`[{name: chat, kind: url, url: "ntfy://x/s3cret", secret: s3cretkey}]`, "only requests of the kind webhook are signed"},
		"no secret":                    {`[{name: hook, kind: webhook, url: "https://example.net/s3cret"}]`, "a webhook needs a secret"},
		"plain http":                   {`[{name: hook, kind: webhook, url: "http://example.net/s3cret", secret: s3cretkey}]`, "must be https"},
		"no address":                   {`[{name: hook, kind: webhook, url: "s3cret", secret: s3cretkey}]`, "must be a URL like https://"},
		"hours that are none":          {`[{name: desktop, kind: desktop, quiet_hours: at night}]`, "is neither none nor hours like 22:00-07:00"},
		"a fallback that is not there": {`[{name: desktop, kind: desktop, fallback: chta}, {name: chat, kind: desktop}]`, "chat"},
		"a group and a digest":         {`[{name: desktop, kind: desktop, group: {every: 1, recovery: false}, digest: daily at 08:00}]`, ""},
		"a group of none":              {`[{name: desktop, kind: desktop, group: {every: 0}}]`, "notifications[0].group.every"},
		"no digest":                    {`[{name: desktop, kind: desktop, digest: off}]`, ""},
		"a digest that is none":        {`[{name: desktop, kind: desktop, digest: weekly}]`, "is not like daily at 08:00"},
		"a fallback that is itself":    {`[{name: desktop, kind: desktop, fallback: desktop}]`, "is the channel itself"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := configtest.Load(configtest.Write(t, "rouse.yaml", "version: 1\nnotifications: "+c.yaml+"\n"), nil)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want == "":
			case err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "rouse.yaml:2"):
				t.Errorf("%v, want %q", err, c.want)
			case strings.Contains(err.Error(), "s3cret"):
				t.Errorf("it tells what is secret: %v", err)
			}
		})
	}
}
