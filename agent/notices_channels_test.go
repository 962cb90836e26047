package agent_test

import (
	"testing"

	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/internal/ledger"
)

// TestChannelsOfAgentsNotices checks the order of channels for the tool notify: those of the call,
// the job, the agent, the default, and the desktop if there is a session and no channel is
// configured.
func TestChannelsOfAgentsNotices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call, job, agent, usual []string
		session                 bool
		want                    string
	}{
		"the call's":           {call: []string{"mail"}, job: []string{"ntfy"}, agent: []string{"ops"}, usual: []string{"phone"}, session: true, want: "mail"},
		"the job's":            {job: []string{"ntfy"}, agent: []string{"ops"}, usual: []string{"phone"}, session: true, want: "ntfy"},
		"the agent's":          {agent: []string{"ops"}, usual: []string{"phone"}, session: true, want: "ops"},
		"the default":          {usual: []string{"phone"}, session: true, want: "phone"},
		"a desktop session":    {session: true, want: "desktop"},
		"none":                 {want: ""},
		"the job wants none":   {job: []string{}, usual: []string{"phone"}, want: ""},
		"two of the job":       {job: []string{"ntfy", "mail"}, want: "ntfy,mail"},
		"the job, no session":  {job: []string{"ntfy"}, want: "ntfy"},
		"call, nothing beside": {call: []string{"ops"}, want: "ops"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.desktop = func() bool { return c.session }
			b.plan.Channels, b.plan.DefaultChannels = []string{"desktop", "phone", "ntfy", "ops", "mail"}, c.usual
			a := b.plan.Agents["clerk"]
			a.Channels = c.agent
			b.plan.Agents["clerk"] = a
			with := map[string]any{"title": "look"}
			if len(c.call) > 0 {
				with["channel"] = c.call[0]
			}
			b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Notify: plan.Notify{Channels: c.job}, Playbook: []playbook.Call{{Name: "notify", With: with}}}
			b.newPool()
			b.run(b.enqueue(ledger.Request{Job: "j", Agent: "clerk"}))
			got := ""
			for i, n := range b.notices() {
				if i > 0 {
					got += ","
				}
				got += n.Channel
			}
			if got != c.want {
				t.Errorf("told on %q, want %q", got, c.want)
			}
		})
	}
}
