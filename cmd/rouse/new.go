package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/config"
)

func newNew(at *place) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Adds a job or an agent to the configuration, or writes a skill",
		Long: `Adds a job or an agent to the configuration, or creates a skill.

A job or an agent becomes a block with comments at the end of its list. All other lines of the file
stay as they are. The new configuration is checked first: if it has a mistake, nothing is written.

On a terminal and without flags the command asks a few questions.`,
		Example: `  rouse new agent clerk --instructions "You keep the household books."
  rouse new job morning --schedule "every day at 8:00" --prompt "Write a report of yesterday to report.md."
  rouse new job invoices --watch ./inbox --prompt "Put the invoice into the table invoices."
  rouse new skill word-count`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newNewJob(at), newNewAgent(at), newSkillsNew("skill"))
	return cmd
}

// jobDraft holds the settings of a new job.
type jobDraft struct {
	name, agent, prompt    string
	schedule, watch, model string
	after                  []string
	webhook                bool
}

func newNewJob(at *place) *cobra.Command {
	var d jobDraft
	cmd := &cobra.Command{
		Use:   "job [NAME]",
		Short: "Adds a job to the configuration",
		Long: `Adds a job to the configuration. Without --schedule, --watch, --webhook and --after it only starts
when you run it. On a terminal and without flags the command asks.

--schedule takes a cron expression, a duration, or words: "0 8 * * 1-5", 30m, "every day at 8:00",
"every weekday at 7:30", "monthly on the 1st".`,
		Example: `  rouse new job
  rouse new job morning --schedule "every day at 8:00" --prompt "Write a report of yesterday to report.md."
  rouse new job invoices --agent clerk --watch ./inbox --prompt "Put the invoice into the table invoices."
  rouse new job summary --after invoices --prompt "Tell me what changed."`,
		Args: cobra.MaximumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			d.name = strings.Join(args, "")
			return d.add(cmd, at)
		}),
	}

	f := cmd.Flags()
	f.StringVar(&d.agent, "agent", "", "`agent` of the job (default the only agent)")
	f.StringVar(&d.prompt, "prompt", "", "`text` of the task")
	f.StringVar(&d.schedule, "schedule", "", "`time` of the starts, such as \"every day at 8:00\" or 30m")
	f.StringVar(&d.watch, "watch", "", "`folder` to watch for new files")
	f.BoolVar(&d.webhook, "webhook", false, "start on signed requests of other programs")
	f.StringSliceVar(&d.after, "after", nil, "start after a `job` has succeeded")
	f.StringVar(&d.model, "model", "", "`name` of the model (default the agent's)")
	return cmd
}

// agentDraft holds the settings of a new agent.
type agentDraft struct{ name, instructions, workdir, model string }

func newNewAgent(at *place) *cobra.Command {
	var d agentDraft
	cmd := &cobra.Command{
		Use:   "agent [NAME]",
		Short: "Adds an agent to the configuration",
		Long:  "Adds an agent to the configuration. On a terminal and without flags the command asks.",
		Example: `  rouse new agent
  rouse new agent clerk --instructions "You keep the household books. Amounts are in euro." --workdir ./books`,
		Args: cobra.MaximumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			d.name = strings.Join(args, "")
			return d.add(cmd, at)
		}),
	}

	f := cmd.Flags()
	f.StringVar(&d.instructions, "instructions", "", "`text` for the model in every run")
	f.StringVar(&d.workdir, "workdir", "", "working `folder` (default: a folder with its name beside the configuration)")
	f.StringVar(&d.model, "model", "", "`name` of the model (default the first one)")
	return cmd
}

// add asks for missing settings and adds the job.
func (j *jobDraft) add(cmd *cobra.Command, at *place) error {
	e := &draft{at: at, list: "jobs", name: func() string { return j.name }, text: j.block}
	ask, err := e.begin(cmd)
	if err != nil {
		return err
	}
	if len(e.cfg.Agents) == 0 {
		return fmt.Errorf("there is no agent for the job; add one first: rouse new agent%s", e.here())
	}
	agents := agentNames(e.cfg)

	j.watch = e.fromFile(j.watch)
	switch {
	case ask != nil:
		if yes, err := j.ask(ask, e, agents); err != nil || !yes {
			return err
		}
	case j.name == "" || j.prompt == "":
		return usagef("give the name and the prompt: rouse new job NAME --prompt TEXT")
	case j.agent == "" && len(agents) > 1:
		return usagef("choose an agent: --agent %s", strings.Join(agents, "|"))
	case j.agent == "":
		j.agent = agents[0]
	}
	if err := e.write(cmd); err != nil {
		return err
	}

	next := "rouse run " + j.name + " --wait" + e.here()
	switch {
	case j.webhook:
		next = "rouse secrets set " + j.name + "-hook" + e.here() + ", and try it: rouse webhooks send " + j.name + e.here()
	case j.watch != "":
		next = "copy a file into " + j.watch
	}
	if n := slices.Index(agents, j.agent); len(e.cfg.Models) == 0 && n >= 0 && e.cfg.Agents[n].Executor == nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "rouse: warning: no model is configured for the prompt; see: rouse explain models")
	}
	return sayf(cmd.OutOrStdout(), "next: %s\n", next)
}

