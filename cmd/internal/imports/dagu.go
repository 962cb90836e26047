package imports

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"rouse/agent/tool/shell"
	"rouse/internal/text"
)

// dag is a DAG of a Dagu file.
type dag struct {
	*Document
	file File
	root *node
	env  environment
	job  *Job
}

// Keys of a DAG and of a step that neither restrict it nor change its behavior.
var (
	harmlessDAG  = []string{"maxactivesteps", "maxoutputsize", "maxcleanuptimesec", "histretentionruns", "otel", "runconfig"}
	harmlessStep = []string{"stdout", "stderr", "signalonstop", "mailonerror", "logoutput"}
)

// Dagu reads Dagu files. Each file contains one or more DAGs, separated by "---".
func Dagu(files []File) (*Document, error) {
	d := NewDocument("dagu", "Steps run one after the other, in an order in which each comes behind those that it depends on.")
	d.Notes = append(d.Notes, confined...)
	d.Defaults = programDefaults(setting{"on_miss", "skip", "without catchupWindow Dagu does not run what it missed"})

	for _, f := range files {
		docs, err := parseYAML(f.Text)
		if err != nil {
			return nil, fmt.Errorf("%s is not YAML: %w", f.Name, err)
		}
		for i, root := range docs {
			source := where(f.Name, root.line, "a DAG")
			if root.kind != 'm' || len(d.items) >= MaxJobs {
				d.refuse("it is no DAG, or there are too many", source, shown(root.short()))
				continue
			}
			name := strings.TrimSuffix(path.Base(f.Name), path.Ext(f.Name))
			if i > 0 {
				name += "-" + strconv.Itoa(i+1)
			}
			g := &dag{Document: d, file: f, root: root}
			g.job = &Job{Name: nameOf(root.get("name").str(), nameOf(name, "dag")), Source: []string{source}, whole: shown(root.short())}
			g.read()
		}
	}
	return d, nil
}

// read adds one job for each schedule of the DAG.
func (g *dag) read() {
	j := g.job
	for _, key := range []string{"description", "group"} {
		if text := g.root.get(key).str(); text != "" {
			j.Kept = append(j.Kept, strings.TrimSpace(text))
		}
	}
	g.env = g.variables(nil, g.root.get("env")) // variables of all steps
	g.conditions()
	g.policies()
	schedules := g.schedules()

	steps := g.steps()
	j.worksIn("it worked in ", g.root.get("workingDir", "dir").str())
	for _, s := range steps {
		g.step(s)
	}
	j.startedIn("the folder of its DAG")
	g.retries(steps)
	g.handlers()
	j.leaveRest(g.root, harmlessDAG, "")

	if len(j.calls) == 0 {
		g.refuse("it has no step that is a command", append(append(j.Source, j.whole), j.Remarks...)...)
		return
	}
	for i, s := range schedules {
		one := *j
		one.Remarks = append([]string(nil), j.Remarks...)
		one.settings = append(s, j.settings...)
		if i > 0 {
			one.Source, one.Kept = []string{fmt.Sprintf("the DAG %s has %d schedules, each a job of its own", shown(j.Name), len(schedules))}, nil
		}
		g.add(&one)
	}
}

// schedules returns the schedule settings of each job. A DAG without a schedule gets one job that
// is started manually.
func (g *dag) schedules() (out [][]setting) {
	add := func(expression string) {
		one := &Job{}
		if zone, rest, found := strings.Cut(expression, " "); found && (strings.HasPrefix(zone, "CRON_TZ=") || strings.HasPrefix(zone, "TZ=")) {
			_, name, _ := strings.Cut(zone, "=")
			one.set("schedule", strings.TrimSpace(rest))
			one.set("timezone", name)
		} else {
			one.set("schedule", expression)
		}
		out = append(out, one.settings)
	}

	s := g.root.get("schedule")
	starts := s
	if s != nil && s.kind == 'm' {
		starts = s.get("start")
	}
	for _, item := range starts.list() {
		add(g.scheduleText(item))
	}
	g.job.leaveRest(s, nil, "schedule: ")
	if len(out) == 0 {
		if s == nil {
			g.job.remark("it has no schedule: rouse run %s starts it", g.job.Name)
		} else {
			g.job.lose("it has no schedule that starts it")
		}
		out = [][]setting{nil}
	}
	return out
}

