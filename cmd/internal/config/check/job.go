package check

import (
	"slices"
	"strings"

	"rouse/cmd/internal/config"
)

func (c *checker) job(path string, j *config.Job) {
	agent := c.agent(j)
	if agent == nil { // look the name up only if the agent is missing
		c.reference(path+".agent", "agent", j.Agent, c.agents)
	}
	c.reference(path+".model", "model", j.Model, c.models)
	if agent != nil && !config.On(agent.Enabled) && config.On(j.Enabled) {
		c.warn(path+".agent", "the agent %q is disabled, so this job never runs", j.Agent)
	}

	c.mode, c.saved = "", nil
	if j.Watch != nil {
		c.mode = j.Watch.Mode
	}

	c.work(path, j, agent)
	c.triggers(path, j)
	if j.Watch != nil {
		c.watch(path+".watch", j.Watch, j)
	}
	if j.Webhook != nil {
		c.webhook(path+".webhook", j)
	}
	c.follows(path+".after", j)

	if j.Session == config.SessionKeep && !j.Prompts() {
		c.bad(path+".session", "keep is for jobs with a prompt: a playbook and a module are told nothing of earlier runs")
	}

	c.conditions(path+".when", j, agent)
	for at, e := range config.Each(path+".expect", j.Expect) {
		c.expect(at, e, agent)
	}

	if j.Retry.Backoff > j.Retry.MaxBackoff {
		c.bad(path+".retry", "backoff %s is longer than max_backoff %s", j.Retry.Backoff, j.Retry.MaxBackoff)
	}

	for at, name := range config.Each(path+".notify.channels", j.Notify.Channels) {
		c.reference(at, "channel", *name, c.channels)
	}

	// A notice is rendered after the run, when the manifest is deleted and the outcome is known.
	names := append(slices.DeleteFunc(scope(j), func(name string) bool { return name == manifest }), "Outcome", "Summary", "Error")
	c.template(path+".notify.title", j.Notify.Title, names)
	c.template(path+".notify.body", j.Notify.Body, names)
}

// work checks the work of a job: its prompt, playbook or skill.
func (c *checker) work(path string, j *config.Job, agent *config.Agent) {
	c.oneOf(path, "prompt", "prompt_file", "playbook", "skill")
	c.notEmpty(path+".prompt", j.Prompt, "is empty")
	if c.d.Given(path + ".prompt_file") {
		c.template(path+".prompt_file", j.Prompt, scope(j))
	} else {
		c.template(path+".prompt", j.Prompt, scope(j))
	}

	if j.Playbook != nil {
		c.playbook(path, j, agent)
	}
	if at := path + ".input"; c.d.Given(at) && !c.d.Given(path+".skill") {
		c.bad(at, "goes with skill: what its module is given")
	}
	c.notEmpty(path+".skill", j.Skill, "is empty; write the name of a skill")
	c.value(path+".input", j.Input, scope(j))
	if at := path + ".workspace"; c.d.Given(at) && !c.d.Given(path+".skill") {
		c.bad(at, "goes with skill: the workspace in which its module works")
	}
	c.template(path+".workspace", j.Workspace, scope(j))
}

func (c report) viewsWithoutDatabase(path string, j *config.Job) {
	if a := c.agent(j); len(j.ContextViews) > 0 && a != nil && !config.On(a.Database.Enabled) {
		c.warn(path, "the agent %q has no database (database.enabled: false), so no view has rows", a.Name).Hint = "remove context_views, or give the agent its database"
	}
}

func (c *checker) expect(path string, e *config.Expect, agent *config.Agent) {
	switch kind := c.oneOf(path, "file", "sql", "command"); kind {
	case "sql":
		c.notEmpty(path+".sql", e.SQL, "is empty")
		c.needsDatabase(path+".sql", agent)
	case "command":
		at := path + ".command"
		if (len(e.Command) == 0 || strings.TrimSpace(e.Command[0]) == "") && c.hasNoProblem(at) {
			c.bad(at, "must name a program").Hint = "as in command: [go, test, ./...]"
		}
		if agent != nil && agent.Mode == "none" {
			c.bad(at, "the agent %q has mode: none, and runs no programs", agent.Name)
		}
	}
}

func (c *checker) needsDatabase(path string, agent *config.Agent) {
	if agent != nil && !config.On(agent.Database.Enabled) {
		c.bad(path, "the agent %q has no database (database.enabled: false)", agent.Name)
	}
}
