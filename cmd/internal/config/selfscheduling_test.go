package config_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/config"
	"rouse/scheduler/schedule"
)

const oneModel = "timezone: Europe/Berlin\nmodels: [{name: m, provider: openai, model: x, base_url: 'http://localhost'}]\n"

// TestSelfScheduling: OSA-70 and OSA-72, without the block an agent plans nothing, with it
// what the mode allows, and each field can be another.
func TestSelfScheduling(t *testing.T) {
	preset := func(mode schedule.Mode, change func(*schedule.Limits)) schedule.Limits {
		l, _ := schedule.Preset(mode)
		if l.Zone = nil; change != nil {
			change(&l)
		}
		return l
	}
	for text, want := range map[string]schedule.Limits{
		"":                                  {},
		"self_scheduling: {enabled: false}": {},
		"self_scheduling: {enabled: false, mode: project}": {},
		"self_scheduling: {enabled: true}":                 preset(schedule.ModeAmbient, nil),
		"self_scheduling: {}":                              preset(schedule.ModeAmbient, nil),
		"self_scheduling: {mode: reactive}":                preset(schedule.ModeReactive, nil),
		"self_scheduling: {mode: manual}":                  preset(schedule.ModeManual, nil),
		"self_scheduling: {daily_cap: 0}":                  preset(schedule.ModeAmbient, func(l *schedule.Limits) { l.DailyCap = 0 }),
		"self_scheduling: {enabled: true, mode: project, horizon: 2d, min_interval: 0s, daily_cap: 9, quiet_hours: 23:30-6:00, days: [mon-fri, Sunday], max_chain: 4}": {
			Mode: schedule.ModeProject, Horizon: 48 * time.Hour, DailyCap: 9, Quiet: schedule.Quiet{From: 23*60 + 30, To: 6 * 60}, Days: 0b0111111, MaxChain: 4},
		"self_scheduling: {quiet_hours: none, days: mon}": preset(schedule.ModeAmbient, func(l *schedule.Limits) { l.Quiet, l.Days = schedule.Quiet{}, 2 }),
	} {
		path := write(t, "rouse.yaml", oneModel+"agents: [{name: a, "+text+"}]\n")
		for range 2 { // as written, and as shown
			cfg, err := load(path, nil)
			if err != nil || len(cfg.Warnings) > 0 {
				t.Fatalf("%s: %v %v", text, err, cfg.Warnings)
			}

			got, ok := cfg.SelfScheduling(&cfg.Agents[0])
			if ok && got.Zone.String() != "Europe/Berlin" {
				t.Errorf("%s: zone %s", text, got.Zone)
			}
			if got.Zone = nil; got != want || ok != (want.Mode != "") {
				t.Errorf("%s: %+v %t, want %+v", text, got, ok, want)
			}

			shown, err := cfg.Show()
			if err != nil {
				t.Fatal(err)
			}

			path = write(t, "rouse.yaml", string(shown))
		}
	}
}

// What cannot be meant is refused at its place, with what can be.
func TestSelfSchedulingMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"true":                      `self_scheduling: must be a mapping of keys, not "true"; write self_scheduling: {enabled: true}`,
		"{enabled: yes please}":     `self_scheduling.enabled: must be true or false, not "yes please"`,
		"{mode: ambiant}":           `self_scheduling.mode: "ambiant" is none of ambient, reactive, project, manual; did you mean "ambient"?`,
		"{horizon: 0s}":             `self_scheduling.horizon: must be more than 0; leave it out for its default`,
		"{horizon: soon}":           `self_scheduling.horizon: "soon" is not a length of time like 30s, 15m, 6h or 7d`,
		"{min_interval: -1m}":       `self_scheduling.min_interval: "-1m" is not a length of time like 30s, 15m, 6h or 7d`,
		"{min_interval: 8d}":        `self_scheduling: min_interval 8d is longer than horizon 7d`,
		"{daily_cap: few}":          `self_scheduling.daily_cap: must be a whole number from 0 on, not "few"`,
		"{quiet_hours: night}":      `self_scheduling.quiet_hours: "night" is neither none nor hours like 22:00-07:00`,
		"{quiet_hours: ''}":         `self_scheduling.quiet_hours: "" is neither none nor hours like 22:00-07:00`,
		"{quiet_hours: 0:00-24:00}": `self_scheduling.quiet_hours: "0:00-24:00" is the whole day; use mode: manual to have no wakes`,
		"{days: [mon, someday]}":    `self_scheduling.days[1]: "someday" is neither a day like mon or Monday nor a range like mon-fri`,
		"{days: []}":                `self_scheduling.days: is empty, which allows no day; leave it out for all days; to let only the owner plan, write mode: manual`,
		"{max_chain: 0}":            `self_scheduling.max_chain: must be more than 0; leave it out for its default`,
		"{quiet_hour: none}":        `self_scheduling: unknown key "quiet_hour"; did you mean "quiet_hours"?`,
	} {
		_, err := load(write(t, "rouse.yaml", oneModel+"agents:\n- name: a\n  self_scheduling: "+text+"\n"), nil)
		var all *config.Errors
		if !errors.As(err, &all) || len(all.Problems) != 1 || !strings.Contains(all.Problems[0].String(), ":5:") || !strings.HasSuffix(all.Problems[0].String(), "agents[0]."+want) {
			t.Errorf("%s:\n%v\nwant %s", text, err, want)
		}
	}
}