// scheduleText returns the cron expression of a schedule, which is a string or a map.
func (g *dag) scheduleText(n *node) string {
	if n.kind != 'm' {
		return n.str()
	}
	text := n.get("cron", "expression", "schedule").str()
	g.job.leaveRest(n, nil, "schedule: ")
	return text
}

// variables adds the variables of env, which is a map or a list of maps and NAME=value strings.
func (g *dag) variables(env environment, n *node) environment {
	set := func(name, value string) {
		if strings.ContainsAny(value, "$`") {
			g.job.lose("the value of %s is computed (%s) there, and taken as it is here", shown(name), shown(value))
		}
		env = g.job.variable(env, name, value)
	}
	for _, item := range n.list() {
		if item.kind == 'm' {
			for i, name := range item.keys {
				set(name, item.items[i].short())
			}
			continue
		}
		name, value, _ := strings.Cut(item.str(), "=")
		set(name, value)
	}
	return env
}

func (g *dag) conditions() {
	for _, c := range g.root.get("preconditions", "precondition").list() {
		text := c.str()
		if c.kind == 'm' {
			text = c.get("condition", "command").str()
			if c.get("expected") != nil || len(c.rest()) > 0 {
				g.job.lose("whether it runs is not asked: %s", shown(c.short()))
				continue
			}
		}
		argv, _, err := shell.Plain(text)
		if err != nil || argv == nil || strings.Contains(text, "`") {
			g.job.lose("whether it runs is not asked: %s", shown(text))
			continue
		}
		g.job.when = append(g.job.when, "{command: "+quoteList(argv)+"}")
		g.job.remark("its condition runs confined, and reads the folders of its agent alone: %s", shown(text))
	}
}

func (g *dag) policies() {
	j := g.job
	if window := g.root.get("catchupWindow").str(); window != "" {
		if d, err := parseSpan(window); err == nil && d > 0 {
			j.set("on_miss", "run_catchup")
			j.set("catchup_window", text.FormatSpan(d))
		} else {
			j.lose("catchupWindow: %s is not understood", shown(window))
		}
	}

	switch policy := g.root.get("overlapPolicy").str(); policy {
	case "", "skip":
	case "all":
		j.set("overlap", "queue_all")
	case "latest":
		j.set("overlap", "queue_one")
	default:
		j.lose("overlapPolicy: %s is not known", shown(policy))
	}

	if d, ok := seconds(g.root.get("timeoutSec")); ok {
		j.set("bounds", wall(d))
	}

	if n, err := strconv.Atoi(g.root.get("histRetentionDays").str()); err == nil && n > 0 && n < 100_000 {
		j.set("keep", fmt.Sprintf("%dd", n))
	}

	if p := g.root.get("params"); p != nil {
		j.lose("its parameters are not carried over: %s; rouse run JOB --input NAME=VALUE gives some, as {{ .Input.NAME }}", shown(p.short()))
	}

	if m := g.root.get("mailOn"); m != nil {
		j.remark("mailOn %s: a channel {name: mail, kind: url, url: secret:mail} (smtp://…) and notify: {channels: [mail]} do", shown(m.short()))
	}

	for _, key := range []string{"smtp", "errorMail", "infoMail", "waitMail", "logDir", "tags", "labels", "type"} {
		if n := g.root.get(key); n != nil && (key != "type" || n.str() != "graph" && n.str() != "chain") {
			j.remark("not carried over: %s: %s", key, shown(n.short()))
		}
	}

	if g.root.get("type").str() == "agent" {
		j.lose("it is one whose model chooses its steps")
	}

	if n := g.root.get("maxActiveRuns"); n != nil && n.str() != "1" {
		j.remark("maxActiveRuns: %s: overlap: allow lets runs overlap", shown(n.str()))
	}

	if n := g.root.get("dotenv", "shell", "container", "workerSelector", "queue"); n != nil {
		j.lose("it ran in surroundings of its own (dotenv, shell, container, queue or worker): %s", shown(n.short()))
	}
}

func seconds(n *node) (time.Duration, bool) {
	s, err := strconv.ParseFloat(n.str(), 64)
	if err != nil || s < 1 || s > 1e8 {
		return 0, false
	}
	return time.Duration(s) * time.Second, true
}

func (g *dag) handlers() {
	if h := g.root.get("handlerOn", "handlers"); h != nil {
		g.job.lose("what it did at its end is not carried over: %s; notify tells of the outcome", shown(h.short()))
	}
	if r := g.root.get("retryPolicy"); r != nil {
		g.retry(r)
	}
}
