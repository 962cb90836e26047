package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/model/modeltest"
	"rouse/internal/ledger"
)

// TestToolsKeptForTheNextRun checks that tools are cached for an hour if the job's last run ended
// so long ago that a shorter cache has expired.
func TestToolsKeptForTheNextRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looker(t, "anthropic", modeltest.Turn{Text: "It is quiet."}, modeltest.Turn{Text: "It is quiet."}, modeltest.Turn{Text: "It is quiet."}, modeltest.Turn{Text: "It is quiet."})
		for i, c := range []struct {
			after time.Duration
			kept  bool
		}{{0, false}, {2 * time.Minute, false}, {20 * time.Minute, true}, {2 * time.Hour, false}} {
			time.Sleep(c.after)
			b.ends(b.enqueue(ledger.Request{Job: "look", Agent: "clerk"}))
			if kept := strings.Contains(string(b.server.Requests()[i]), `"ttl":"1h"`); kept != c.kept {
				t.Errorf("%s after the last run: kept for an hour is %t", c.after, kept)
			}
		}
	})
}
