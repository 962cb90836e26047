package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/plan"
	"rouse/internal/atomicfile"
	"rouse/internal/fspath"
	"rouse/internal/owner"
	"rouse/internal/text"
)

func newNew(env *cli) *cobra.Command {
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
	}
	cmd.AddCommand(newNewJob(env), newNewAgent(env), newSkillsNew("skill"))
	return cmd
}

// jobDraft holds the settings of a new job.
type jobDraft struct {
	name, agent, prompt    string
	schedule, watch, model string
	after                  []string
	webhook                bool
}

func newNewJob(env *cli) *cobra.Command {
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
		RunE: func(cmd *cobra.Command, args []string) error {
			d.name = strings.Join(args, "")
			return d.add(cmd, env)
		},
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

func newNewAgent(env *cli) *cobra.Command {
	var d agentDraft
	cmd := &cobra.Command{
		Use:   "agent [NAME]",
		Short: "Adds an agent to the configuration",
		Long:  "Adds an agent to the configuration. On a terminal and without flags the command asks.",
		Example: `  rouse new agent
  rouse new agent clerk --instructions "You keep the household books. Amounts are in euro." --workdir ./books`,
		RunE: func(cmd *cobra.Command, args []string) error {
			d.name = strings.Join(args, "")
			return d.add(cmd, env)
		},
	}

	f := cmd.Flags()
	f.StringVar(&d.instructions, "instructions", "", "`text` for the model in every run")
	f.StringVar(&d.workdir, "workdir", "", "working `folder` (default: a folder with its name beside the configuration)")
	f.StringVar(&d.model, "model", "", "`name` of the model (default the first one)")
	return cmd
}

// add asks for missing settings and adds the job.
func (j *jobDraft) add(cmd *cobra.Command, env *cli) error {
	e := &draft{at: env, list: "jobs", name: func() string { return j.name }, text: j.block}
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
		if j.ask(ask, e, agents); ask.err != nil {
			return ask.err
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
func (j *jobDraft) ask(d *dialogue, e *draft, agents []string) {
	j.agent = agents[0]
	d.askName("Name of the job", &j.name, e)
	d.choose("Which agent does it", agents, &j.agent)
	j.askTrigger(d, e)
	d.askInto("What should it do", "", &j.prompt, e)
	d.confirmEntry(e)
}

// askTrigger asks what starts the job.
func (j *jobDraft) askTrigger(d *dialogue, e *draft) {
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
	d.choose("Start", kinds, &kind)
	switch kind {
	case "time":
		d.askInto("When", "every day at 8:00", &j.schedule, e)
	case "folder":
		d.ask("Which folder", "./inbox", func(answer string) error {
			j.watch = e.fromFile(answer)
			return e.build()
		})
	case "job":
		var names []string
		for i := range e.cfg.Jobs {
			names = append(names, string(e.cfg.Jobs[i].Name))
		}
		j.after = []string{names[0]}
		d.choose("Which job", names, &j.after[0])
	}
	j.webhook = kind == "webhook"
}

// block returns the entry of the job.
func (j *jobDraft) block() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	key := func(indent, key, value string) { line("%s%s: %s", indent, key, yaml.Literal(value, indent)) }

	line("# Every key of a job, with an example: rouse explain jobs")
	line("- name: %s", yaml.Literal(j.name, "  "))
	key("  ", "agent", j.agent)
	if j.model != "" {
		key("  ", "model", j.model)
	}
	if j.schedule != "" {
		line("  %s", yaml.TimingLine(j.schedule))
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
		line("    - job: %s", yaml.Literal(job, "      "))
	}
	if j.schedule == "" && j.watch == "" && !j.webhook && len(j.after) == 0 {
		line("  # schedule: daily at 08:00        # without it only rouse run starts the job")
	}

	key("  ", "prompt", cmp.Or(j.prompt, "…")) // a placeholder until the user is asked
	line("  # expect: [{file: ./report.md}]   # files that the run must change")
	line("  # notify: {on: [failure]}         # default: success, failure, waiting")
	return b.String()
}

// add asks for missing settings and adds the agent.
func (a *agentDraft) add(cmd *cobra.Command, env *cli) error {
	e := &draft{at: env, list: "agents", name: func() string { return a.name }, text: a.block}
	ask, err := e.begin(cmd)
	if err != nil {
		return err
	}

	a.workdir = e.fromFile(a.workdir)
	switch {
	case ask != nil:
		if a.ask(ask, e); ask.err != nil {
			return ask.err
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
func (a *agentDraft) ask(d *dialogue, e *draft) {
	d.askName("Name of the agent", &a.name, e)
	d.askInto("Instructions for every run", "You work carefully, and say what you could not do.", &a.instructions, e)
	if models := e.cfg.Models; len(models) > 1 {
		var names []string
		for i := range models {
			names = append(names, string(models[i].Name))
		}
		d.choose("Which model", names, &a.model)
	}
	d.confirmEntry(e)
}

// block returns the entry of the agent.
func (a *agentDraft) block() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	key := func(key, value string) { line("  %s: %s", key, yaml.Literal(value, "  ")) }

	line("# Every key of an agent, with an example: rouse explain agents")
	line("- name: %s", yaml.Literal(a.name, "  "))
	if a.model != "" {
		key("model", a.model)
	}
	if a.instructions != "" {
		key("instructions", a.instructions)
	} else {
		line("  # instructions: You keep the household books.   # for the model, in every run")
	}
	key("workdir", cmp.Or(a.workdir, "./"+a.name))
	line("  # tools: {allow: [\"file_*\", \"db_*\", notify]}   # default: all tools")
	line("  # grants: {network: [{host: api.example.com}]}  # access without approval")
	return b.String()
}

// draft holds a configuration and the entry to add.
type draft struct {
	at   *cli
	path string
	old  []byte
	cfg  *config.Config // of old
	list string         // list of the entry: jobs or agents
	name func() string

	// Result of the last build.
	now      []byte
	line     int              // line number of the entry
	warnings []config.Problem // about the entry
	text     func() string    // of the entry
}

// begin reads the configuration. It returns no dialogue if flags are given or without a terminal.
func (d *draft) begin(cmd *cobra.Command) (ask *dialogue, err error) {
	given := false
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		given = given || f.Changed
		if f.Changed && strings.TrimSpace(f.Value.String()) == "" {
			err = usagef("--%s is empty", f.Name)
		}
	})
	if err == nil {
		err = d.read()
	}
	if err != nil || given {
		return nil, err
	}
	return dialogueOf(cmd, "cancelled; nothing was written"), nil
}

func (d *draft) read() (err error) {
	if d.path, err = yaml.Find(d.at.config, os.Getenv); err != nil {
		return err
	}
	if info, err := os.Stat(d.path); err == nil && !info.Mode().IsRegular() {
		return usagef("%s is not a plain file", d.shown())
	}
	if d.old, err = os.ReadFile(d.path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no configuration %s; write one with: rouse init", d.shown())
	} else if err != nil {
		return fmt.Errorf("the configuration cannot be read: %w", err)
	}
	if d.cfg, err = plan.LoadText(d.path, d.at.home, d.old); err != nil {
		return fmt.Errorf("the configuration has mistakes; correct them first, nothing was written:\n%w", err)
	}
	return nil
}

// fromFile converts a path to a path relative to the folder of the configuration.
func (d *draft) fromFile(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil || path == "" || path[0] == '~' {
		return path
	}
	if rel, ok := fspath.Rel(filepath.Dir(d.path), abs); ok {
		return "./" + filepath.ToSlash(rel)
	}
	return abs
}

// shown returns the path of the configuration for messages.
func (d *draft) shown() string {
	path := d.path
	if here, err := os.Getwd(); err == nil {
		path = fspath.Shorten(here, path)
	}
	return text.OneLine(path)
}

// here returns the --config flag for suggested commands, or "" if it was not given.
func (d *draft) here() string {
	if d.at.config == "" {
		return ""
	}
	return " --config " + text.OneLine(d.at.config)
}

// taken returns an error if the name exists in the list.
func (d *draft) taken() error {
	known := map[string]config.Position{}
	for _, a := range d.cfg.Agents {
		known["agents "+strings.ToLower(string(a.Name))] = a.At
	}
	for _, j := range d.cfg.Jobs {
		known["jobs "+strings.ToLower(string(j.Name))] = j.At
	}
	at, there := known[d.list+" "+strings.ToLower(d.name())]
	if !there {
		return nil
	}
	p := config.Problem{File: at.File, Line: at.Line, Column: at.Column,
		Message: fmt.Sprintf("%s has an entry %q already; choose another name", d.list, d.name())}
	return usagef("%s", p)
}

// build adds the entry to the text, and checks the result.
func (d *draft) build() (err error) {
	if err := d.taken(); err != nil {
		return err
	}
	d.now, d.line, err = yaml.Add(d.old, d.list, d.text())
	if errors.Is(err, yaml.ErrStyle) {
		return fmt.Errorf("%s: the list %s uses a style that does not allow inserting lines, such as [{…}]; nothing was written. "+
			"Add this block by hand:\n\n%s", d.shown(), d.list, d.text())
	}
	if err != nil {
		return err
	}

	cfg, err := plan.LoadText(d.path, d.at.home, d.now)
	var wrong *config.Errors
	if errors.As(err, &wrong) {
		var lines []string
		for _, p := range wrong.Problems {
			lines = append(lines, problemText(p))
		}
		return usagef("%s", strings.Join(lines, "\n  "))
	}
	if err != nil {
		return err
	}

	d.warnings = slices.DeleteFunc(cfg.Warnings, func(w config.Problem) bool {
		return !strings.HasPrefix(w.Path, d.list+"[") || w.Name != d.name()
	})
	return nil
}

// problemText names a problem by its key, because the draft has other line numbers than the file.
func problemText(p config.Problem) string {
	_, key, _ := strings.Cut(p.Path, "].")
	said := text.OneLine(p.Message)
	if key != "" {
		said = key + ": " + said
	}
	if p.Hint != "" {
		said += "; " + text.OneLine(p.Hint)
	}
	return said
}

// write adds the entry to the file, prints it, and makes a running daemon reload.
func (d *draft) write(cmd *cobra.Command) error {
	if err := d.build(); err != nil {
		var wrong usageError
		if errors.As(err, &wrong) && d.taken() == nil {
			what := strings.TrimSuffix(d.list, "s")
			err = usagef("the %s cannot be added, nothing was written:\n  %w\n\nthe block was:\n\n%s", what, err, d.text())
		}
		return err
	}
	if err := replaceFile(d.path, d.old, d.now); err != nil {
		return err
	}

	fmt.Fprintf(cmd.OutOrStdout(), "added to %s, line %d:\n\n%s\n", d.shown(), d.line, d.text())
	for _, w := range d.warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "rouse: warning:", problemText(w))
	}
	home, err := d.at.homeDir()
	if err != nil {
		return err
	}
	return tellDaemon(cmd.Context(), cmd.OutOrStdout(), home)
}

