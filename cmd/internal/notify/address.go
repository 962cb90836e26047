package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/nicholas-fedor/shoutrrr/pkg/router"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"

	"rouse/internal/text"
)

// answering are the services of which the library says that a message was sent only when the other end has said so.
var answering = []string{"discord", "gotify", "matrix", "ntfy", "slack", "smtp", "telegram"}

// untitled are the services to which the library sends no title, whatever their configuration has: it goes into the text.
var untitled = []string{"googlechat", "hangouts", "matrix", "mattermost", "pagerduty", "rocketchat", "signal", "wecom", "zulip"}

// maxMessage is how much of a text is sent, in runes: the shortest limit of the services that take more than one line.
const maxMessage = 1900

// address is a channel that a URL names: a chat, a telephone, mail.
type address struct {
	url     string
	service string // the scheme of the URL
	hide    *strings.Replacer
}

// newAddress reads a URL of shoutrrr: slack://…, telegram://…, ntfy://…, smtp://…
func newAddress(s Settings) (Channel, error) {
	hide := hider(s.URL)
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme == "" {
		return nil, errors.New("its url cannot be read; write one like ntfy://ntfy.sh/TOPIC or telegram://TOKEN@telegram?chats=ID")
	}
	// It would write to standard output, and say that this was sent.
	if u.Scheme == "logger" {
		return nil, errors.New("its url leads to no person")
	}

	service, _, _ := strings.Cut(u.Scheme, "+")
	a := &address{url: s.URL, service: service, hide: hide}
	// Of Matrix the library logs in when it reads the URL: a server that is down must keep no daemon from starting.
	if service != "matrix" {
		if _, err := a.open(); err != nil {
			return nil, fmt.Errorf("its url cannot be used: %w", err)
		}
	}
	return a, nil
}

// open makes the sender. An error has no keys in it.
func (a *address) open() (*router.ServiceRouter, error) {
	sender, err := router.New(nil, a.url)
	if err != nil {
		return nil, errors.New(a.hide.Replace(text.OneLine(strings.TrimPrefix(err.Error(), "error initializing router services: "))))
	}
	return sender, nil
}

// Send implements Channel.
func (a *address) Send(_ context.Context, m Message) (Receipt, error) {
	title := defuse(text.OneLine(m.Title))
	params := types.Params{}
	if !slices.Contains(untitled, a.service) {
		params["title"] = title
	}
	if a.service == "telegram" {
		params["preview"] = "No" // else its servers open every link
	}

	sender, err := a.open()
	if err != nil {
		return Receipt{}, err
	}

	// Our own link stays as it is: it leads to a page that asks who one is.
	body := defuse(text.Lines(m.Body))
	if slices.Contains(untitled, a.service) {
		body = title + "\n" + body
	}
	body = strings.TrimSpace(text.Truncate(body, maxMessage) + "\n" + m.Link)
	for _, err := range sender.Send(cmp.Or(body, title), &params) {
		if err != nil {
			return Receipt{}, errors.New(a.hide.Replace(text.OneLine(err.Error())))
		}
	}
	return Receipt{Proven: slices.Contains(answering, a.service)}, nil
}

// Check implements Channel: most services can only be asked by sending something.
func (a *address) Check(context.Context) error { return ErrNotAsked }

// minKey is the length from which a part of a URL is taken for a key, in bytes: hiding shorter ones would leave no message.
const minKey = 4

// hider hides all parts of a URL that may be keys: some services have theirs in its user, others in its path or its host.
func hider(address string) *strings.Replacer {
	parts := []string{address}
	if u, err := url.Parse(address); err == nil {
		password, _ := u.User.Password()
		parts = append(parts, u.User.String(), u.User.Username(), password, u.RawQuery)
		parts = append(parts, strings.Split(u.User.Username(), "-")...) // Slack's three
		for part := range strings.SplitSeq(u.EscapedPath(), "/") {
			parts = append(parts, part)
		}
		for _, values := range u.Query() {
			parts = append(parts, values...)
		}
	}

	var pairs []string
	seen := map[string]bool{}
	slices.SortFunc(parts, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, part := range parts {
		plain, err := url.PathUnescape(part)
		if err != nil {
			plain = part
		}
		for _, form := range []string{part, plain, url.QueryEscape(plain), url.PathEscape(plain)} {
			if len(form) >= minKey && !seen[form] && form != "http" && form != "https" { // scheme=http: what is said of the server stays readable
				seen[form] = true
				pairs = append(pairs, form, "…")
			}
		}
	}
	return strings.NewReplacer(pairs...)
}
