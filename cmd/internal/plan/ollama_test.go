package plan

import "testing"

func TestOllamaAddress(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"": "http://127.0.0.1:11434", "0.0.0.0": "http://127.0.0.1:11434", "127.0.0.1:8080": "http://127.0.0.1:8080", "localhost": "http://localhost:11434",
		":5000": "http://127.0.0.1:5000", "http://[::1]:9": "http://[::1]:9", "https://127.0.0.1": "https://127.0.0.1:11434", "0.0.0.0:1": "http://127.0.0.1:1",
		"gpu.lan:11434": "", "https://ollama.com": "", "unix:///x": "", "::": "",
	} {
		if got, local := ollamaAddress(host); local != (want != "") || got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}
