package config_test

import (
	"strings"
	"testing"
)

// Traces are sent nowhere unless the configuration says where, and never readable over a network.
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
		_, err := load(write(t, "rouse.yaml", "version: 1\ntelemetry: {"+text+"}\n"), map[string]string{"secret:otlp": "key-0123"})
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// What is added to an endpoint is added once.
func TestTracesURL(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]string{
		"https://otel.test":             "https://otel.test/v1/traces",
		"https://otel.test/":            "https://otel.test/v1/traces",
		"https://otel.test/x":           "https://otel.test/x/v1/traces",
		"https://otel.test/x/v1/traces": "https://otel.test/x/v1/traces",
	} {
		cfg, err := load(write(t, "rouse.yaml", "version: 1\ntelemetry: {otlp: {endpoint: '"+endpoint+"'}}\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.Telemetry.OTLP.TracesURL(); got != want {
			t.Errorf("%s: %s, want %s", endpoint, got, want)
		}
	}
}
