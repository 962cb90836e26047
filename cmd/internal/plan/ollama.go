package plan

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"rouse/internal/dial"
)

const (
	findOllamaTimeout = 2 * time.Second // for all requests together
	maxOllamaModels   = 10              // models asked for their capabilities
)

type ollamaModel struct {
	Name       string    `json:"name"`
	RemoteHost string    `json:"remote_host"` // set if Ollama only forwards requests to another host
	Modified   time.Time `json:"modified_at"`
}

// FindOllama looks for an Ollama server on this machine. It returns the newest local model that can
// call tools, and the server's address.
func FindOllama(getenv func(string) string) (name, address string, ok bool) {
	address, local := ollamaAddress(getenv("OLLAMA_HOST"))
	if !local {
		// A model on another machine must be configured, because data must not leave this machine
		// unasked.
		return "", "", false
	}

	ctx, cancel := context.WithTimeout(context.Background(), findOllamaTimeout)
	defer cancel()

	var list struct {
		Models []ollamaModel `json:"models"`
	}
	if err := askOllama(ctx, address+"/api/tags", nil, &list); err != nil {
		return "", "", false
	}

	// Sort equal times by name, so that the choice is stable between starts.
	slices.SortStableFunc(list.Models, func(a, b ollamaModel) int {
		return cmp.Or(b.Modified.Compare(a.Modified), strings.Compare(a.Name, b.Name))
	})

	for _, m := range list.Models[:min(len(list.Models), maxOllamaModels)] {
		var about struct {
			Capabilities []string `json:"capabilities"`
			RemoteHost   string   `json:"remote_host"`
		}
		if m.Name == "" || m.RemoteHost != "" || askOllama(ctx, address+"/api/show", map[string]string{"model": m.Name}, &about) != nil {
			continue
		}
		if about.RemoteHost == "" && slices.Contains(about.Capabilities, "tools") {
			return m.Name, address, true
		}
	}

	return "", "", false
}

// ollamaAddress returns the address in OLLAMA_HOST, and reports whether it is on this machine.
func ollamaAddress(host string) (address string, local bool) {
	const port = "11434"
	if host = strings.TrimSpace(host); host == "" {
		return "http://127.0.0.1:" + port, true
	}

	if !strings.Contains(host, "://") {
		host = "http://" + host
	}

	u, err := url.Parse(host)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "", false
	}

	name, own := u.Hostname(), u.Port()
	if ip := net.ParseIP(name); name == "" || ip != nil && ip.IsUnspecified() {
		// The server uses the same variable, and an unspecified address means all addresses there.
		name = "127.0.0.1"
	}
	if ip := net.ParseIP(name); !strings.EqualFold(name, "localhost") && (ip == nil || !ip.IsLoopback()) {
		return "", false
	}

	return u.Scheme + "://" + net.JoinHostPort(name, cmp.Or(own, port)), true
}

func askOllama(ctx context.Context, address string, question, answer any) error {
	method, body := http.MethodGet, io.Reader(nil)
	if question != nil {
		text, err := json.Marshal(question)
		if err != nil {
			return err
		}
		method, body = http.MethodPost, bytes.NewReader(text)
	}

	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return err
	}
	// Use no proxy, because the server is on this machine. Redirects to other local servers are
	// blocked.
	client := &http.Client{Transport: dial.New(dial.Options{Own: []string{address}})}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}

	return json.NewDecoder(io.LimitReader(resp.Body, 8<<20)).Decode(answer)
}
