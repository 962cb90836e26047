package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"rouse/agent/tool"
)

// secretsIn returns the secrets that a request has placeholders for, each once.
func (f *fetcher) secretsIn(q request) ([]tool.SecretGrant, error) {
	texts := []string{q.target.url.EscapedPath(), q.target.url.RawQuery, q.body}
	for name, value := range q.headers {
		texts = append(texts, value)
		if len(tool.Placeholders(name)) > 0 {
			return nil, fmt.Errorf("a secret stands in the value of a header, not in its name %s", name)
		}
	}

	// The host is not searched, because a secret in it would be sent to the DNS.
	var out []tool.SecretGrant
	for _, name := range tool.Placeholders(strings.Join(texts, "\n")) {
		i := slices.IndexFunc(f.secrets, func(s tool.SecretGrant) bool { return s.Name == name })
		switch {
		case i < 0:
			return nil, fmt.Errorf("the secret %s is not granted to this agent%s", name, f.secretNames())
		case f.secrets[i].Token:
		case f.secrets[i].OnlyTo == "":
			return nil, fmt.Errorf("the secret %s is for commands: it names no host that it may be sent to", name)
		case f.secrets[i].Value == "":
			return nil, fmt.Errorf("the secret %s is not set any more; its owner sets it with: rouse secrets set %[1]s", name)
		}

		out = append(out, f.secrets[i])
	}

	return out, nil
}

func (f *fetcher) secretNames() string {
	var names []string
	for _, s := range f.secrets {
		if s.OnlyTo != "" {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return ", and no other is"
	}

	return "; those for requests are " + strings.Join(names, ", ")
}

// checkSecrets returns an error if the server of t must not receive one of the secrets. Each secret
// may only go to its host over https. Plain http is allowed only for a private address that was
// granted.
func (f *fetcher) checkSecrets(t target, a access, secrets []tool.SecretGrant) error {
	for _, s := range secrets {
		if err := f.checkReceiver(t, s); err != nil {
			return err
		}
		if t.url.Scheme != "https" && !a.near() {
			return fmt.Errorf("the secret %s is sent over https alone, and %s is not", s.Name, t)
		}
	}
	return nil
}

// checkReceiver returns an error if a secret is not for the server of t.
func (f *fetcher) checkReceiver(t target, s tool.SecretGrant) error {
	if s.Token {
		if !slices.ContainsFunc(f.rules, func(r rule) bool { return r.covers(t) }) {
			return fmt.Errorf("the token %s is sent to granted hosts alone (grants.network), and %s is none", s.Name, t.url.Host)
		}
		if why := f.tokens.Refuses(t.String()); why != "" {
			return errors.New(why)
		}
		return nil
	}

	only, err := Grant{Host: s.OnlyTo}.rule()
	if err != nil || !only.covers(t) {
		return fmt.Errorf("the secret %s may be sent to %s alone, not to %s", s.Name, s.OnlyTo, t.url.Host)
	}
	return nil
}

// withTokens fills in the current values of tokens.
func (f *fetcher) withTokens(ctx context.Context, secrets []tool.SecretGrant) (out []tool.SecretGrant, err error) {
	out = slices.Clone(secrets)
	for i, s := range out {
		if !s.Token {
			continue
		}
		if out[i].Value, err = f.tokens.Value(ctx, s.Name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// withSecrets returns the URL, headers and body of the request with the values of its secrets.
func (q request) withSecrets(secrets []tool.SecretGrant) (*url.URL, http.Header, string, error) {
	value := func(as func(string) string) func(string) string {
		return func(name string) string {
			i := slices.IndexFunc(secrets, func(s tool.SecretGrant) bool { return s.Name == name })
			return as(secrets[i].Value)
		}
	}

	u := *q.target.url
	if q.fromCall { // a redirecting server could otherwise obtain a secret in a URL of its choice
		escaped := tool.FillPlaceholders(u.EscapedPath(), value(url.PathEscape))
		plain, err := url.PathUnescape(escaped)
		if err != nil {
			return nil, nil, "", fmt.Errorf("its path is not understood: %w", err)
		}
		u.Path, u.RawPath = plain, escaped
		u.RawQuery = tool.FillPlaceholders(u.RawQuery, value(url.QueryEscape))
	}

	header := http.Header{}
	for name, text := range q.headers {
		text = tool.FillPlaceholders(text, value(func(s string) string { return s }))
		// A secret's value could contain a line break and inject headers.
		if strings.ContainsAny(text, "\r\n\x00") {
			return nil, nil, "", fmt.Errorf("the header %s holds a line break", name)
		}
		header.Set(name, text)
	}

	return &u, header, tool.FillPlaceholders(q.body, value(bodyForm(header.Get("Content-Type")))), nil
}

// bodyForm returns a function that encodes a value for a body of a content type, so that it stays
// one value.
func bodyForm(contentType string) func(string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	switch {
	case err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json")):
		return func(s string) string {
			text, err := json.Marshal(s)
			if err != nil {
				return s // a string can always be encoded
			}
			return string(text[1 : len(text)-1])
		}
	case err == nil && kind == "application/x-www-form-urlencoded":
		return url.QueryEscape
	}

	return func(s string) string { return s }
}