// TestSelfSchedulingWarnings: what keeps an agent from what it was allowed is a warning.
func TestSelfSchedulingWarnings(t *testing.T) {
	for text, want := range map[string][]string{
		"agents: [{name: a, self_scheduling: {}}]": {`agents[0].self_scheduling: warning: a wake needs a model, and the agent "a" has none`},
		oneModel + "agents: [{name: a, self_scheduling: {mode: manual, min_interval: 1h, horizon: 1d, max_chain: 2}}]": {
			"agents[0].self_scheduling.min_interval: warning: has no effect with mode: manual", "agents[0].self_scheduling.max_chain: warning: has no effect"},
		oneModel + "agents: [{name: a, self_scheduling: {}, tools: {allow: [db_*, notify]}}]":                     {"may not use schedule_next_run"},
		oneModel + "agents: [{name: a, self_scheduling: {}, tools: {deny: ['*_next_run']}}]":                      {"may not use schedule_next_run"},
		oneModel + "agents: [{name: a, self_scheduling: {mode: manual}, tools: {deny: ['*_next_run']}}]":          nil,
		"agents: [{name: a, self_scheduling: {enabled: false, min_interval: 1h}, tools: {deny: ['*_next_run']}}]": nil,
	} {
		cfg, err := load(write(t, "rouse.yaml", text), nil)
		if err != nil || len(cfg.Warnings) != len(want) {
			t.Errorf("%s: %v %v", text, err, cfg.Warnings)
			continue
		}

		for i, w := range want {
			if !strings.Contains(cfg.Warnings[i].String(), w) {
				t.Errorf("%s: %s, want %s", text, cfg.Warnings[i], w)
			}
		}
	}
}

// TestPlaybooksThatPlan: C-1, only an agent that plans its own runs has the tools for it.
func TestPlaybooksThatPlan(t *testing.T) {
	with := map[string]string{"schedule_next_run": ", with: {in_seconds: 60, instructions: look}"}
	for _, name := range []string{"schedule_next_run", "cancel_next_run"} {
		for block, refused := range map[string]bool{"": true, ", self_scheduling: {enabled: false}": true, ", self_scheduling: {}": false} {
			text := fmt.Sprintf("%sagents: [{name: a%s}]\njobs: [{name: j, agent: a, playbook: [{call: %s%s}]}]\n", oneModel, block, name, with[name])
			_, err := load(write(t, "rouse.yaml", text), nil)
			want := fmt.Sprintf(`jobs[0].playbook[0].call: the agent "a" does not plan its own runs, so it has no %s; give it self_scheduling: {mode: ambient}`, name)
			if (err != nil) != refused || (refused && !strings.Contains(err.Error(), want)) {
				t.Errorf("%q %s: %v", block, name, err)
			}
		}
	}
}

// The limits are shown as they take effect, whoever set them.
func TestSelfSchedulingIsShown(t *testing.T) {
	cfg, err := load(write(t, "rouse.yaml", oneModel+"agents: [{name: a, self_scheduling: {daily_cap: 0}}]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}

	shown, err := cfg.Show()
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	_, block, _ := strings.Cut(string(shown), "self_scheduling:\n")
	for line := range strings.Lines(block) {
		if got = append(got, strings.TrimSpace(line)); len(got) == 7 {
			break
		}
	}

	want := []string{"enabled: true # default", "mode: ambient # default", "horizon: 7d", "min_interval: 1h", "daily_cap: 0", "quiet_hours: 22:00-07:00", "days:"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q in\n%s", got, want, shown)
	}
}
