package check_test

import (
	"fmt"
	"strings"
	"testing"

	"rouse/cmd/internal/config/configtest"
)

// allSaid returns all problems and warnings of a configuration.
func allSaid(t *testing.T, text string) string {
	t.Helper()
	cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "home: ./home\n"+text), nil)
	all := fmt.Sprintln(err)
	for _, w := range cfg.Warnings {
		all += w.String() + "\n"
	}
	return all
}

// Settings of other tools get a hint with equivalent lines, and these lines are valid.
func TestWordsOfOtherTools(t *testing.T) {
	t.Parallel()
	const agent = "agents: [{name: a}]\nnotifications: [{name: ops, kind: desktop}]\n"
	for written, want := range map[string]string{
		"timeout: 10m":                          "bounds: {wall: 10m}",
		"timeoutSeconds: 600":                   "bounds: {wall: 600s}",
		"timeout-minutes: 5":                    "bounds: {wall: 5m}",
		"cron: '0 8 * * *'":                     "schedule: '0 8 * * *'",
		"interval: 15m":                         "every: 15m",
		"retries: 2":                            "retry: {attempts: 3}",
		"tz: Europe/Berlin":                     "timezone: Europe/Berlin",
		"suspend: true":                         "enabled: false",
		"wall: 5m":                              "bounds: {wall: 5m}",
		"steps: 7":                              "bounds: {steps: 7}",
		"channels: ops":                         "notify: {channels: [ops]}",
		"runOnStart: true":                      "run_on_start: true",
		"concurrencyPolicy: Forbid":             "overlap: skip",
		"keep_days: 30":                         "keep: 30d",
		"RandomizedDelaySec: 90":                "jitter: 90s",
		"max_turns: 12":                         "bounds: {steps: 12}",
		"onFailure: mail":                       "notify: {on: [failure], channels: [CHANNEL]}",
		"command: ./backup.sh --all":            "playbook: [{call: shell_run, with: {command: ./backup.sh --all}}], and under its agent grants: {commands: [{argv: [./backup.sh]}]}",
		"run: [rsync, -a, x]":                   "playbook: [{call: shell_run, with: {command: rsync -a x}}], and under its agent grants: {commands: [{argv: [rsync]}]}",
		"path: ./in":                            "watch: {path: ./in}",
		"on: {push: {}}":                        "schedule: daily at 08:00",
		"retry: 3":                              "retry: {attempts: 3}",
		"bounds: 10m":                           "bounds: {wall: 10m}",
		"notify: [failure]":                     "notify: {on: [failure]}",
		"watch: ./in":                           "watch: {path: ./in}",
		"webhook: /hooks/x":                     "webhook: {path: /hooks/x, secret: secret:bank}",
		"schedule: every weekday at 8am":        "schedule: weekly on mon-fri at 08:00",
		"every: 5 minutes":                      "every: 5m",
		"at: '8:30 pm'":                         "schedule: daily at 20:30",
		"watch: {dir: ./in}":                    "path: ./in",
		"watch: {path: ./in, pattern: '*.pdf'}": "include: ['*.pdf']",
		"overlap: Forbid":                       "overlap: skip",
	} {
		got := allSaid(t, agent+"jobs: [{name: j, agent: a, prompt: x, "+written+"}]\n")
		if !strings.Contains(got, "; write "+want+"\n") {
			t.Errorf("%s: %swant %s", written, got, want)
			continue
		}

		// A line for the same place can replace the written one.
		if strings.Contains(want, "playbook") || strings.Contains(want, "CHANNEL") || strings.HasPrefix(written, "watch: {") || strings.Contains(want, "secret:") {
			continue
		}
		if got := allSaid(t, agent+"jobs: [{name: j, agent: a, prompt: x, "+want+"}]\n"); !strings.HasPrefix(got, "<nil>") {
			t.Errorf("%s: %s is refused: %s", written, want, got)
		}
	}

	for text, want := range map[string]string{
		"agents: [{name: a, system_prompt: You are kind}]":                                            "write instructions: You are kind",
		"agents: [{name: a, timeout: 5m}]":                                                            "write bounds: {wall: 5m}",
		"agents: [{name: a, commands: [git *, ls]}]":                                                  "commands: [{argv: [git, '*']}]",
		"agents: [{name: a, grants: {commands: [{argv: sleep 2}]}}]":                                  "write the program and each argument by itself: [sleep, 2]",
		"agents: [{name: a, grants: {read: [$DATA/x]}}]":                                              "write ${DATA}, as in ${DATA}/x",
		"agents: [{name: a, workdir: $HOME/books}]":                                                   "write ~ or ${HOME}, as in ~/books",
		"models: [{name: m, provider: openai, model: x, api_key: $OPENAI_API_KEY}]":                   "write api_key: ${OPENAI_API_KEY}, or",
		"models: [{name: m, provider: openai, model: x, apiKey: abc}]":                                "write api_key: secret:NAME",
		"models: [{name: m, provider: openai, model: x, api_key: sk-canary-abcdefghijklmnop}]":        "rouse secrets set openai, and write api_key: secret:openai",
		"models: [{name: m, provider: openai, model: x, headers: {Authorization: Bearer $KEY}}]":      "Bearer ${KEY}",
		"notifications: [{name: n, kind: ntfy}]":                                                      "write kind: url, url: ntfy://ntfy.sh/TOPIC",
		"notifications: [{name: n, kind: telegram}]":                                                  "telegram://TOKEN@telegram?chats=CHAT",
		"notifications: [{name: n, kind: slack}]":                                                     "slack://hook:T…-B…-X…@webhook",
		"notifications: [{name: n, kind: url, url: 'https://hooks.slack.com/services/T0/B0/canary'}]": "slack://hook:T…-B…-X…@webhook",
		"notifications: [{name: n, kind: url, url: 'https://ntfy.sh/canary'}]":                        "ntfy://ntfy.sh/TOPIC",
		"agents: {clerk: {workdir: ./x}}":                                                             "write agents: [{name: clerk, workdir: ./x}], each with its name",
		"agents: [{name: a}]\njobs: [{name: j, agent: a, prompt: x, watch: {path: ./in/*.pdf}}]":      "write path: ./in, include: ['*.pdf']",
		"agents: [{name: a}]\njobs: [{name: j, agent: a, prompt: x, watch: {path: ./in/**/*.pdf}}]":   "write path: ./in, include: ['*.pdf'], recursive: true",
		"agents: [{name: a}]\njobs:\n  - {name: j, agent: a, wall: 3m, prompt: x}":                    "rouse.yaml:4:",
	} {
		if got := allSaid(t, text+"\n"); !strings.Contains(got, want) || strings.Contains(got, "canary") {
			t.Errorf("%s: %swant %s", text, got, want)
		}
	}
}

