package check

import (
	"slices"
	"strings"

	"rouse/cmd/internal/config"
	notification "rouse/cmd/internal/notify"
	"rouse/cmd/internal/webhook"
	"rouse/internal/domain"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

func (c *checker) notification(path string, n *config.Notification) {
	c.channelAddress(path, n)
	if at := path + ".quiet_hours"; n.QuietHours != "" && c.hasNoProblem(at) {
		_, err := schedule.ParseQuiet(n.QuietHours)
		c.schedule(at, "quiet_hours", err)
	}
	if at := path + ".digest"; n.Digest != "" && n.Digest != config.NoDigest && c.hasNoProblem(at) {
		_, err := schedule.ParseDaily(n.Digest)
		c.schedule(at, "digest", err)
	}
	if n.Fallback != "" && n.Fallback == n.Name {
		c.bad(path+".fallback", "is the channel itself, which is told already")
	} else {
		c.reference(path+".fallback", "channel", string(n.Fallback), c.channels)
	}
}

// channelAddress refuses keys that do not fit the kind of a channel, and unencrypted addresses.
func (c *checker) channelAddress(path string, n *config.Notification) {
	if !c.hasNoProblem(path+".kind") || !c.hasNoProblem(path+".url") || !c.hasNoProblem(path+".secret") {
		return
	}
	const keep = "secret:NAME, kept with: rouse secrets set NAME"
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

	switch n.Kind {
	case "url":
		if n.URL == "" {
			c.bad(path, "a channel of the kind url needs a url").Hint = "url: " + keep
		} else if _, err := notification.Open(notification.Settings{Kind: n.Kind, URL: n.URL}); err != nil {
			c.bad(path+".url", "%v", err)
		}
	case "webhook":
		if n.Secret == "" {
			c.bad(path, "a webhook needs a secret, so that whoever gets its requests can tell whose they are").Hint = "secret: " + keep
		}
		c.warnSecret(path+".secret", webhook.Standard, n.Secret)
		if u := c.address(path+".url", n.URL, "https://example.net/notices"); u != nil {
			c.encrypted(path+".url", u, "what is sent")
		}
	}
}

// warnSecret warns of a secret that cannot sign requests. The daemon starts nevertheless.
func (c report) warnSecret(path string, scheme webhook.Scheme, secret string) {
	if secret == "" || !c.hasNoProblem(path) {
		return
	}
	if err := scheme.CheckSecret(secret); err != nil {
		c.warn(path, "%v", err)
	}
}

// tells sets the default channels and outcomes of notices. A job that runs more often than hourly
// leaves its successes to the digest.
func (c *checker) tells(path string, j *config.Job) {
	at := path + ".notify.channels"
	if a := c.agent(j); !c.d.Given(at) || c.d.Place(at) == c.d.Place("defaults.notify.channels") {
		j.Notify.Channels = c.cfg.DefaultChannels()
		if a != nil && a.Channels != nil {
			j.Notify.Channels = a.Channels
		}
	}

	if at := path + ".notify.on"; c.d.Given(at) {
		c.warnFailures(at, j.Notify.On)
		return
	}

	j.Notify.On = []string{"success", domain.Failure, "waiting"}
	// Dates and calendars do not count here, so the result does not depend on the current day.
	if slices.ContainsFunc(j.KeptSchedules(), (*schedule.Schedule).MoreThanHourly) {
		j.Notify.On, j.Notify.Digested = []string{domain.Failure, "waiting"}, true
	}
}

// warnFailures warns of a list with error but without other failures, such as timeout.
func (c *checker) warnFailures(path string, on []string) {
	if !slices.Contains(on, string(domain.OutcomeError)) || slices.Contains(on, domain.Failure) {
		return
	}

	var missing []string
	for _, o := range domain.Outcomes() {
		if o.OpensIncident() && !slices.Contains(on, string(o)) {
			missing = append(missing, string(o))
		}
	}
	if len(missing) > 0 {
		c.warn(path, "error does not include %s: a run that ends like that sends no notice", text.List(missing, len(missing))).Hint =
			"write failure instead of error to get a notice for each failed run"
	}
}

// serviceURLs maps addresses that services display to the equivalent channel settings.
var serviceURLs = []struct{ prefix, lines string }{
	{"https://hooks.slack.com/", "kind: url, url: slack://hook:T…-B…-X…@webhook, with the three parts after /services/"},
	{"https://discord.com/api/webhooks/", "kind: url, url: discord://TOKEN@ID, with the two parts ID/TOKEN after /webhooks/"},
	{"https://discordapp.com/api/webhooks/", "kind: url, url: discord://TOKEN@ID, with the two parts ID/TOKEN after /webhooks/"},
	{"https://api.telegram.org/bot", "kind: url, url: telegram://TOKEN@telegram?chats=CHAT, with the token after /bot"},
	{"https://ntfy.sh/", "kind: url, url: ntfy://ntfy.sh/TOPIC"},
	{"ntfy.sh/", "kind: url, url: ntfy://ntfy.sh/TOPIC"},
}

// serviceURL returns the channel settings for an address of a known service, or "". They do not
// contain the address, because it is secret.
func serviceURL(address string) string {
	for _, s := range serviceURLs {
		if strings.HasPrefix(address, s.prefix) {
			return "write " + s.lines + "; better write secret:NAME and store it with: rouse secrets set NAME"
		}
	}
	return ""
}
