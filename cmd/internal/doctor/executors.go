package doctor

import (
	"fmt"
	"path/filepath"
	"strings"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
)

// checkExecutors checks that the programs and logins of executors exist. It does not start the
// programs.
func checkExecutors(s *plan.Setup) (out []api.Check) {
	seen := map[string]bool{}
	add := func(agent string, enabled *bool, e *config.Executor) {
		if e == nil || !config.On(enabled) || seen[agent+" "+e.Argv[0]] {
			return
		}
		seen[agent+" "+e.Argv[0]] = true
		out = append(out, checkExecutor(agent, e))
	}
	for i := range s.Config.Jobs {
		j := &s.Config.Jobs[i]
		add(j.Agent, j.Enabled, s.Config.ExecutorOf(j))
	}
	for _, a := range s.Config.Agents {
		add(string(a.Name), a.Enabled, a.Executor)
	}
	return out
}

func checkExecutor(agent string, e *config.Executor) api.Check {
	name := "executor " + filepath.Base(e.Argv[0])
	located, err := e.Locate()
	if err != nil {
		return Failed(name, fmt.Sprintf("of %s: %v", agent, err), "install the program, or write its path in executor.argv; each run fails until then")
	}
	c := Passed(name, fmt.Sprintf("of %s: %s", agent, located.Path))
	if missing := e.MissingLogins(); len(missing) > 0 {
		c = Failed(name, c.Detail+"; these are not there: "+strings.Join(missing, ", "), "sign in with the program, or take them out of executor.login")
	}
	c.NotTried = "whether it starts and is signed in (a run tells)"
	return c
}
