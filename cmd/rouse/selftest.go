package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/agent/eval"
	agentplan "rouse/agent/plan"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/plan"
	"rouse/internal/domain"
	"rouse/internal/text"
)

type selftestOptions struct {
	at    *cli
	model string
	keep  string
}

// scenarioResult is a scenario in the output of `rouse selftest --json`.
type scenarioResult struct {
	eval.Report
	OK        bool           `json:"ok"`
	Outcome   domain.Outcome `json:"outcome"`
	Exit      domain.Exit    `json:"exit"`
	Steps     int            `json:"steps"`
	Calls     int            `json:"calls"`
	TokensIn  int64          `json:"tokens_in"`
	TokensOut int64          `json:"tokens_out"`
	CostUSD   float64        `json:"cost_usd"`
	TookMS    int64          `json:"took_ms"`
}

func newSelftest(env *cli) *cobra.Command {
	o := selftestOptions{at: env}
	cmd := &cobra.Command{
		Use:   "selftest [SCENARIO…]",
		Short: "Whether this binary does what it promises, played with a scripted model; or what a model of yours can do",
		Long: `Plays scenarios: each gives an agent a workspace and a task, lets a scripted model do it
on the loop that every run goes through, and compares what came of it. Needs no
configuration, no network and no home: each scenario has a folder of its own, which is
removed afterwards. Exits 1 and says what is not as it should be.

With --model a model of your configuration does the tasks instead, and what counts is what
came of them. That takes its tokens, which no budget of your home counts; a scenario takes
30 steps and 10 minutes at most.

A SCENARIO is the name of one that comes with rouse, or a file of yours in the same form
(agent/eval/scenarios in the source).`,
		Example: `  rouse selftest
  rouse selftest reads-once ./mine.yaml
  rouse selftest --model local --keep ./played`,
		RunE: func(cmd *cobra.Command, args []string) error { return runSelftest(cmd, o, args) },
	}

	cmd.Flags().StringVar(&o.model, "model", "", "`name` of a configured model that does the tasks")
	cmd.Flags().StringVar(&o.keep, "keep", "", "`folder` in which what was played is kept; it must be empty")
	return withJSON(cmd)
}

func runSelftest(cmd *cobra.Command, o selftestOptions, names []string) (err error) {
	if o.at.home != "" {
		return usagef("selftest plays in folders of its own, never in a home; leave --home out, or use --keep")
	}

	scenarios, err := scenarios(names)
	if err != nil {
		return err
	}

	doer, err := o.testedModel()
	if err != nil {
		return err
	}

	dir := o.keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "rouse-selftest-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	} else if found, err := os.ReadDir(dir); len(found) > 0 || (err != nil && !errors.Is(err, fs.ErrNotExist)) {
		// A folder that does not exist counts as empty.
		return usagef("%s is not an empty folder: nothing is played over what is there", dir)
	}

	results, err := playScenarios(cmd, o, dir, scenarios, doer)
	if err != nil {
		return err
	}

	failed := len(slices.DeleteFunc(slices.Clone(results), func(r scenarioResult) bool { return r.OK }))
	return failIf(failed > 0, jsonOr(cmd, results, func() error {
		return sayf(cmd.OutOrStdout(), "%d of %d scenarios passed\n", len(results)-failed, len(results))
	}))
}

// playScenarios plays each scenario in its own folder. Without --json it prints each result.
func playScenarios(cmd *cobra.Command, o selftestOptions, dir string, scenarios []eval.Scenario, doer *agentplan.Model) ([]scenarioResult, error) {
	results := []scenarioResult{}
	for _, s := range scenarios {
		if doer != nil && s.Misbehaves {
			continue // skip it: its script misbehaves on purpose and has no task for a model
		}

		report, err := eval.Run(cmd.Context(), filepath.Join(dir, s.Name), s, doer)
		if err != nil {
			return nil, fmt.Errorf("the scenario %s cannot be played: %w", s.Name, err)
		}

		u := report.Run.Usage
		result := scenarioResult{Report: report, OK: len(report.Problems) == 0, Outcome: report.Run.Outcome, Exit: report.Run.Exit, Steps: report.Run.Steps, Calls: report.Run.Calls,
			TokensIn: u.TokensIn, TokensOut: u.TokensOut, CostUSD: float64(u.CostMicroUSD) / 1e6, TookMS: report.Took.Milliseconds()}
		results = append(results, result)
		if !wantsJSON(cmd) {
			printScenario(cmd.OutOrStdout(), result, doer != nil)
		}
		// After Ctrl-C all remaining scenarios would fail.
		if err := cmd.Context().Err(); err != nil {
			return nil, err
		}
	}

	return results, nil
}

// scenarios returns the scenarios with these names or files. Without names, it returns all.
func scenarios(names []string) ([]eval.Scenario, error) {
	all, err := eval.Builtin()
	if err != nil || len(names) == 0 {
		return all, err
	}

	var out []eval.Scenario
	for _, name := range names {
		var one eval.Scenario
		if strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
			content, err := os.ReadFile(name)
			if err != nil {
				return nil, usagef("the scenario cannot be read: %v", err)
			}
			if one, err = eval.Parse(name, content); err != nil {
				return nil, usagef("%v", err)
			}
		} else if one, err = named("scenario", name, all, func(s eval.Scenario) string { return s.Name }); err != nil {
			return nil, err
		}
		out = append(out, one)
	}

	// The name is also the folder of the scenario.
	for i, s := range out {
		if slices.ContainsFunc(out[:i], func(o eval.Scenario) bool { return o.Name == s.Name }) {
			return nil, usagef("the scenario %s is named twice", s.Name)
		}
	}
	return out, nil
}

// testedModel returns the model to test, or nil if the scripts play the model.
func (o selftestOptions) testedModel() (*agentplan.Model, error) {
	if o.model == "" {
		return nil, nil
	}

	cfg, err := o.at.check()
	if err != nil {
		return nil, err
	}
	models, err := plan.NewModels(cfg, logging.Quiet())
	if err != nil {
		return nil, err
	}
	if _, err := named("model", o.model, cfg.Models, func(m config.Model) string { return string(m.Name) }); err != nil {
		return nil, err
	}

	// Copy the model, because the configured one is shared.
	alone := *models[o.model]
	alone.Fallback = nil // test only this model
	return &alone, nil
}

func printScenario(w io.Writer, p scenarioResult, costs bool) {
	mark, took := "ok  ", ""
	if !p.OK {
		mark = "FAIL"
	}
	if costs {
		took = fmt.Sprintf("  (%d steps, %d tokens, %s)", p.Steps, p.TokensIn+p.TokensOut, p.Took.Round(time.Second))
	}
	fmt.Fprintf(w, "%s  %-18s %s%s\n", mark, p.Name, p.About, took)
	for _, problem := range p.Problems {
		fmt.Fprintf(w, "      %s\n", text.OneLine(problem))
	}
}
