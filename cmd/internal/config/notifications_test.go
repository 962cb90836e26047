package config_test

import (
	"strings"
	"testing"
)

// Channels that could tell nobody anything are refused at their line, and nothing that is said of them has their keys.
func TestNotifications(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ yaml, want string }{
		"good": {`[{name: chat, kind: url, url: "ntfy://ntfy.example/s3cret", quiet_hours: "22:00-07:00", fallback: hook},
  {name: hook, kind: webhook, url: "https://example.net/x", secret: s3cretkey, fallback: desktop}]`, ""},
		"a webhook on this machine":    {`[{name: hook, kind: webhook, url: "http://127.0.0.1:9/x", secret: s3cretkey}]`, ""},
		"no url":                       {`[{name: chat, kind: url}]`, "a channel of the kind url needs a url"},
		"an unknown service":           {`[{name: chat, kind: url, url: "https://x.example/s3cret"}]`, "unknown service"},
		"a url without its token":      {`[{name: chat, kind: url, url: "telegram://telegram?chats=s3cret"}]`, "its url cannot be used"},
		"a url of the desktop":         {`[{name: chat, kind: desktop, url: "ntfy://s3cret.example/s3cret"}]`, "notifications[0].url: the desktop has none"},
		"a secret of a chat":           {`[{name: chat, kind: url, url: "ntfy://x/s3cret", secret: s3cretkey}]`, "only requests of the kind webhook are signed"},
		"no secret":                    {`[{name: hook, kind: webhook, url: "https://example.net/s3cret"}]`, "a webhook needs a secret"},
		"plain http":                   {`[{name: hook, kind: webhook, url: "http://example.net/s3cret", secret: s3cretkey}]`, "must be https"},
		"no address":                   {`[{name: hook, kind: webhook, url: "s3cret", secret: s3cretkey}]`, "must be a URL like https://"},
		"hours that are none":          {`[{name: desktop, kind: desktop, quiet_hours: at night}]`, "is neither none nor hours like 22:00-07:00"},
		"a fallback that is not there": {`[{name: desktop, kind: desktop, fallback: chta}, {name: chat, kind: desktop}]`, "chat"},
		"a group and a digest":         {`[{name: desktop, kind: desktop, group: {every: 1, recovery: false}, digest: daily at 08:00}]`, ""},
		"a group of none":              {`[{name: desktop, kind: desktop, group: {every: 0}}]`, "notifications[0].group.every"},
		"no digest":                    {`[{name: desktop, kind: desktop, digest: off}]`, ""},
		"a digest that is none":        {`[{name: desktop, kind: desktop, digest: weekly}]`, "is not like daily at 08:00"},
		"a fallback that is itself":    {`[{name: desktop, kind: desktop, fallback: desktop}]`, "is the channel itself"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(write(t, "rouse.yaml", "version: 1\nnotifications: "+c.yaml+"\n"), nil)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want == "":
			case err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "rouse.yaml:2"):
				t.Errorf("%v, want %q", err, c.want)
			case strings.Contains(err.Error(), "s3cret"):
				t.Errorf("it tells what is secret: %v", err)
			}
		})
	}
}
