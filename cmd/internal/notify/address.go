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

// answering lists the services with a sender that reports success only after the server has
// confirmed the message.
var answering = []string{"discord", "gotify", "matrix", "ntfy", "slack", "smtp", "telegram"}

// untitled lists the services that ignore the title parameter. Their title is sent as the first
// line of the text.
var untitled = []string{"googlechat", "hangouts", "matrix", "mattermost", "pagerduty", "rocketchat", "signal", "wecom", "zulip"}

// maxMessage is the maximum length of a message, in runes. It is the shortest limit among the
// services that accept more than one line.
const maxMessage = 1900

// address is a Channel that sends to a shoutrrr URL: a chat, a phone or a mailbox.
type address struct {
	url     string
	service string // the scheme of the URL
	hide    *strings.Replacer
}

// newAddress returns a channel for a shoutrrr URL, such as slack://…, telegram://…, ntfy://… or
// smtp://….
func newAddress(s Settings) (Channel, error) {
	hide := hider(s.URL)
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme == "" {
		return nil, errors.New("its url cannot be read; write one like ntfy://ntfy.sh/TOPIC or telegram://TOKEN@telegram?chats=ID")
	}
	// The logger service writes to standard output and reports success.
	if u.Scheme == "logger" {
		return nil, errors.New("its url leads to no person")
	}

	service, _, _ := strings.Cut(u.Scheme, "+")
	a := &address{url: s.URL, service: service, hide: hide}
	// The library logs in to Matrix while it parses the URL. An unreachable server must not keep
	// the daemon from starting.
	if service != "matrix" {
		if _, err := a.open(); err != nil {
			return nil, fmt.Errorf("its url cannot be used: %w", err)
		}
	}
	return a, nil
}

// open returns a sender for the URL. Errors do not contain keys from the URL.
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
		params["preview"] = "No" // otherwise Telegram's servers open every link
	}

	sender, err := a.open()
	if err != nil {
		return Receipt{}, err
	}

	// The link is not defused: it leads to a page of the daemon that requires a login.
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

// Check implements Channel. It returns ErrNotAsked because most services can only be tested by
// sending a message.
func (a *address) Check(context.Context) error { return ErrNotAsked }

// minKey is the minimum length of a URL part that hider treats as a key, in bytes. Hiding shorter
// parts would make errors unreadable.
const minKey = 4

// hider returns a replacer that hides every part of a URL that may be a key. Depending on the
// service, the key is in the user, the path, the query or the host.
func hider(address string) *strings.Replacer {
	parts := []string{address}
	if u, err := url.Parse(address); err == nil {
		password, _ := u.User.Password()
		parts = append(parts, u.User.String(), u.User.Username(), password, u.RawQuery)
		parts = append(parts, strings.Split(u.User.Username(), "-")...) // Slack's token has three parts
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
			// "http" and "https" stay readable: they are values of parameters such as scheme=http.
			if len(form) >= minKey && !seen[form] && form != "http" && form != "https" {
				seen[form] = true
				pairs = append(pairs, form, "…")
			}
		}
	}
	return strings.NewReplacer(pairs...)
}
