package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"rouse/agent/model"
)

var secretHeader = regexp.MustCompile(`(?i)auth|key|token|secret|cookie|password`)

// scrubber blacks out what must not be told: a server may echo the key that it refuses.
func scrubber(o Options, u *url.URL) *strings.Replacer {
	secrets := []string{o.APIKey}
	for name, v := range o.Headers {
		if secretHeader.MatchString(name) {
			_, token, _ := strings.Cut(v, " ") // Bearer TOKEN
			secrets = append(secrets, v, token)
		}
	}
	if password, ok := u.User.Password(); ok {
		secrets = append(secrets, password)
	}
	for _, values := range u.Query() {
		secrets = append(secrets, values...)
	}
	for _, s := range slices.Clone(secrets) { // as they stand in an address
		secrets = append(secrets, url.QueryEscape(s), url.PathEscape(s))
	}
	// The longest first: one secret may be the beginning of another.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, s := range secrets {
		if len(s) >= 4 { // shorter ones cannot be told from other text
			pairs = append(pairs, s, "[secret]")
		}
	}
	return strings.NewReplacer(pairs...)
}

// scrubbed is an error whose text was cleaned; what it wraps can still be asked for.
type scrubbed struct {
	text string
	err  error
}

func (s *scrubbed) Error() string { return s.text }
func (s *scrubbed) Unwrap() error { return s.err }

func (p *Provider) clean(err error) error {
	if err == nil {
		return nil
	}
	return &scrubbed{p.scrub.Replace(err.Error()), err}
}

// slow is a server that took too long.
func (p *Provider) slow(what string, d time.Duration) *model.Error {
	return p.fault(model.KindUnavailable, true, "the model %s at %s %s %s", p.o.Model, p.place, what, d)
}

// unreachable words a request that got no answer.
func (p *Provider) unreachable(err error) error {
	var s *silence
	if errors.As(err, &s) {
		return s.error
	}
	var outer *url.Error
	for errors.As(err, &outer) {
		err = outer.Err // without its address, which may hold credentials
	}
	e := p.fault(model.KindUnavailable, true, "the model server %s cannot be reached for the model %s", p.place, p.o.Model)
	e.Err = p.clean(err)
	return e
}

// said is what a server tells about a failure.
type said struct {
	text string
	code string // its own code or type, "" when it gives none
}

const maxSaid = 300

// understand reads an error in any of the shapes that servers use.
func (p *Provider) understand(raw []byte) said {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		raw = list[0]
	}
	s := said{code: strings.Trim(member(raw, "code")+" "+member(raw, "type"), " ")}
	for _, place := range [][]string{{"error", "message"}, {"error"}, {"message"}, {"detail"}, {"errors"}} {
		if s.text = member(raw, place...); s.text != "" {
			break
		}
	}
	if inner := strings.Trim(member(raw, "error", "code")+" "+member(raw, "error", "type"), " "); inner != "" {
		s.code = inner
	}
	if s.text == "" {
		s.text = plain(string(raw))
	}
	s.text = p.scrub.Replace(strings.Join(strings.Fields(s.text), " ")) // before it is cut
	if runes := []rune(s.text); len(runes) > maxSaid {
		s.text = string(runes[:maxSaid]) + "…"
	}
	return s
}

// member digs a value out of an object: a string as it is, anything else as JSON.
func member(raw json.RawMessage, path ...string) string {
	for _, key := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			return ""
		}
		raw = object[key]
	}
	var text string
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

var title = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)

// plain is what to show of a body that is no JSON.
func plain(text string) string {
	text = strings.TrimSpace(text)
	switch m := title.FindStringSubmatch(text); {
	case m != nil:
		return fmt.Sprintf("a web page titled %q", strings.TrimSpace(m[1]))
	case strings.HasPrefix(text, "<"):
		return "a web page"
	case text == "":
		return "no explanation"
	}
	return text
}

// refusal words an answer that is not a success.
func (p *Provider) refusal(resp *http.Response, s said) error {
	kind, retryable := classify(resp.StatusCode, s)
	e := p.fault(kind, retryable, "the model server %s answered %s for the model %s: %s", p.place, resp.Status, p.o.Model, s.text)
	e.RetryAfter, _ = retryAfter(resp)
	switch {
	case resp.StatusCode == http.StatusNotFound:
		e.Message += "; check base_url and the name of the model"
	case kind == model.KindAuth && p.o.APIKey == "":
		e.Message += "; no api_key is set"
	case kind == model.KindAuth:
		e.Message += "; check api_key and what it is allowed to do"
	case resp.StatusCode/100 == 3:
		e.Message += fmt.Sprintf("; it redirects to %s: if that is right, put it into base_url", p.scrub.Replace(resp.Header.Get("Location")))
	}
	return e
}

// failure words an error that came where an answer was due.
func (p *Provider) failure(data []byte) error {
	s := p.understand(data)
	status := http.StatusOK
	for word := range strings.FieldsSeq(s.code) {
		if n, err := strconv.Atoi(word); err == nil && n >= 400 && n < 600 {
			status = n
		}
	}
	kind, retryable := classify(status, s)
	return p.fault(kind, retryable, "the model %s at %s failed instead of answering: %s", p.o.Model, p.place, s.text)
}

// classify says what kind of failure it is, and whether the same request may succeed later.
func classify(status int, s said) (model.ErrorKind, bool) {
	words := strings.ToLower(s.text + " " + s.code)
	holds := func(any ...string) bool {
		for _, w := range any {
			if strings.Contains(words, w) {
				return true
			}
		}
		return false
	}
	long := holds("context") && holds("exceed", "length", "size", "window", "overflow", "too long") ||
		holds("prompt is too long", "input token count", "maximum number of tokens", "reduce the length")
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired:
		return model.KindAuth, false
	case holds("insufficient_quota"):
		return model.KindRateLimited, false // no pause helps: somebody has to pay
	case status == http.StatusTooManyRequests:
		return model.KindRateLimited, true
	case long:
		return model.KindContextOverflow, false
	case status == http.StatusNotImplemented:
		return model.KindBadRequest, false
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return model.KindUnavailable, true
	case status != http.StatusOK:
		return model.KindBadRequest, false
	case holds("rate_limit", "rate limit"):
		return model.KindRateLimited, true
	case holds("invalid_api_key", "authentication"):
		return model.KindAuth, false
	case holds("invalid_request"):
		return model.KindBadRequest, false
	}
	return model.KindUnavailable, true // it had accepted the request
}