// A text that YAML cuts at a # causes a warning, a comment does not.
func TestCutTexts(t *testing.T) {
	t.Parallel()
	for prompt, want := range map[string]string{
		"Fix issue #12":                   "if it is part of the text, write prompt: 'Fix issue #12'",
		"Post it's summary to #general":   "write prompt: 'Post it''s summary to #general'",
		"#general":                        "must be a text, not nothing; if it is part of the text, write prompt: '#general'",
		"Fix all issues # each morning":   "",
		"'Fix issue' #12":                 "",
		"Fix issue#12":                    "",
		"|\n      Fix issue #12 and more": "",
	} {
		got := allSaid(t, "agents: [{name: a}]\njobs:\n  - name: j\n    agent: a\n    every: 1h #hourly\n    prompt: "+prompt+"\n")
		if want != "" && !strings.Contains(got, want) || strings.Contains(got, "hourly") || want == "" && strings.Contains(got, "part of the text") {
			t.Errorf("%s: %swant %s", prompt, got, want)
		}
	}
	if got := allSaid(t, "agents: [{name: a}]\njobs: [{name: j, agent: a, playbook: [{call: notify, with: {\n  title: Issue #12\n}}]}]\n"); !strings.Contains(got, "write title: 'Issue #12'") {
		t.Error(got)
	}
}
