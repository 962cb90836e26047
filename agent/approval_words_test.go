package agent_test

import (
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/internal/ledger"
)

// TestApprovalTellsWhatIsMixed checks that an approval request names the content that combines the
// three labels, its origins, and the setting that would allow the call. A request to an address
// that the owner wrote needs no approval.
func TestApprovalTellsWhatIsMixed(t *testing.T) {
	t.Parallel()
	calls := func(url string) modeltest.Turn {
		return modeltest.Turn{Calls: []model.Call{fetchCall("1", `{"url":"`+url+`"}`)}}
	}
	read := turn("0", "file_read", `{"path":"own.txt"}`)
	for name, c := range map[string]struct {
		url, prompt, asks string
		private           bool
	}{
		"carries":        {"GRANTED/?q=own", "Look at it.", `private data (file_read "own.txt") and an external effect (this call). To allow it for good, add to the agent clerk: private: {workdir: false}`, true},
		"of the owner":   {"GRANTED/page", "Look at GRANTED/page.", "", true},
		"templated":      {"GRANTED/page", "Look at GRANTED/page{{ .Run }}.", "this call", true},
		"no private":     {"GRANTED/?q=own", "Look at it.", "", false},
		"of another one": {"https://other.example.com/page", "Look at https://other.example.com/page.", "To allow it for good, add to the agent clerk: grants: {network: [{host:", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s := network(t, read, calls(c.url), modeltest.Turn{Text: "Read."})
			a := b.plan.Agents["clerk"]
			if c.private {
				a.PrivateFolders = []string{a.Workdir}
			}
			b.plan.Agents["clerk"] = a
			b.write("work/own.txt", "own")
			b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Where: "rouse.yaml:1", Prompt: strings.ReplaceAll(c.prompt, "GRANTED", s.granted.URL)}
			res := b.ends(b.enqueue(ledger.Request{Job: "j", Agent: "clerk"}))
			if c.asks == "" {
				if res.Wait != nil {
					t.Errorf("it asks: %s", res.Wait.Message)
				}
				return
			}
			if res.Wait == nil || !strings.Contains(res.Wait.Message, c.asks) {
				t.Errorf("it asks %+v, want %q", res.Wait, c.asks)
			}
		})
	}
}
