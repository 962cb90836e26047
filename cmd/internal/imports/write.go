package imports

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"rouse/agent/tool/shell"
)

// sharedAgent is the name of the agent used by jobs without an agent of their own.
const sharedAgent = "imported"

// Write returns the configuration as YAML.
func (d *Document) Write() []byte {
	text, _ := d.write()
	return text
}

// write returns the configuration, and the jobs of each agent in the order of the file.
func (d *Document) write() ([]byte, [][]*Job) {
	var b strings.Builder
	comment(&b, "", d.Notes...)
	b.WriteString("version: 1\n")

	if len(d.Defaults) > 0 {
		b.WriteString("\ndefaults:\n")
		for _, s := range d.Defaults {
			line := "  " + s.key + ": " + value(s.value)
			if s.remark != "" {
				line = fmt.Sprintf("%-40s # %s", line, s.remark)
			}
			b.WriteString(line + "\n")
		}
	}

	agents := d.agents()
	users := make([][]*Job, len(agents))
	if len(agents) > 0 {
		b.WriteString("\nagents:\n")
	}
	for i, a := range agents {
		a.write(&b)
		users[i] = a.jobs
	}

	b.WriteString("\njobs:")
	if len(d.Jobs()) == 0 {
		b.WriteString(" []")
	}
	b.WriteByte('\n')
	for i, it := range d.items {
		// Consecutive comments are not separated.
		if i > 0 && (it.job != nil || d.items[i-1].job != nil) {
			b.WriteByte('\n')
		}
		if it.job == nil {
			comment(&b, "  ", it.comment...)
			continue
		}
		it.job.write(&b)
	}

	return []byte(b.String()), users
}

// agent is an agent shared by jobs with the same workdir, name and instructions.
type agent struct {
	name, dir, instructions string
	jobs                    []*Job
}

// agents groups the jobs by agent. Jobs share an agent if its name, workdir and instructions are
// equal.
func (d *Document) agents() (out []*agent) {
	names := map[string]bool{}
	for _, j := range d.Jobs() {
		i := slices.IndexFunc(out, func(a *agent) bool {
			return a.jobs[0].agent == j.agent && a.dir == j.dir && a.instructions == j.instructions
		})
		if i < 0 {
			name := nameOf(j.agent, sharedAgent)
			for n := 2; names[strings.ToLower(name)]; n++ {
				name = fmt.Sprintf("%s-%d", nameOf(j.agent, sharedAgent), n)
			}
			names[strings.ToLower(name)] = true
			i, out = len(out), append(out, &agent{name: name, dir: j.dir, instructions: j.instructions})
		}
		out[i].jobs = append(out[i].jobs, j)
	}
	for _, a := range out {
		for _, j := range a.jobs {
			j.uses = a.name
		}
	}
	return out
}

func (a *agent) write(b *strings.Builder) {
	fmt.Fprintf(b, "  - name: %s\n", quote(a.name))
	if a.dir != "" {
		fmt.Fprintf(b, "    workdir: %s\n", quote(a.dir))
	}
	if a.instructions != "" {
		fmt.Fprintf(b, "    instructions: %s\n", block(a.instructions, "      "))
	}

	tools, grants := []string{}, []string{}
	for _, j := range a.jobs {
		for _, c := range j.calls {
			if !slices.Contains(tools, c.tool()) {
				tools = append(tools, c.tool())
			}
		}
		for _, g := range j.grants {
			if line := "        - {argv: " + quoteList(g) + "}\n"; !slices.Contains(grants, line) {
				grants = append(grants, line)
			}
		}
	}

	if len(tools) > 0 {
		slices.Sort(tools)
		fmt.Fprintf(b, "    tools: {allow: [%s]}\n", strings.Join(tools, ", "))
	}
	if len(grants) > 0 {
		b.WriteString("    grants:\n      commands:\n" + strings.Join(grants, ""))
	}
}

func (j *Job) write(b *strings.Builder) {
	comment(b, "  ", j.Kept...)
	comment(b, "  ", j.Source...)
	for _, r := range j.Remarks {
		comment(b, "  ", "- "+r)
	}

	fmt.Fprintf(b, "  - name: %s\n    agent: %s\n", quote(j.Name), quote(j.uses))
	if j.Off {
		b.WriteString("    enabled: false\n")
	}
	for _, s := range j.settings {
		fmt.Fprintf(b, "    %s: %s\n", s.key, value(s.value))
	}
	if len(j.when) > 0 {
		b.WriteString("    when:\n")
	}
	for _, w := range j.when {
		b.WriteString("      - " + w + "\n")
	}

	if len(j.executor) > 0 {
		j.writeExecutor(b)
	}
	if j.prompt != "" {
		fmt.Fprintf(b, "    prompt: %s\n", block(literal(j.prompt), "      "))
		return
	}
	b.WriteString("    playbook:\n")
	for _, c := range j.calls {
		c.write(b)
	}
}

