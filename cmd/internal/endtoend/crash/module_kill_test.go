package crash

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

const moduleKillConfig = `version: 1
home: ./home
skills: {roots: [{path: ./skills}]}
agents: [{name: counter, workdir: ./work}]
jobs:
  - {name: count, agent: counter, skill: counting, input: {to: 60}, bounds: {calls: 1000}}
  - {name: called, agent: counter, playbook: [{call: counting__execute, with: {to: 60}, save: of}, {call: complete, with: {summary: "{{ .of.message }} by a call of the skill that counts each number once"}}], bounds: {calls: 1000}}
`

const moduleKillManifest = `{
  "name": "counting", "description": "Counts.", "version": "1.0.0", "author": "nobody", "schemaVersion": "2.0",
  "capabilities": ["counting"], "requiredBindings": [], "compatibilityRequirements": [],
  "permissions": [{"kind": "storage", "scope": "own", "description": "keeps the count"}],
  "inputSchema": {"type": "object", "properties": {"to": {"type": "number"}}, "required": ["to"]},
  "outputSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
  "supportedPlatforms": [], "bridgeRequirement": "never", "workspaceSupport": "none", "workspaceSchemaVersion": null,
  "longRunningSupport": "none", "userInputSupport": false, "artifactVersioningSupport": false, "executionMode": "declarative",
  "agenticConfig": {"enabled": false, "requiresWorkspace": false, "supportsBackgroundExecution": false, "supportsRoleBasedExecution": false, "maxStepsPerRun": null, "defaultStepBudget": null}
}`

// The module stores each number under a key with the time and a random number. Both must be the
// same in each attempt. Otherwise there would be more keys than numbers.
const moduleKillSource = `export async function execute(args: { to: number }, host: any) {
  for (let i = 0; i < args.to; i++) {
    const n = (await host.storage.get("n")) ?? 0;
    await host.storage.set("n", n + 1);
    await host.storage.set("at " + Date.now() + " " + Math.random(), n + 1);
  }
  const keys = await host.storage.list("at ");
  return { message: (await host.storage.get("n")) + " counted, " + keys.length + " keys" };
}
`

// TestModuleKills kills the daemon at random times while a module counts in its storage, in a job
// and in a call. At the end each number must have been counted once. ROUSE_TEST_KILLS sets the
// number of kills if it is less than 20.
func TestModuleKills(t *testing.T) {
	endtoend.Unraced(t)
	t.Parallel()
	for job, want := range map[string]string{"count": "60 counted, 60 keys", "called": "60 counted, 60 keys by a call of the skill that counts each number once"} {
		t.Run(job, func(t *testing.T) {
			t.Parallel()
			killModule(t, job, want)
		})
	}
}

func killModule(t *testing.T, job, want string) {
	t.Helper()
	kills, err := strconv.Atoi(os.Getenv("ROUSE_TEST_KILLS"))
	if err != nil {
		kills = 2
	}

	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": moduleKillConfig, "skills/counting/manifest.json": moduleKillManifest, "skills/counting/module.ts": moduleKillSource})
	config := filepath.Join(dir, "rouse.yaml")
	p := endtoend.Serve(t, config)
	endtoend.RunJSON(t, nil, "run", job, "--json", "--config", config)

	var r api.RunDetail
	made := func() int {
		endtoend.RunJSON(t, &r, "show", "1", "--json", "--config", config)
		n := 0
		for _, st := range r.StepsDetail {
			n += len(st.Calls)
			for _, c := range st.Calls { // each inner step has one
				n += len(c.StepsDetail)
			}
		}
		return n
	}
	interrupted := 0
	for range min(kills, 20) {
		before := made()
		cmdtest.Until(t, "another call, or the end", func() bool { return made() > before+5 || r.Outcome != "" })
		if r.Outcome != "" {
			break
		}
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // kill at a random time
		p.Kill(t)
		p = endtoend.Serve(t, config)
		interrupted++
	}

	cmdtest.Until(t, "the end of the run", func() bool {
		made()
		if r.Outcome == "interrupted" { // it was cut off four times in a row
			endtoend.RunJSON(t, nil, "retry", "1", "--config", config)
		}
		return r.Outcome == "success" || r.Outcome == "error"
	})
	p.Stop(t)
	endtoend.AuditClean(t, config)

	if string(r.Outcome) != "success" || r.Summary != want {
		t.Errorf("%s: %s %s, want %s", r.Outcome, r.Summary, r.Error, want)
	}
	t.Logf("%d kills, %d attempts", interrupted, r.Attempt)
}