// ask asks for the settings of a job and for confirmation.
func (j *jobDraft) ask(d *dialogue, e *draft, agents []string) (yes bool, err error) {
	j.agent = agents[0]
	if j.name == "" {
		err = d.askInto("Name of the job", "", &j.name, e)
	} else {
		err = e.build()
	}
	if err == nil && len(agents) > 1 {
		err = d.choose("Which agent does it", agents, &j.agent)
	}
	if err == nil {
		err = j.askTrigger(d, e)
	}
	if err == nil {
		err = d.askInto("What should it do", "", &j.prompt, e)
	}
	if err != nil {
		return false, err
	}
	return d.confirm(e)
}

// askTrigger asks what starts the job.
func (j *jobDraft) askTrigger(d *dialogue, e *draft) error {
	kinds := []string{"time", "folder", "webhook", "none"}
	fmt.Fprint(d.out, `What starts it?
  time     at fixed times
  folder   a new file in a folder
  webhook  a request of another program
  none     only rouse run
`)
	if len(e.cfg.Jobs) > 0 {
		kinds = append(kinds, "job")
		fmt.Fprintln(d.out, "  job      the success of another job")
	}
	kind := ""
	if err := d.choose("Start", kinds, &kind); err != nil {
		return err
	}
	switch kind {
	case "time":
		return d.askInto("When", "every day at 8:00", &j.schedule, e)
	case "folder":
		return d.ask("Which folder", "./inbox", func(answer string) error {
			j.watch = e.fromFile(answer)
			return e.build()
		})
	case "job":
		var names []string
		for i := range e.cfg.Jobs {
			names = append(names, string(e.cfg.Jobs[i].Name))
		}
		j.after = []string{""}
		return d.choose("Which job", names, &j.after[0])
	}
	j.webhook = kind == "webhook"
	return nil
}

// block returns the entry of the job.
func (j *jobDraft) block() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	key := func(indent, key, value string) { line("%s%s: %s", indent, key, config.Literal(value, indent)) }

	line("# Every key of a job, with an example: rouse explain jobs")
	line("- name: %s", config.Literal(j.name, "  "))
	key("  ", "agent", j.agent)
	if j.model != "" {
		key("  ", "model", j.model)
	}
	if j.schedule != "" {
		line("  %s", config.TimingLine(j.schedule))
	}
	if j.watch != "" {
		line("  watch:")
		key("    ", "path", j.watch)
		line("    # include: [\"*.pdf\"]            # only matching files")
		line("    # on_success: {move: ./done}    # default: files stay, and are not processed again")
	}
	if j.webhook {
		line("  webhook:")
		key("    ", "path", "/hooks/"+j.name)
		key("    ", "secret", "secret:"+j.name+"-hook")
		line("    # scheme: github                # signature scheme: standard, github, gitlab, stripe or slack")
	}
	if len(j.after) > 0 {
		line("  after:")
	}
	for _, job := range j.after {
		line("    - job: %s", config.Literal(job, "      "))
	}
	if j.schedule == "" && j.watch == "" && !j.webhook && len(j.after) == 0 {
		line("  # schedule: daily at 08:00        # without it only rouse run starts the job")
	}

	prompt := j.prompt
	if prompt == "" {
		prompt = "…" // placeholder until the user is asked
	}
	key("  ", "prompt", prompt)
	line("  # expect: [{file: ./report.md}]   # files that the run must change")
	line("  # notify: {on: [failure]}         # default: success, failure, waiting")
	return b.String()
}

// add asks for missing settings and adds the agent.
func (a *agentDraft) add(cmd *cobra.Command, at *place) error {
	e := &draft{at: at, list: "agents", name: func() string { return a.name }, text: a.block}
	ask, err := e.begin(cmd)
	if err != nil {
		return err
	}

	a.workdir = e.fromFile(a.workdir)
	switch {
	case ask != nil:
		if yes, err := a.ask(ask, e); err != nil || !yes {
			return err
		}
	case a.name == "":
		return usagef("name the agent: rouse new agent NAME")
	}
	if err := e.write(cmd); err != nil {
		return err
	}
	return sayf(cmd.OutOrStdout(), "next: rouse new job NAME --agent %s --prompt TEXT%s\n", a.name, e.here())
}

// ask asks for the settings of an agent and for confirmation.
func (a *agentDraft) ask(d *dialogue, e *draft) (yes bool, err error) {
	if a.name == "" {
		err = d.askInto("Name of the agent", "", &a.name, e)
	} else {
		err = e.build()
	}
	if err == nil {
		err = d.askInto("Instructions for every run", "You work carefully, and say what you could not do.", &a.instructions, e)
	}
	if models := e.cfg.Models; err == nil && len(models) > 1 {
		var names []string
		for i := range models {
			names = append(names, string(models[i].Name))
		}
		err = d.choose("Which model", names, &a.model)
	}
	if err != nil {
		return false, err
	}
	return d.confirm(e)
}

// block returns the entry of the agent.
func (a *agentDraft) block() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	key := func(key, value string) { line("  %s: %s", key, config.Literal(value, "  ")) }

	line("# Every key of an agent, with an example: rouse explain agents")
	line("- name: %s", config.Literal(a.name, "  "))
	if a.model != "" {
		key("model", a.model)
	}
	if a.instructions != "" {
		key("instructions", a.instructions)
	} else {
		line("  # instructions: You keep the household books.   # for the model, in every run")
	}
	workdir := a.workdir
	if workdir == "" {
		workdir = "./" + a.name
	}
	key("workdir", workdir)
	line("  # tools: {allow: [\"file_*\", \"db_*\", notify]}   # default: all tools")
	line("  # grants: {network: [{host: api.example.com}]}  # access without approval")
	return b.String()
}