func (j *Job) writeExecutor(b *strings.Builder) {
	argv := make([]string, len(j.executor))
	for i, word := range j.executor {
		argv[i] = literal(word)
	}
	fmt.Fprintf(b, "    executor:\n      argv: %s\n      network: host\n", quoteList(argv))
	if len(j.executorEnv) > 0 {
		b.WriteString("      env:\n")
	}
	for _, v := range j.executorEnv {
		fmt.Fprintf(b, "        %s: %s\n", v.name, quote(v.value))
	}
}

func (c call) tool() string {
	if c.title != "" {
		return "notify"
	}
	return "shell_run"
}

func (c call) write(b *strings.Builder) {
	if c.title != "" {
		fmt.Fprintf(b, "      - call: notify\n        with:\n          title: %s\n", block(literal(c.title), "            "))
		if c.body != "" {
			fmt.Fprintf(b, "          body: %s\n", block(literal(c.body), "            "))
		}
		return
	}
	command := literal(c.command)
	b.WriteString("      - call: shell_run\n        with:\n")
	fmt.Fprintf(b, "          command: %s\n          timeout: 3600\n", block(command, "            "))
	if c.on != "" {
		fmt.Fprintf(b, "        on_error: %s\n", c.on)
	}
	if len(c.exits) > 0 {
		fmt.Fprintf(b, "        expect: {exit: %s}\n", strings.ReplaceAll(fmt.Sprint(c.exits), " ", ", "))
	}
}

// Problem is an error found by the check of a configuration.
type Problem struct {
	Path    string // such as jobs[1].schedule
	Message string
}

// Settle returns a configuration that passes check. It removes workdirs, grants and jobs until
// check finds no problem.
func (d *Document) Settle(check func(text []byte) ([]Problem, error)) ([]byte, error) {
	for {
		text, users := d.write()
		problems, err := check(text)
		if err != nil || len(problems) == 0 {
			return bytes.Clone(text), err
		}

		changed := false
		for _, p := range problems {
			var place int
			switch {
			case scan(p.Path, "agents[%d]", &place) && place < len(users):
				changed = d.withoutFolder(users[place], p) || changed
			case scan(p.Path, "jobs[%d]", &place) && place < len(d.Jobs()):
				changed = true
				d.Jobs()[place].refused = p.Message
			}
		}
		d.dropRefused()
		if !changed {
			return nil, fmt.Errorf("what was made of the jobs cannot be used: %s: %s", problems[0].Path, problems[0].Message)
		}
	}
}

func scan(path, format string, place *int) bool {
	n, err := fmt.Sscanf(path, format, place)
	return n == 1 && err == nil && *place >= 0
}

// withoutFolder removes the workdirs or grants of an agent's jobs. If there are none to remove, it
// marks the jobs as refused.
func (d *Document) withoutFolder(jobs []*Job, p Problem) bool {
	changed := false
	for _, j := range jobs {
		switch {
		case j.dir != "":
			j.lose("it worked in %s, which cannot be a workdir: what rouse trusts lies there, or runs from there (docs/start/files.md)", shown(j.dir))
			j.dir, changed = "", true
		case slices.ContainsFunc(j.grants, namesScript):
			j.remark("no grant is written for what it runs, which its agent could change (docs/start/files.md): its first run waits in rouse inbox")
			j.grants, changed = nil, true
		}
	}
	for _, j := range jobs {
		if !changed {
			j.refused = p.Message
		}
	}
	return len(jobs) > 0
}

// namesScript reports whether a grant allows a script outside the system's programs.
func namesScript(grant []string) bool {
	return slices.ContainsFunc(shell.Scripts(grant), func(file string) bool { return !shell.IsSystemProgram(file) })
}

// dropRefused replaces refused jobs with comments.
func (d *Document) dropRefused() {
	for i, it := range d.items {
		if it.job == nil || it.job.refused == "" {
			continue
		}
		j := it.job
		lines := append([]string{notCarried + shown(j.refused)}, j.Kept...)
		lines = append(lines, j.Source...)
		if j.whole != "" {
			lines = append(lines, j.whole)
		}
		for _, r := range j.Remarks {
			lines = append(lines, "- "+r)
		}
		d.items[i] = item{comment: lines}
	}
}
