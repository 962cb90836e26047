package daemon

import (
	"fmt"
	"path/filepath"
	"strings"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
)

// checkExecutors looks for the agent programs that do runs, and for what they are signed in by. None is started: which version it is
// and whether its login still holds only a run tells.
func (s *Setup) checkExecutors() (out []api.Check) {
	seen := map[string]bool{}
	for i := range s.Config.Jobs {
		j := &s.Config.Jobs[i]
		if e := s.Config.ExecutorOf(j); e != nil && config.On(j.Enabled) {
			out = addExecutor(out, seen, j.Agent, e)
		}
	}
	for i := range s.Config.Agents {
		if a := &s.Config.Agents[i]; a.Executor != nil && config.On(a.Enabled) {
			out = addExecutor(out, seen, string(a.Name), a.Executor)
		}
	}
	return out
}

// addExecutor checks a program, once for each agent.
func addExecutor(out []api.Check, seen map[string]bool, agent string, e *config.Executor) []api.Check {
	name := e.Argv[0]
	if seen[agent+" "+name] {
		return out
	}
	seen[agent+" "+name] = true

	c := api.Check{Name: "executor " + filepath.Base(name), OK: true}
	located, err := e.Locate()
	if err != nil {
		c.OK, c.Detail, c.Remedy = false, fmt.Sprintf("of %s: %v", agent, err), "install the program, or write its path in executor.argv; each run fails until then"
		return append(out, c)
	}

	c.Detail = fmt.Sprintf("of %s: %s", agent, located.Path)
	c.NotTried = "whether it starts and is signed in (a run tells)"
	if missing := e.MissingLogins(); len(missing) > 0 {
		c.OK, c.Detail, c.Remedy = false, c.Detail+"; these are not there: "+strings.Join(missing, ", "), "sign in with the program, or take them out of executor.login"
	}
	return append(out, c)
}
