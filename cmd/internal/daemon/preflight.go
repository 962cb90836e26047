package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/secret"
	"rouse/internal/text"
)

// askSecretsEvery is how often the keyring is asked for secrets that are missing: nothing tells that it was opened.
const askSecretsEvery = 30 * time.Second

// secretObstacles are the secrets that lack below a place of the configuration.
func secretObstacles(cfg *config.Config, below string) (out []ledger.Obstacle) {
	for _, h := range cfg.Held() {
		if strings.HasPrefix(h.Path, below) {
			out = append(out, ledger.Obstacle{Kind: "secret", Source: "secret/" + h.Name, Text: h.Text, Where: cfg.Where(h.At)})
		}
	}
	return out
}

// agentObstacles are the secrets that an agent lacks, those of its MCP servers with them.
func agentObstacles(cfg *config.Config, i int) []ledger.Obstacle {
	out := secretObstacles(cfg, fmt.Sprintf("agents[%d].", i))
	for k, s := range cfg.MCP {
		if slices.Contains(cfg.Agents[i].MCP, string(s.Name)) {
			out = append(out, secretObstacles(cfg, fmt.Sprintf("mcp[%d].", k))...)
		}
	}
	return out
}

// disabledAgent is what keeps the runs of a job from starting whose agent is disabled.
func disabledAgent(cfg *config.Config, j *config.Job) ledger.Obstacle {
	o := ledger.Obstacle{Kind: "agent", Source: "agent/" + j.Agent, Text: fmt.Sprintf("the agent %s is disabled (enabled: false)", j.Agent), Quiet: true}
	for _, a := range cfg.Agents {
		if string(a.Name) == j.Agent {
			o.Where = cfg.Where(a.At)
		}
	}
	return o
}

// obstaclesOf are what keeps the runs of a job from starting now, and what keeps its webhook from taking requests.
func (d *Daemon) obstaclesOf(ctx context.Context, s *Setup, i int) []ledger.Obstacle {
	j := &s.Config.Jobs[i]
	if !config.On(j.Enabled) {
		return nil
	}
	return append(d.runner.Obstacles(ctx, ledger.Run{Job: string(j.Name)}), secretObstacles(s.Config, fmt.Sprintf("jobs[%d].webhook.", i))...)
}

// newObstacles are obstacles as the API has them: never null.
func newObstacles(all []ledger.Obstacle) []api.Obstacle {
	out := []api.Obstacle{}
	for _, o := range all {
		out = append(out, api.Obstacle{Kind: o.Kind, Source: o.Source, Text: o.Text, Where: o.Where})
	}
	return out
}

// checkJobs names what keeps jobs from working, each thing once with the jobs that it concerns.
func (d *Daemon) checkJobs(ctx context.Context, s *Setup) api.Check {
	var order []ledger.Obstacle
	jobs := map[string][]string{}
	for i, j := range s.Config.Jobs {
		for _, o := range d.obstaclesOf(ctx, s, i) {
			if o.Kind == "agent" { // which its owner wants
				continue
			}
			if jobs[o.Source] == nil {
				order = append(order, o)
			}
			if !slices.Contains(jobs[o.Source], string(j.Name)) {
				jobs[o.Source] = append(jobs[o.Source], string(j.Name))
			}
		}
	}
	if len(order) == 0 {
		return passed("jobs", "nothing keeps any from working")
	}

	var said []string
	for _, o := range order {
		said = append(said, fmt.Sprintf("%s (blocks %s)", o, text.List(jobs[o.Source], maxLogged)))
	}
	return failed("jobs", shorten(said), "see each message; what waits runs by itself when it is mended")
}

// shorten joins sentences. It leaves out those beyond maxLogged.
func shorten(said []string) string {
	if more := len(said) - maxLogged; more > 0 {
		said = append(said[:maxLogged:maxLogged], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(said, "; ")
}

// restoreObstacles takes up what was known when the last process ended.
func (d *Daemon) restoreObstacles(ctx context.Context) error {
	known, err := d.ledger.OpenObstacles(ctx, "model")
	if err != nil {
		return err
	}

	why := map[string]string{}
	for _, o := range known {
		why[strings.TrimPrefix(o.Source, "model/")] = o.Text
	}
	d.runner.RestoreRefusals(why)
	return nil
}

// watchObstacles checks obstacles again and again, so that runs start when they are gone.
func (d *Daemon) watchObstacles(ctx context.Context, reconsider func()) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var asked time.Time
	var looked *Setup
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}

		if now := d.Current(); now != looked {
			looked = now
			d.lookAhead(ctx, now)
		}

		cleared, rest := d.runner.LookAgain(ctx)
		if cleared {
			reconsider()
		}
		if time.Since(asked) >= askSecretsEvery {
			asked = time.Now()
			d.reloadForSecrets()
		}
		timer.Reset(rest)
	}
}

// lookAhead finds out what takes a program, so that requests that start none can tell of it.
func (d *Daemon) lookAhead(ctx context.Context, s *Setup) {
	d.confinement.check(ctx, filepath.Join(d.home.Dir, "commands"), s.Config.Zone())
	for i := range s.Config.Jobs {
		if ctx.Err() != nil {
			return
		}
		d.obstaclesOf(ctx, s, i)
	}
}

// reloadForSecrets has the configuration read again when a secret that it lacks can be had.
func (d *Daemon) reloadForSecrets() {
	held := d.Current().Config.Held()
	if len(held) == 0 {
		return
	}

	// A new store, because one remembers a keyring that did not answer.
	store, err := secret.New(secret.Options{Home: d.home.Dir})
	if err != nil {
		return // said where the configuration is read
	}
	for _, h := range held {
		if _, _, err := store.Get(h.Name); err == nil {
			d.ReloadSoon()
			return
		}
	}
}
