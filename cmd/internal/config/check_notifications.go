package config

import (
	"fmt"
	"net/url"

	notification "rouse/cmd/internal/notify"
	"rouse/cmd/internal/webhook"
	"rouse/scheduler/schedule"
)

// checkNotifications refuses channels that could not say anything to anybody.
func (c *checker) checkNotifications(channels []Notification) {
	for i, n := range channels {
		path := fmt.Sprintf("notifications[%d]", i)
		c.checkChannelAddress(path, n)

		if at := path + ".quiet_hours"; n.QuietHours != "" && c.hasNoProblem(at) {
			_, err := schedule.ParseQuiet(n.QuietHours)
			c.schedule(at, "quiet_hours", err)
		}
		if at := path + ".digest"; n.Digest != "" && n.Digest != NoDigest && c.hasNoProblem(at) {
			_, err := schedule.ParseDaily(n.Digest)
			c.schedule(at, "digest", err)
		}
		switch n.Fallback {
		case "":
		case n.Name:
			c.bad(path+".fallback", "is the channel itself, which is told already")
		default:
			c.reference(path+".fallback", "channel", string(n.Fallback), c.channels)
		}
	}
}

// checkChannelAddress refuses keys that a kind of channel does not have, and an address at which others could listen in.
func (c *checker) checkChannelAddress(path string, n Notification) {
	if !c.hasNoProblem(path+".kind") || !c.hasNoProblem(path+".url") || !c.hasNoProblem(path+".secret") {
		return
	}
	if n.Kind == "desktop" && n.URL != "" {
		c.bad(path+".url", "the desktop has none")
	}
	if hint := serviceURL(n.URL); hint != "" {
		c.bad(path+".url", "is the address that the service shows; this channel needs another form").Hint = hint
		return
	}
	if n.Kind != "webhook" && n.Secret != "" {
		c.bad(path+".secret", "only requests of the kind webhook are signed")
	}
	if n.Kind == "url" {
		if n.URL == "" {
			c.bad(path, "a channel of the kind url needs a url").Hint = "url: secret:NAME, kept with: rouse secrets set NAME"
		} else if _, err := notification.Open(notification.Settings{Kind: n.Kind, URL: n.URL}); err != nil {
			c.bad(path+".url", "%v", err)
		}
	}
	if n.Kind != "webhook" {
		return
	}

	if n.Secret == "" {
		c.bad(path, "a webhook needs a secret, so that whoever gets its requests can tell whose they are").Hint = "secret: secret:NAME, kept with: rouse secrets set NAME"
	}
	c.warnSecret(path+".secret", webhook.Standard, n.Secret)
	u, err := url.Parse(n.URL)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		c.bad(path+".url", "must be a URL like https://example.net/notices")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		c.bad(path+".url", "must be https: whoever is between could read what is sent")
	}
}