// replaceFile replaces a file if it still holds old, and keeps its mode. It follows links.
func replaceFile(path string, old, now []byte) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Lstat(real)
	if err != nil {
		return err
	}
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a plain file; nothing was written", text.OneLine(real))
	case !owner.Mine(info):
		return fmt.Errorf("%s %s; nothing was written", text.OneLine(real), owner.Whose(info))
	}
	current, err := os.ReadFile(real)
	if err != nil {
		return err
	}
	if !bytes.Equal(current, old) {
		return fmt.Errorf("%s was changed by another program meanwhile; nothing was written, try again", text.OneLine(real))
	}

	if err := atomicfile.Write(real, now, info.Mode().Perm()); err != nil {
		return err
	}
	return os.Chmod(real, info.Mode().Perm())
}

// dialogue asks questions on a terminal, until there is an error.
type dialogue struct {
	ctx     context.Context
	lines   chan string // closed at the end of the input
	out     io.Writer
	stopped string // the error if the input ends, or if the answer is no
	err     error
}

// dialogueOf returns nil if there is no terminal to ask on.
func dialogueOf(cmd *cobra.Command, stopped string) *dialogue {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) { //nolint:gosec // file descriptors fit into an int
		return nil
	}
	d := &dialogue{ctx: cmd.Context(), lines: make(chan string), out: cmd.ErrOrStderr(), stopped: stopped}
	go func() { // read in the background, so that Ctrl-C ends the wait
		defer close(d.lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			d.lines <- s.Text()
		}
	}()
	return d
}

