package config

import (
	"regexp"
	"rouse/cmd/internal/webhook"
)

// webhookPath is a path that can be written into the settings of any sender, and means itself there.
var webhookPath = regexp.MustCompile(`^/hooks(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)

func (c *checker) webhook(path string, j *Job) {
	w := j.Webhook
	if !c.hasNoProblem(path) {
		return
	}
	if c.hasNoProblem(path+".path") && !webhookPath.MatchString(w.Path) {
		c.bad(path+".path", "%q must be like /hooks/NAME: letters, digits, and . _ ~ - within", w.Path)
	}

	if first := c.hooks[w.Path]; first != nil {
		c.bad(path+".path", "the job %q has the webhook %s already (%s)", first.Name, w.Path, first.At)
	} else {
		c.hooks[w.Path] = j
	}
	c.warnSecret(path+".secret", webhook.Scheme(w.Scheme), w.Secret)
	if c.cfg.Dashboard.Off() && On(j.Enabled) {
		c.bad(path, "nobody listens for it: dashboard: {listen: off}")
	}
}

// warnSecret warns of a secret with which no request is signed or accepted. The daemon starts all the same.
func (c *checker) warnSecret(path string, scheme webhook.Scheme, secret string) {
	if secret == "" || !c.hasNoProblem(path) {
		return
	}
	if err := scheme.CheckSecret(secret); err != nil {
		c.warn(path, "%v", err)
	}
}
