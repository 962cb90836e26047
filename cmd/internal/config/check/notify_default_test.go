package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rouse/cmd/internal/config/configtest"
)

// A job that runs more often than hourly leaves its successes to the digest of its channels,
// unless notify.on is configured.
func TestNotifyOfJobsThatRunOften(t *testing.T) {
	t.Parallel()
	const usual, quiet = "success failure waiting", "failure waiting"
	for name, c := range map[string]struct {
		job, more string
		on        string
		digests   string // digests of desktop and phone
	}{
		"every five minutes":     {`schedule: "*/5 * * * *"`, "", quiet, ",daily at 08:00"},
		"some minutes of a day":  {`schedule: "*/10 9 * * *"`, "", quiet, ",daily at 08:00"},
		"an interval":            {`every: 59m`, "", quiet, ",daily at 08:00"},
		"hourly":                 {`schedule: "0 * * * *"`, "", usual, ","},
		"an hour":                {`every: 1h`, "", usual, ","},
		"once":                   {`at: "2030-01-01T08:00:00Z"`, "", usual, ","},
		"a watch":                {`watch: {path: ./in}`, "", usual, ","},
		"but on some days":       {`schedule: "*/5 * * * *", exclude: [closed]`, "calendars: [{name: closed, holidays: DE}]", quiet, ",daily at 08:00"},
		"on a few days alone":    {`schedule: "*/5 * * * *", only: ["2030-01-01"]`, "", quiet, ",daily at 08:00"},
		"said by the job":        {`schedule: "*/5 * * * *", notify: {on: [success]}`, "", "success", ","},
		"nothing":                {`schedule: "*/5 * * * *", notify: {on: []}`, "", "", ","},
		"said for all":           {`schedule: "*/5 * * * *"`, "defaults: {notify: {on: [error, success]}}", "error success", ","},
		"channels alone for all": {`schedule: "*/5 * * * *"`, "defaults: {notify: {channels: [phone]}}", quiet, ",daily at 08:00"},
		"its own channel":        {`schedule: "*/5 * * * *", notify: {channels: [phone]}`, "", quiet, ",daily at 08:00"},
		"a digest of its own":    {`schedule: "*/5 * * * *", notify: {channels: [evening]}`, "", quiet, ","},
		"no digest":              {`schedule: "*/5 * * * *", notify: {channels: [none]}`, "", quiet, ","},
		"disabled":               {`schedule: "*/5 * * * *", enabled: false`, "", quiet, ","},
		"a wrong schedule":       {`schedule: "*/5 * * *"`, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := fmt.Sprintf(`version: 1
agents: [{name: a}]
%s
notifications:
  - {name: phone, kind: desktop}
  - {name: evening, kind: desktop, digest: daily at 18:30}
  - {name: none, kind: desktop, digest: off}
jobs:
  - {name: j, agent: a, playbook: [{call: todo, with: {markdown: x}}], %s}
`, c.more, c.job)
			cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", text), nil)
			if c.digests == "" {
				if err == nil {
					t.Error("a wrong schedule was taken")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}

			if got := strings.Join(cfg.Jobs[0].Notify.On, " "); got != c.on {
				t.Errorf("it tells of %q, want %q", got, c.on)
			}
			if got := cfg.DigestOf("desktop") + "," + cfg.DigestOf("phone"); got != c.digests {
				t.Errorf("digests %q, want %q", got, c.digests)
			}
			if cfg.DigestOf("evening") != "daily at 18:30" || cfg.DigestOf("none") != "" {
				t.Errorf("%q, %q", cfg.DigestOf("evening"), cfg.DigestOf("none"))
			}
			if cfg.Jobs[0].Notify.Digested == slices.Contains(cfg.Jobs[0].Notify.On, "success") && c.on != "" {
				t.Errorf("digested %v with %q", cfg.Jobs[0].Notify.Digested, cfg.Jobs[0].Notify.On)
			}
		})
	}
}

// A list with error but without the other failures causes one warning, at the line of the list.
func TestNotifyOfErrorAlone(t *testing.T) {
	t.Parallel()
	for on, missing := range map[string]string{
		"error":                     "timeout, budget_exceeded, interrupted",
		"[error, waiting]":          "timeout, budget_exceeded, interrupted",
		"[error, timeout, waiting]": "budget_exceeded, interrupted",
		"[failure, error]":          "",
		"[failure]":                 "",
		"[success]":                 "",
		"[]":                        "",
		"[timeout]":                 "",
		"[error, timeout, budget_exceeded, interrupted]": "",
	} {
		for place, text := range map[string]string{
			"job":     "jobs: [{name: j, agent: a, playbook: [{call: db_schema}], notify: {on: " + on + "}}]",
			"default": "defaults: {notify: {on: " + on + "}}\njobs: [{name: j, agent: a, playbook: [{call: db_schema}]}, {name: k, agent: a, playbook: [{call: db_schema}]}]",
		} {
			cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "version: 1\nagents: [{name: a}]\n"+text+"\n"), nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range cfg.Warnings {
				if strings.Contains(w.Message, "error does not include") {
					got = append(got, fmt.Sprintf("%d %s; %s", w.Line, w.Message, w.Hint))
				}
			}
			var want []string
			if missing != "" {
				want = []string{"3 error does not include " + missing + ": a run that ends like that sends no notice; write failure instead of error to get a notice for each failed run"}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s in %s: %q, want %q", on, place, got, want)
			}
		}
	}
}

// The channels of a job are its own, else its agent's, else those of defaults, else the first of
// notifications. Without any, the list is nil, because the notifier looks for a desktop session.
func TestChannelsOfJobs(t *testing.T) {
	t.Parallel()
	const phones = "notifications: [{name: phone, kind: desktop}, {name: ops, kind: desktop}]\n"
	for _, c := range []struct{ more, agent, job, want string }{
		{phones, "", "channels: [ops]", "[ops]"},
		{phones, "", "channels: []", "[]"},
		{phones, "", "", "[phone]"},
		{phones, "channels: [ops]", "", "[ops]"},
		{phones, "channels: [ops]", "channels: [phone, ops]", "[phone ops]"},
		{phones + "defaults: {notify: {channels: [ops]}}\n", "", "", "[ops]"},
		{phones + "defaults: {notify: {channels: [ops]}}\n", "channels: [phone]", "", "[phone]"},
		{"", "", "channels: [desktop]", "[desktop]"},
		{"", "", "", "nil"},
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", fmt.Sprintf(`version: 1
agents: [{name: a, %s}]
jobs: [{name: j, agent: a, playbook: [{call: db_schema}], notify: {%s}}]
%s`, c.agent, c.job, c.more)), nil)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(cfg.Jobs[0].Notify.Channels)
		if cfg.Jobs[0].Notify.Channels == nil {
			got = "nil"
		}
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if _, err := configtest.Load(configtest.Write(t, "rouse.yaml", "version: 1\nagents: [{name: a, channels: [pager]}]\n"), nil); err == nil || !strings.Contains(err.Error(), `agents[0].channels[0]: there is no channel "pager"`) {
		t.Errorf("%v", err)
	}
}