// ask repeats a question until accept returns nil. An empty answer means the default.
func (d *dialogue) ask(question, def string, accept func(answer string) error) {
	if def != "" {
		question += " [" + def + "]"
	}
	for d.err == nil {
		fmt.Fprint(d.out, question+": ")
		var line string
		ok := false
		select {
		case line, ok = <-d.lines:
		case <-d.ctx.Done():
		}
		if !ok {
			fmt.Fprintln(d.out)
			d.err = errors.New(d.stopped)
			return
		}
		err := accept(cmp.Or(strings.TrimSpace(line), def))
		if err == nil {
			return
		}
		fmt.Fprintln(d.out, "  "+err.Error())
	}
}

var errNeeded = errors.New("it is needed")

// askInto asks for a value and checks the entry with it.
func (d *dialogue) askInto(question, def string, into *string, e *draft) {
	d.ask(question, def, func(answer string) error {
		if *into = answer; answer == "" {
			return errNeeded
		}
		return e.build()
	})
}

// askName asks for the name of an entry, unless it was given.
func (d *dialogue) askName(question string, name *string, e *draft) {
	if *name == "" {
		d.askInto(question, "", name, e)
	} else {
		d.err = e.build()
	}
}

// choose asks for one of several names.
func (d *dialogue) choose(question string, names []string, into *string) {
	if *into = names[0]; len(names) == 1 {
		return
	}
	d.ask(question+" ("+strings.Join(names, ", ")+")", names[0], func(answer string) error {
		if !slices.Contains(names, answer) {
			return errors.New(text.NoSuch("name", answer, names))
		}
		*into = answer
		return nil
	})
}

// confirm asks a question, and stops unless the answer is yes.
func (d *dialogue) confirm(question, def string) {
	d.ask(question, def, func(answer string) error {
		switch strings.ToLower(answer) {
		case "y", "yes":
		case "n", "no":
			d.err = errors.New(d.stopped)
		default:
			return errors.New("answer yes or no")
		}
		return nil
	})
}

// confirmEntry prints the entry and asks whether to write it.
func (d *dialogue) confirmEntry(e *draft) {
	if d.err == nil {
		fmt.Fprintf(d.out, "\n%s\n", e.text())
	}
	d.confirm("Add this to "+e.shown()+"?", "yes")
}
