package config_test

import (
	"fmt"
	"strings"
	"testing"
)

// What a webhook lacks, and what is wrong with it, is said at its place; its runs can name what it brings, and no others can.
func TestWebhooks(t *testing.T) {
	for job, say := range map[string]string{
		`webhook: {path: /hooks/a, secret: s}, prompt: "{{ .Body }} {{ .Payload.x.y }} {{ .Delivery.Event }}"`:         "",
		`webhook: {path: /hooks/a/b-c.d, secret: s, scheme: github, max_body: 3MiB}, prompt: x`:                        "",
		`webhook: {path: /hooks/a, secret: s}, when: [{that: 'Payload.action == "opened" and Body != ""'}], prompt: x`: "",
		`schedule: "@daily", when: [{that: "LastSuccess.Year() < 2000"}], prompt: x`:                                   "",
		`webhook: {path: /hooks/a}, prompt: x`:                                                                         `jobs[0].webhook: the key "secret" is missing`,
		`webhook: {path: /v1/a, secret: s}, prompt: x`:                                                                 `must be like /hooks/NAME`,
		`webhook: {path: /hooks/../v1, secret: s}, prompt: x`:                                                          `must be like /hooks/NAME`,
		`webhook: {path: /hooks/, secret: s}, prompt: x`:                                                               `must be like /hooks/NAME`,
		`webhook: {path: "/hooks/a?b", secret: s}, prompt: x`:                                                          `must be like /hooks/NAME`,
		`webhook: {path: /hooks/a, secret: s, scheme: gitub}, prompt: x`:                                               `did you mean "github"?`,
		`webhook: {path: /hooks/a, secret: s, max_body: 0}, prompt: x`:                                                 `jobs[0].webhook.max_body`,
		`webhook: {path: /hooks/a, secret: s}, prompt: "{{ .Delivery.Evnt }}"`:                                         `did you mean`,
		`webhook: {path: /hooks/a, secret: s}, when: [{that: "Paylod.x"}], prompt: x`:                                  `did you mean "Payload"?`,
		`webhook: {path: /hooks/a, secret: s}, when: [{that: "Payload ="}], prompt: x`:                                 `jobs[0].when[0].that`,
		`webhook: {path: /hooks/a, secret: s}, when: [{that: " "}], prompt: x`:                                         `jobs[0].when[0].that: is empty`,
		`schedule: "@daily", when: [{that: "Payload.x"}], prompt: x`:                                                   `only a run that a webhook started has Payload`,
	} {
		_, err := load(write(t, "rouse.yaml", fmt.Sprintf("agents: [{name: a}]\njobs: [{name: j, agent: a, %s}]\n", job)), nil)
		switch {
		case say == "" && err != nil:
			t.Errorf("%s: %v", job, err)
		case say != "" && (err == nil || !strings.Contains(err.Error(), say)):
			t.Errorf("%s: %v, want %s", job, err, say)
		}
	}

	two := "jobs:\n  - {name: j, agent: a, webhook: {path: /hooks/a, secret: s}, prompt: x}\n  - {name: k, agent: a, webhook: {path: /hooks/a, secret: t}, prompt: x}\n"
	if _, err := load(write(t, "rouse.yaml", "agents: [{name: a}]\n"+two), nil); err == nil || !strings.Contains(err.Error(), `the job "j" has the webhook /hooks/a already`) {
		t.Errorf("two at one path: %v", err)
	}
	off := "dashboard: {listen: off}\nagents: [{name: a}]\njobs: [{name: j, agent: a, webhook: {path: /hooks/a, secret: s}, prompt: x}]\n"
	if _, err := load(write(t, "rouse.yaml", off), nil); err == nil || !strings.Contains(err.Error(), "nobody listens for it") {
		t.Errorf("nobody listens: %v", err)
	}
}
