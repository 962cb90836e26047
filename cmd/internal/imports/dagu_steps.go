package imports

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"rouse/internal/text"
)

// daguStep is a step and the names of the steps it depends on.
type daguStep struct {
	name    string
	node    *node
	depends []string
}

// steps returns the steps, each after the steps it depends on.
func (g *dag) steps() []*daguStep {
	var all []*daguStep
	list := g.root.get("steps", "tasks")
	if list != nil && list.kind == 'm' { // map of names to steps
		for i, name := range list.keys {
			all = append(all, &daguStep{name: name, node: list.items[i]})
		}
	} else {
		for i, n := range list.list() {
			if n.kind == 'l' { // steps that run in parallel
				for k, one := range n.items {
					all = append(all, &daguStep{name: fmt.Sprintf("%d-%d", i+1, k+1), node: one})
				}
				continue
			}
			all = append(all, &daguStep{name: strconv.Itoa(i + 1), node: n})
		}
	}

	for _, s := range all {
		if s.node.kind != 'm' {
			continue
		}
		if name := s.node.get("id").str(); name != "" {
			s.name = name
			s.node.get("name")
		} else if name := s.node.get("name").str(); name != "" {
			s.name = name
		}
		for _, d := range s.node.get("depends", "depends_on").list() {
			if d.str() != "" {
				s.depends = append(s.depends, d.str())
			}
		}
	}
	return g.order(all)
}

// order sorts steps by dependency and otherwise keeps their order.
func (g *dag) order(all []*daguStep) (out []*daguStep) {
	done := map[string]bool{}
	names := map[string]bool{}
	for _, s := range all {
		if names[s.name] {
			g.job.lose("two steps have the name %s", shown(s.name))
		}
		names[s.name] = true
	}

	for len(out) < len(all) {
		ready := slices.IndexFunc(all, func(s *daguStep) bool {
			return !slices.Contains(out, s) && !slices.ContainsFunc(s.depends, func(d string) bool { return names[d] && !done[d] })
		})
		if ready < 0 {
			g.job.lose("its steps depend on each other in a circle")
			for _, s := range all {
				if !slices.Contains(out, s) {
					out = append(out, s)
				}
			}
			break
		}
		out, done[all[ready].name] = append(out, all[ready]), true
	}

	for _, s := range all {
		for _, d := range s.depends {
			if !names[d] {
				g.job.lose("the step %s depends on %s, which there is none of", shown(s.name), shown(d))
			}
		}
	}

	return out
}

func (g *dag) step(s *daguStep) {
	j := g.job
	n := s.node
	lose := func(format string, args ...any) {
		j.lose("step %s: %s", shown(s.name), fmt.Sprintf(format, args...))
	}
	if n.kind != 'm' {
		g.commands(s, n, g.env, "")
		return
	}

	n.get("description")
	what := n.get("command", "run")
	script := n.get("script")
	if e := n.get("executor", "type", "action", "call"); e != nil && e.str() != "shell" && e.str() != "command" && e.str() != "exec" {
		lose("it is no command of a shell, so that it is left out: %s", shown(n.short()))
		return
	}
	env := g.variables(g.env, n.get("env"))
	dir := n.get("workingDir", "dir").str()
	switch {
	case dir == "":
	case path.IsAbs(dir) && (j.dir == "" || j.dir == path.Clean(dir)):
		j.dir = path.Clean(dir)
	default:
		lose("it worked in %s", shown(dir))
	}

	before := len(j.calls)
	switch {
	case script.str() != "" && what.str() != "":
		lose("its script was given to %s, which is not carried over", shown(what.str()))
		g.commands(s, script, env, "")
	case script != nil:
		g.commands(s, script, env, "")
	case what != nil:
		var words []string
		for _, a := range n.get("args").list() {
			words = append(words, a.str())
		}
		g.commands(s, what, env, join(words))
	default:
		lose("it has no command: %s", shown(n.short()))
	}

	g.stepPolicies(s, before, lose)
}

// stepPolicies converts the settings of a step other than its command.
func (g *dag) stepPolicies(s *daguStep, before int, lose func(string, ...any)) {
	n := s.node
	if c := n.get("continueOn"); c != nil {
		goOn := c.get("failure").is() || c.str() == "failed" || c.str() == "failure"
		for i := before; goOn && i < len(g.job.calls); i++ {
			g.job.calls[i].on = "continue"
		}
		if codes := c.get("exitCode").list(); len(codes) > 0 && !goOn {
			exits := []int{0}
			for _, code := range codes {
				if e, err := number(code.str(), 0, 255); err == nil {
					exits = append(exits, e)
				}
			}
			for i := before; i < len(g.job.calls); i++ {
				g.job.calls[i].exits = exits
			}
		}
		if rest := c.rest(); len(rest) > 0 && c.kind == 'm' {
			lose("continueOn is not carried over as a whole: %s", shown(c.short()))
		}
	}

	for _, key := range []string{"preconditions", "precondition", "repeatPolicy", "output", "approval", "container", "parallel", "outputSchema", "shell", "with", "params"} {
		if v := n.get(key); v != nil {
			lose("not carried over: %s: %s", key, shown(v.short()))
		}
	}

	n.get("retryPolicy") // read by retries
	for _, said := range n.rest() {
		key, _, _ := strings.Cut(said, ":")
		g.job.leave(key, harmlessStep, "step %s: not carried over: %s", shown(s.name), shown(said))
	}
}

func (g *dag) commands(s *daguStep, what *node, env environment, rest string) {
	for _, one := range what.list() {
		line := strings.TrimSpace(one.str() + " " + rest)
		if strings.Contains(line, "`") || strings.Contains(line, "${") || strings.Contains(line, "$1") {
			g.job.lose("step %s: what Dagu fills in (${…}, $1, `…`) is left to the shell: %s", shown(s.name), shown(line))
		}
		if line == "" || !g.job.command(line, env) {
			g.job.lose("step %s: it cannot be a command: %s", shown(s.name), shown(what.short()))
		}
	}
}

// retries converts the retry policy of a DAG with a single step. With several steps it cannot: a
// retried job starts again with its first step.
func (g *dag) retries(steps []*daguStep) {
	for _, s := range steps {
		if s.node.kind != 'm' {
			continue
		}
		r := s.node.get("retryPolicy")
		switch {
		case r == nil:
		case len(steps) == 1:
			g.retry(r)
		default:
			g.job.lose("step %s: its retryPolicy is not carried over, since a job that is tried again begins with its first step: %s", shown(s.name), shown(r.short()))
		}
	}
}

// retry converts a retry policy to the job's retry setting.
func (g *dag) retry(r *node) {
	limit, err := strconv.Atoi(r.get("limit").str())
	if err != nil || limit < 1 || limit > 1000 {
		g.job.lose("retryPolicy: %s is not understood", shown(r.short()))
		return
	}
	value := fmt.Sprintf("{attempts: %d", limit+1)
	if d, ok := seconds(r.get("intervalSec")); ok {
		value += ", backoff: " + text.FormatSpan(d)
		if d > 15*time.Minute {
			value += ", max_backoff: " + text.FormatSpan(d)
		}
	}
	g.job.set("retry", raw(value+"}"))
	g.job.leaveRest(r, []string{"backoff", "maxintervalsec"}, "retryPolicy: ")
}
