package crash

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// everySecond returns a configuration with a job that uses its model each second. wall is its time
// limit.
func everySecond(t *testing.T, s *modeltest.Server, wall string) string {
	text := `version: 1
home: ./home
timezone: UTC
models: [{name: m, provider: openai, model: scripted, base_url: "` + s.URL + `/v1", max_output: 100, price: {input: 1, output: 10}}]
agents: [{name: clerk, workdir: ./work, tools: {allow: [todo]}, database: {enabled: false}}]
jobs:
  - {name: report, agent: clerk, prompt: Do it., schedule: "* * * * * *", bounds: {wall: ` + wall + `}, notify: {on: []}}
`
	return filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": text}), "rouse.yaml")
}

func saysAll(t *testing.T, config string, want map[string]string) {
	t.Helper()
	for args, text := range want {
		p := endtoend.Rouse(t, append(strings.Fields(args), "--config", config)...)
		_ = p.Run() // doctor exits 1 if it finds a problem
		if !strings.Contains(p.Out.String(), text) {
			t.Errorf("rouse %s: %q is not in\n%s%s", args, text, p.Out.String(), p.Err.String())
		}
	}
}

// TestQuotaSpentEndToEnd checks a provider with an exhausted quota. Its model is asked once, and
// the scheduled runs wait. status, doctor and why report that, even after the daemon was killed and
// restarted.
func TestQuotaSpentEndToEnd(t *testing.T) {
	t.Parallel()
	for name, spent := range map[string]modeltest.Turn{
		"402": {Status: http.StatusPaymentRequired, Raw: `{"error":{"message":"insufficient credits"}}`},
		"429": {Status: http.StatusTooManyRequests, Raw: `{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); quotaSpent(t, spent) })
	}
}

func quotaSpent(t *testing.T, spent modeltest.Turn) {
	s := modeltest.New(t, spent)
	config := everySecond(t, s, "1s")
	p := endtoend.Serve(t, config)
	var st api.Status
	waiting := func(what string) {
		cmdtest.Until(t, what, func() bool {
			endtoend.RunJSON(t, &st, "status", "--json", "--config", config)
			return len(st.ModelPauses) == 1 && st.Waiting+st.Queued > 0 && st.Running == 0
		})
	}

	waiting("the pause of the model")
	want := map[string]string{
		"status": "▲ the model m is not asked until ", "doctor": "the model m is not asked until ",
		"why report -n 1000": "waits for its model, which was tried 1 time and is asked again ", "runs": "waiting",
	}
	saysAll(t, config, want)
	p.Kill(t)
	p = endtoend.Serve(t, config)
	waiting("the pause of the model after the restart")
	saysAll(t, config, want)
	p.Stop(t)
	if n := len(s.Requests()); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
}

// TestRunTellsThatItsModelIsDown checks that a command that waits for a run reports an unreachable
// model, with its address and a remedy.
func TestRunTellsThatItsModelIsDown(t *testing.T) {
	t.Parallel()
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
models: [{name: m, provider: openai, model: scripted, base_url: "http://` + cmdtest.Nobody + `/v1", api_key: none}]
agents: [{name: clerk, workdir: ./work}]
jobs: [{name: report, agent: clerk, prompt: Do it.}]
`}), "rouse.yaml")
	daemon := endtoend.Serve(t, config)
	waiting := endtoend.Rouse(t, "run", "report", "--wait", "--config", config)
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "the reason", func() bool {
		told := waiting.Err.String()
		return strings.Contains(told, "waits for its model scripted at http://"+cmdtest.Nobody) && strings.Contains(told, "rouse doctor")
	})
	waiting.Kill(t)
	if err := endtoend.Rouse(t, "stop", "1", "--config", config).Run(); err != nil {
		t.Error(err)
	}
	daemon.Stop(t)
}

// TestModelDownEndToEnd checks that a run with an unreachable model waits for it, and that later
// instants do not pile up. The time limit may end between the retries of one request or between
// attempts of the run.
func TestModelDownEndToEnd(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]map[string]string{"one request": nil, "the run": {"Retry-After": "0"}} {
		t.Run(name, func(t *testing.T) { t.Parallel(); modelDown(t, header) })
	}
}

func modelDown(t *testing.T, header map[string]string) {
	s := modeltest.New(t, modeltest.Turn{Status: http.StatusServiceUnavailable, Header: header, Raw: "starting"})
	config := everySecond(t, s, "4s") // enough time to ask the model, even on a busy machine
	p := endtoend.Serve(t, config)
	cmdtest.Until(t, "a run that waits, and an instant that is skipped for it", func() bool {
		var lines []api.Explanation
		endtoend.RunJSON(t, &lines, "why", "report", "--json", "--config", config)
		for _, l := range lines {
			if strings.Contains(l.Reason, "overlap: run 1 waits for its model") {
				return true
			}
		}
		return false
	})
	const failure = "503 Service Unavailable for the model scripted: starting; and the run took longer than its wall time of 4s"
	saysAll(t, config, map[string]string{"show 1": failure})
	saysAll(t, config, map[string]string{"why report -n 1000": failure}) // complete, with an address of any length
	saysAll(t, config, map[string]string{"why report -n 1000": "waits for its model, which was tried 1 time and is asked again "})
	p.Stop(t)
	var runs []api.Run
	endtoend.RunJSON(t, &runs, "runs", "--json", "--config", config)
	// The server may have answered a request that was pending at the time limit, so its tokens are
	// estimated.
	if len(runs) != 1 || runs[0].WaitingFor != "retry" || runs[0].TokensIn != runs[0].EstimatedTokens {
		t.Errorf("%+v", runs)
	}
}

// TestKilledRunIsShownAsCutOff checks that a run of a killed daemon is not shown as running or as
// resuming without help.
func TestKilledRunIsShownAsCutOff(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t, modeltest.Turn{Text: "Well", Hang: true})
	config := everySecond(t, s, "1h")
	p := endtoend.Serve(t, config)
	cmdtest.Until(t, "a run that waits for the answer of its model", func() bool { return len(s.Requests()) == 1 })
	saysAll(t, config, map[string]string{"runs": "◌ running", "show 1": "◌ running"})

	p.Kill(t)
	saysAll(t, config, map[string]string{"runs": "⚡ cut off", "show 1": "⚡ cut off"})
	const goesOn = "so nothing goes on by itself: rouse serve"
	saysAll(t, config, map[string]string{"runs": goesOn, "show 1": goesOn})
}
